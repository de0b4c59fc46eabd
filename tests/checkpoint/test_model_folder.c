/* The errors for a path that is not the folder of a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/file.h"
#include "checkpoint/model_folder.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

static void refused(const char *path, enum status status, const char *sentence) {
    struct err err = {0};
    assert_int_equal(model_folder_check(path, &err), status);
    if (!strstr(err.message, sentence)) fail_msg("%s: not %s", err.message, sentence);
}

static void test_a_folder_is_not_refused(void **state) {
    (void)state;
    assert_int_equal(model_folder_check("models/tiny-qwen3", NULL), OK);
}

static void test_a_name_that_nothing_has_says_how_to_get_a_model(void **state) {
    (void)state;
    const char *any = "this gets a model: nanovllm pull Qwen/Qwen3-0.6B";
    refused("nowhere", ERR_IO, any);
    refused("/nowhere/model", ERR_IO, any);
    refused("./nowhere/model", ERR_IO, any);
    refused("nowhere/a/model", ERR_IO, any);
    refused("nowhere/", ERR_IO, any);
    refused("no where/model", ERR_IO, any);
    refused("models/tiny-quen", ERR_IO, any); // models is a folder here: a misspelled path
    char *here = getcwd(NULL, 0);
    assert_int_equal(chdir("/"), 0); // where it is none, as outside of the source
    refused("models/tiny-qwen3", ERR_IO, any);
    assert_int_equal(chdir(here), 0);
    free(here);
    refused("missing.gguf", ERR_IO, any);
}

static void test_a_file_is_named_by_its_format(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    static const struct {
        const char *name, *sentence;
        enum status status;
    } cases[] = {
        {"m.gguf", "m.gguf is a file of llama.cpp's format", ERR_UNSUPPORTED},
        {"m.bin", "m.bin is a file of PyTorch's format", ERR_UNSUPPORTED},
        {"m.pth", "m.pth is a file of PyTorch's format", ERR_UNSUPPORTED},
        {"m.onnx", "m.onnx is a file of ONNX's format", ERR_UNSUPPORTED},
        {"m.safetensors", "is not a folder; want the one with config.json", ERR_IO},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[256];
        temp_folder_write_text(&folder, cases[i].name, "");
        assert_int_equal(file_join(path, sizeof path, folder.path, cases[i].name, NULL), OK);
        refused(path, cases[i].status, cases[i].sentence);
    }
    refused("/dev/null", ERR_IO, "/dev/null is not a regular file");
    temp_folder_remove(&folder);
}

static void test_a_folder_without_a_model_is_explained(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    struct err err = {0};
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), OK);
    temp_folder_write_text(&folder, "m.Q4_K_M.gguf", "");
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), ERR_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "has no config.json; it has m.Q4_K_M.gguf, which is llama"));
    static const char *const parts[] = {"a-00002-of-00003.gguf", "a-00001-of-00003.gguf",
                                        "a-00003-of-00003.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) temp_folder_write_text(&folder, parts[i], "");
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "it has a-00001-of-00003.gguf")); // the one to give
    temp_folder_remove(&folder);
}

static void make_folder(const struct temp_folder *folder, const char *name, char path[256]) {
    assert_int_equal(file_join(path, 256, folder->path, name, NULL), OK);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void write_config(const char *folder, char path[256]) {
    assert_int_equal(file_join(path, 256, folder, "config.json", NULL), OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void write_main(const struct temp_folder *folder, const char *text) {
    char path[256];
    assert_int_equal(file_join(path, sizeof path, folder->path, "refs/main", NULL), OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void test_a_lora_adapter_is_named(void **state) {
    (void)state;
    struct temp_folder folder;
    struct err err = {0};
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "adapter_config.json", "{}");
    temp_folder_write_text(&folder, "adapter_model.bin", "");
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "has no config.json; it is a LoRA adapter"));
    temp_folder_remove(&folder);
}

static void test_the_model_in_a_cache_of_the_hub_is_found(void **state) {
    (void)state;
    struct temp_folder folder;
    char snapshots[256], one[256], other[256], config[256], config_of_other[256];
    char refs[256], refs_main[256];
    temp_folder_create(&folder);
    make_folder(&folder, "snapshots", snapshots);
    make_folder(&folder, "snapshots/c0ffee", one);
    struct err err = {0};
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), OK);
    write_config(one, config);
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), ERR_IO);
    assert_non_null(strstr(err.message, "the model is in /"));
    assert_non_null(strstr(err.message, "/snapshots/c0ffee"));
    make_folder(&folder, "snapshots/beef", other); // of two snapshots neither is named
    write_config(other, config_of_other);
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), OK);
    make_folder(&folder, "refs", refs); // unless one of them is main
    write_main(&folder, "beef\n");
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), ERR_IO);
    assert_non_null(strstr(err.message, "/snapshots/beef"));
    write_main(&folder, "../../beef");
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), OK);
    write_main(&folder, "");
    assert_int_equal(model_folder_explain(folder.path, "config.json", &err), OK);
    assert_int_equal(file_join(refs_main, 256, folder.path, "refs/main", NULL), OK);
    unlink(refs_main);
    rmdir(refs);
    unlink(config);
    unlink(config_of_other);
    rmdir(one);
    rmdir(other);
    rmdir(snapshots);
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_is_not_refused),
        cmocka_unit_test(test_a_name_that_nothing_has_says_how_to_get_a_model),
        cmocka_unit_test(test_a_file_is_named_by_its_format),
        cmocka_unit_test(test_a_folder_without_a_model_is_explained),
        cmocka_unit_test(test_a_lora_adapter_is_named),
        cmocka_unit_test(test_the_model_in_a_cache_of_the_hub_is_found),
    };
    return cmocka_run_group_tests_name("model_folder", tests, NULL, NULL);
}
