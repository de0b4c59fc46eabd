/* Names of models, which files of a list are chosen, and reading huggingface_hub's cache. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/hub.h"
#include "hub/hub_cache.h"
#include "support/cmocka_all.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER_COMMIT "fedcba9876543210fedcba9876543210fedcba98"
#define INDEX "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\"}}"

// ---- names ----

static void test_names(void **state) {
    (void)state;
    struct hub_name name;
    assert_true(hub_name_parse(&name, "Qwen/Qwen3-0.6B"));
    assert_string_equal(name.id, "Qwen/Qwen3-0.6B");
    assert_string_equal(name.folder, "models--Qwen--Qwen3-0.6B");
    assert_string_equal(name.quant, "");
    assert_true(hub_name_parse(&name, "a_b/c.d-e:UD-Q4_K_XL"));
    assert_string_equal(name.id, "a_b/c.d-e");
    assert_string_equal(name.quant, "UD-Q4_K_XL");
}

static void test_what_is_no_name(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",       "a",       "a/",     "/a",    "a/b/c",  "../a", "a/..",
        "a/../b", "./a",     "a/.b",   "a/b.",  "-a/b",   "a/b-", "a/b..c",
        "a/b--c", "a--x/b",  "a/b c",  "a/b\n", "a\\b/c", "a/b:", "a/b:../",
        "a:b/c",  "a/b:c:d", "a/b%2e", "~/a",   "a/~b",   "a//b", "models/b"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct hub_name name;
        if (hub_name_parse(&name, texts[i])) fail_msg("%s is taken for a name", texts[i]);
    }
    char long_name[300] = "a/";
    memset(long_name + 2, 'b', 97);
    struct hub_name name;
    assert_false(hub_name_parse(&name, long_name));
    long_name[98] = '\0';
    assert_true(hub_name_parse(&name, long_name));
}

static void test_revisions(void **state) {
    (void)state;
    static const char *const good[] = {"main", "v1.0", "refs/pr/3", COMMIT};
    static const char *const bad[] = {"",     "..",  "a/../b", "/a", "a/",
                                      "a//b", "a b", "a?b",    ".",  "a%2fb"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(hub_revision_check(good[i], NULL), OK);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (!hub_revision_check(bad[i], NULL)) fail_msg("%s is taken for a revision", bad[i]);
    }
}

static void test_file_names_of_a_list(void **state) {
    (void)state;
    static const char *const good[] = {"config.json", "a/b.gguf", ".gitattributes", "a..b"};
    static const char *const bad[] = {"",   "..", "../a",  "a/../b", "/etc/passwd", "a//b",
                                      "a/", ".",  "a/./b", "a\\b",   "a\nb",        "..."};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) assert_true(hub_file_name_is_safe(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (hub_file_name_is_safe(bad[i])) fail_msg("%s is taken for a file", bad[i]);
    }
}

// ---- which files ----

static void choose(const char *list, const char *quant, enum hub_want want, const char *wanted,
                   const char *gguf) {
    struct hub_files files = {0};
    struct hub_choice choice;
    struct err err = {0};
    char *names = strdup(list), *rest = names, *name, got[500] = "";
    while ((name = strtok_r(rest, " ", &rest)))
        assert_int_equal(hub_files_add(&files, name, &err), OK);
    hub_files_sort(&files);
    enum status status = hub_files_choose(&files, quant, want, &choice, "it", &err);
    if (!status && choice.has_shards) {
        status = hub_files_want_shards(&files, INDEX, strlen(INDEX), "it", &err);
    }
    for (size_t i = 0; i < files.count && !status; i++) {
        if (!files.items[i].is_wanted) continue;
        if (*got) strcat(got, " ");
        strcat(got, files.items[i].name);
    }
    assert_string_equal(status ? err.message : got, wanted);
    if (!status) assert_string_equal(choice.gguf ? choice.gguf : "", gguf);
    hub_files_fini(&files);
    free(names);
}

static void test_what_other_programs_need_is_left_out(void **state) {
    (void)state;
    choose(".gitattributes LICENSE README.md additional_chat_templates/rag.jinja config.json "
           "consolidated.safetensors generation_config.json hf_quant_config.json "
           "model.safetensors onnx/model.onnx "
           "original/config.json pytorch_model.bin tekken.json tiktoken.model tokenizer.json "
           "tokenizer_config.json",
           "", HUB_WANT_MODEL,
           "additional_chat_templates/rag.jinja config.json generation_config.json "
           "hf_quant_config.json model.safetensors tekken.json tiktoken.model tokenizer.json "
           "tokenizer_config.json",
           "");
}

static void test_shards_are_those_of_the_index(void **state) {
    (void)state;
    const char *list = "config.json consolidated.safetensors extra.safetensors model-1.safetensors "
                       "model-2.safetensors " HUB_INDEX_NAME " tokenizer.json";
    choose(list, "", HUB_WANT_MODEL,
           "config.json model-1.safetensors model-2.safetensors " HUB_INDEX_NAME " tokenizer.json",
           "");
    choose(list, "", HUB_WANT_TEXTS, "config.json tokenizer.json", "");
    choose("config.json model-1.safetensors " HUB_INDEX_NAME, "", HUB_WANT_MODEL,
           "it has no model-2.safetensors, which model.safetensors.index.json names", "");
}

static void test_a_list_without_weights(void **state) {
    (void)state;
    choose(
        "config.json pytorch_model.bin", "", HUB_WANT_MODEL,
        "it has neither model.safetensors nor a GGUF file; it has config.json, pytorch_model.bin",
        "");
    choose("config.json model.safetensors", "Q4_K_M", HUB_WANT_MODEL, "it has no GGUF file", "");
}

static void test_gguf_files(void **state) {
    (void)state;
    const char *list = "README.md m-IQ4_XS.gguf m-Q4_K_M.gguf m-Q8_0.gguf m-UD-Q4_K_M.gguf "
                       "m-imatrix.gguf mmproj-F16.gguf";
    choose(list, "", HUB_WANT_MODEL, "m-Q4_K_M.gguf", "m-Q4_K_M.gguf");
    choose(list, "q8_0", HUB_WANT_MODEL, "m-Q8_0.gguf", "m-Q8_0.gguf");
    choose(list, "UD-Q4_K_M", HUB_WANT_TEXTS, "m-UD-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf");
    choose(list, "m-IQ4_XS.gguf", HUB_WANT_MODEL, "m-IQ4_XS.gguf", "m-IQ4_XS.gguf");
    const char *mixed = "m-UD-IQ3_XXS.gguf m-UD-Q2_K_XL.gguf m-UD-TQ1_0.gguf "
                        "UD-IQ2_M/m-UD-IQ2_M-00001-of-00002.gguf "
                        "UD-IQ2_M/m-UD-IQ2_M-00002-of-00002.gguf";
    choose(mixed, "IQ3_XXS", HUB_WANT_MODEL, "m-UD-IQ3_XXS.gguf", "m-UD-IQ3_XXS.gguf");
    choose(mixed, "UD-Q2_K_XL", HUB_WANT_MODEL, "m-UD-Q2_K_XL.gguf", "m-UD-Q2_K_XL.gguf");
    choose(mixed, "tq1_0", HUB_WANT_MODEL, "m-UD-TQ1_0.gguf", "m-UD-TQ1_0.gguf");
    choose(mixed, "IQ2_M", HUB_WANT_MODEL,
           "UD-IQ2_M/m-UD-IQ2_M-00001-of-00002.gguf UD-IQ2_M/m-UD-IQ2_M-00002-of-00002.gguf",
           "UD-IQ2_M/m-UD-IQ2_M-00001-of-00002.gguf");
    choose(list, "K_M", HUB_WANT_MODEL,
           "it has no GGUF file of K_M: choose one of IQ4_XS, Q4_K_M, Q8_0, UD-Q4_K_M", "");
    choose("m-IQ4_XS.gguf m-Q3_K_S.gguf", "", HUB_WANT_MODEL,
           "it has several GGUF files: choose one of IQ4_XS, Q3_K_S", "");
    choose("config.json m-IQ4_XS.gguf", "", HUB_WANT_MODEL, "m-IQ4_XS.gguf", "m-IQ4_XS.gguf");
    choose("config.json m-Q8_0.gguf model.safetensors", "", HUB_WANT_MODEL,
           "config.json model.safetensors", "");
}

static void test_gguf_files_in_parts(void **state) {
    (void)state;
    choose("m-Q8_0-00002-of-00003.gguf m-Q4_0.gguf", "Q8_0", HUB_WANT_MODEL,
           "it has part 2 of 3, but not the first: m-Q8_0-00001-of-00003.gguf", "");
    choose("m-Q8_0-00003-of-00003.gguf", "", HUB_WANT_MODEL,
           "it has part 3 of 3, but not the first: m-Q8_0-00001-of-00003.gguf", "");
    choose("Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00002-of-00002.gguf m-Q4_0.gguf", "Q8_0",
           HUB_WANT_MODEL, "Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00002-of-00002.gguf",
           "Q8_0/m-Q8_0-00001-of-00002.gguf");
    choose("m-Q8_0-00001-of-00000.gguf", "", HUB_WANT_MODEL, "m-Q8_0-00001-of-00000.gguf",
           "m-Q8_0-00001-of-00000.gguf"); // no part of anything
    choose("m-Q8_0-00001-of-00002.gguf", "", HUB_WANT_MODEL, "it has no m-Q8_0-00002-of-00002.gguf",
           "");
}

// ---- the cache ----

struct cache {
    char path[128];
    char snapshot[256];
};

PRINTF_LIKE(2, 3)
static void shell(const struct cache *cache, const char *format, ...) {
    char script[1000], line[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(script, sizeof script, format, args);
    va_end(args);
    snprintf(line, sizeof line, "cd %s && %s", cache->path, script);
    assert_int_equal(system(line), 0); // NOLINT(cert-env33-c): a fixed text
}

// A model of two shards, as huggingface_hub writes it.
static void make_cache(struct cache *cache) {
    snprintf(cache->path, sizeof cache->path, "/tmp/test_hub_cache.XXXXXX");
    assert_non_null(mkdtemp(cache->path));
    snprintf(cache->snapshot, sizeof cache->snapshot, "%s/models--a--b/snapshots/" COMMIT,
             cache->path);
    shell(cache, "mkdir -p models--a--b/blobs models--a--b/refs models--a--b/snapshots/" COMMIT
                 " && printf " COMMIT " >models--a--b/refs/main");
    static const char *const names[] = {"config.json", "tokenizer.json", "model-1.safetensors",
                                        "model-2.safetensors"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        shell(cache, "echo {} >models--a--b/blobs/%zu && ln -s ../../blobs/%zu %s/%s", i, i,
              cache->snapshot, names[i]);
    }
    shell(cache, "echo '" INDEX "' >%s/" HUB_INDEX_NAME, cache->snapshot);
    setenv("HF_HUB_CACHE", cache->path, 1);
}

static void remove_cache(struct cache *cache) {
    shell(cache, "rm -r %s", cache->path);
    unsetenv("HF_HUB_CACHE");
}

// `want` is the path below the cache, or a part of the error.
static void finds(const struct cache *cache, const struct hub_request *request, const char *want) {
    char path[FILE_PATH_MAX] = "";
    struct err err = {0};
    enum status status = hub_find(path, request, NULL, &err);
    const char *got = status ? err.message : path + strlen(cache->path) + 1;
    if (!strstr(got, want)) fail_msg("%s: not %s", got, want);
    if (strncmp(want, "models--", 8) == 0) assert_int_equal(status, OK);
}

static void test_a_model_in_the_cache(void **state) {
    (void)state;
    struct cache cache;
    make_cache(&cache);
    struct hub_request request = {.model = "a/b"};
    const char *snapshot = "models--a--b/snapshots/" COMMIT;
    finds(&cache, &request, snapshot);
    request.revision = COMMIT;
    finds(&cache, &request, snapshot);
    request.revision = "v1";
    finds(&cache, &request, "has no revision v1");
    shell(&cache,
          "mkdir -p models--a--b/refs/refs/pr && printf " COMMIT " >models--a--b/refs/refs/pr/1");
    request.revision = "refs/pr/1";
    finds(&cache, &request, snapshot);
    request.revision = "../../x";
    finds(&cache, &request, "the revision is \"../../x\"");
    request = (struct hub_request){.model = "a/c"};
    finds(&cache, &request, "a/c is not a folder, and not in the Hugging Face cache");
    // Without refs the only snapshot is meant.
    shell(&cache, "rm -r models--a--b/refs");
    request.model = "a/b";
    finds(&cache, &request, snapshot);
    shell(&cache, "cp -a models--a--b/snapshots/" COMMIT " models--a--b/snapshots/" OTHER_COMMIT);
    finds(&cache, &request, "has no revision main");
    remove_cache(&cache);
}

static void test_a_path_comes_first(void **state) {
    (void)state;
    struct cache cache;
    make_cache(&cache);
    char *here = getcwd(NULL, 0), path[FILE_PATH_MAX];
    shell(&cache, "mkdir -p here/a/b");
    assert_int_equal(chdir(cache.path), 0);
    assert_int_equal(chdir("here"), 0);
    struct hub_request request = {.model = "a/b"};
    assert_int_equal(hub_find(path, &request, NULL, NULL), OK);
    assert_string_equal(path, "a/b");
    struct err err = {0};
    request.quant = "Q8_0";
    assert_int_equal(hub_find(path, &request, NULL, &err), ERR_INVALID);
    assert_string_equal(err.message, "quant is for a model by its name, and a/b is a path");
    assert_int_equal(chdir(here), 0);
    free(here);
    remove_cache(&cache);
}

static void test_a_model_that_is_there_in_part(void **state) {
    (void)state;
    struct cache cache;
    make_cache(&cache);
    struct hub_request request = {.model = "a/b"};
    shell(&cache, "rm models--a--b/blobs/3"); // the link dangles
    finds(&cache, &request, "model-2.safetensors is missing");
    shell(&cache, "rm %s/model-2.safetensors", cache.snapshot);
    finds(&cache, &request, "has no model-2.safetensors, which");
    request.want = HUB_WANT_TEXTS;
    finds(&cache, &request, "models--a--b/snapshots/" COMMIT);
    shell(&cache, "rm %s/config.json %s/tokenizer.json", cache.snapshot, cache.snapshot);
    finds(&cache, &request, "has no config.json");
    remove_cache(&cache);
}

static void test_links_out_of_the_cache_are_refused(void **state) {
    (void)state;
    struct cache cache;
    make_cache(&cache);
    struct hub_request request = {.model = "a/b"};
    shell(&cache, "ln -sf /etc/passwd %s/config.json", cache.snapshot);
    finds(&cache, &request, "config.json leads out of the cache, to /etc/passwd");
    shell(&cache, "ln -sf ../../blobs/0 %s/config.json", cache.snapshot);
    finds(&cache, &request, "models--a--b/snapshots/");
    shell(&cache, "rm models--a--b/blobs/0 && ln -s /etc/passwd models--a--b/blobs/0");
    finds(&cache, &request, "config.json leads out of the cache");
    // A whole model elsewhere, too.
    struct cache other = cache;
    make_cache(&other);
    shell(&cache, "rm -r models--a--b && ln -s %s/models--a--b .", other.path);
    setenv("HF_HUB_CACHE", cache.path, 1);
    finds(&cache, &request, "leads out of the cache");
    remove_cache(&other);
    remove_cache(&cache);
}

static void test_a_gguf_file_of_the_cache(void **state) {
    (void)state;
    struct cache cache;
    make_cache(&cache);
    struct hub_request request = {.model = "a/b:Q8_0"};
    finds(&cache, &request, "has no GGUF file");
    shell(&cache, "echo x >%s/b-Q8_0.gguf", cache.snapshot);
    finds(&cache, &request, "models--a--b/snapshots/" COMMIT "/b-Q8_0.gguf");
    request.quant = "q8_0";
    request.model = "a/b";
    finds(&cache, &request, "models--a--b/snapshots/" COMMIT "/b-Q8_0.gguf");
    request.model = "a/b:Q4_0";
    finds(&cache, &request, "a/b:Q4_0 names Q4_0, and quant is q8_0");
    remove_cache(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_is_no_name),
        cmocka_unit_test(test_revisions),
        cmocka_unit_test(test_file_names_of_a_list),
        cmocka_unit_test(test_what_other_programs_need_is_left_out),
        cmocka_unit_test(test_shards_are_those_of_the_index),
        cmocka_unit_test(test_a_list_without_weights),
        cmocka_unit_test(test_gguf_files),
        cmocka_unit_test(test_gguf_files_in_parts),
        cmocka_unit_test(test_a_model_in_the_cache),
        cmocka_unit_test(test_a_path_comes_first),
        cmocka_unit_test(test_a_model_that_is_there_in_part),
        cmocka_unit_test(test_links_out_of_the_cache_are_refused),
        cmocka_unit_test(test_a_gguf_file_of_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
