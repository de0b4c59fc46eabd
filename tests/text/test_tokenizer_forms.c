// Forms of a tokenizer in place of tokenizer.json. The ids are those of the form's own package
// (tests/reference/make_tokenizer_forms.py); files that are wrong are refused with one sentence.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "support/tokenizer_fixture.h"

#define FORMS "tests/reference/data/tokenizer-forms/"

static char *read_form(const char *name) {
    struct buf text = {0};
    char path[200];
    snprintf(path, sizeof path, FORMS "%s", name);
    assert_int_equal(file_read(&text, path, NULL), OK);
    return text.data;
}

// A folder with the form's file and, where there is one, its tokenizer_config.json.
static void make_folder(struct temp_folder *folder, const char *form, const char *text,
                        const char *config) {
    temp_folder_create(folder);
    temp_folder_write_text(folder, form, text);
    if (config) temp_folder_write_text(folder, "tokenizer_config.json", config);
}

static enum status open_in(struct tokenizer **out, const struct temp_folder *folder,
                           const char *name, struct err *err) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder->path, name);
    return tokenizer_open_file(out, path, err);
}

static void check_cases(const char *form, const char *path) {
    json_t *all = fixture_json(FORMS "cases.json");
    const json_t *cases = json_object_get(all, form);
    struct tokenizer *tokenizer = fixture_open(path);
    assert_true(json_array_size(cases) > 5);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i), *ids = json_object_get(item, "ids");
        const json_t *text = json_object_get(item, "text");
        fixture_check_ids(tokenizer, text, true, ids, form);
        fixture_check_decoded(tokenizer, ids, true, text, form);
    }
    tokenizer_close(tokenizer);
    json_decref(all);
}

static void check_special(const struct tokenizer *tokenizer, const char *text, int32_t want,
                          bool is_special) {
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, NULL, &ids, NULL), OK);
    if (ids.len != 1 || ids.ids[0] != want) fail_msg("%s has other ids", text);
    assert_int_equal(tokenizer_token_is_special(tokenizer, want), is_special);
    token_list_fini(&ids);
}

static void test_tekken(void **state) {
    (void)state;
    check_cases("tekken.json", FORMS "tekken.json");
    struct tokenizer *tokenizer = fixture_open(FORMS "tekken.json");
    assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
    check_special(tokenizer, "</s>", 2, true);
    check_special(tokenizer, "[THINK]", 5, false);
    check_special(tokenizer, "<SPECIAL_9>", 9, true); // has no name in the file
    tokenizer_close(tokenizer);
}

// Files up to version 7 may leave their special tokens to a list that all of them share.
static void test_tekken_without_special_tokens(void **state) {
    (void)state;
    char *text = read_form("tekken.json");
    char *version = strstr(text, "\"v11\""), *special = strstr(text, "\"special_tokens\"");
    memcpy(version, "\"v3\" ", 5);
    memcpy(special, "\"passed_overly\"", 15);
    special[15] = ' ';
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    make_folder(&folder, "tekken.json", text, NULL);
    if (open_in(&tokenizer, &folder, "tokenizer.json", &err)) fail_msg("%s", err.message);
    check_special(tokenizer, "[TOOL_CALLS]", 9, true);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
    free(text);
}

// tokenizer.json wins; the form is read where its own file is named.
static void test_both(void **state) {
    (void)state;
    char *text = read_form("tekken.json");
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    make_folder(&folder, "tekken.json", text, NULL);
    assert_int_equal(open_in(&tokenizer, &folder, "tokenizer.json", NULL), OK);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
    tokenizer_close(tokenizer);
    temp_folder_write_text(&folder, "tokenizer.json",
                           "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []},"
                           " \"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\":"
                           " \"ByteLevel\"}}");
    assert_int_equal(open_in(&tokenizer, &folder, "tokenizer.json", NULL), OK);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 1);
    tokenizer_close(tokenizer);
    assert_int_equal(open_in(&tokenizer, &folder, "tekken.json", NULL), OK);
    assert_int_equal(tokenizer_num_tokens(tokenizer), 390);
    tokenizer_close(tokenizer);
    temp_folder_remove(&folder);
    free(text);
}

struct fault {
    const char *from, *to; // the first `from` of the file becomes `to`; NULL: the file is `to`
    const char *says;
};

static void check_fault(const char *form, const char *text, const char *config,
                        const struct fault *fault) {
    struct temp_folder folder;
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    const char *at = fault->from ? strstr(text, fault->from) : text;
    if (!at) fail_msg("%s is not in %s", fault->from, form);
    struct buf changed = {0};
    size_t before = (size_t)(at - text);
    assert_int_equal(buf_append(&changed, text, fault->from ? before : 0, NULL), OK);
    assert_int_equal(buf_append_str(&changed, fault->to, NULL), OK);
    if (fault->from) assert_int_equal(buf_append_str(&changed, at + strlen(fault->from), NULL), OK);
    make_folder(&folder, form, changed.data, config);
    enum status status = open_in(&tokenizer, &folder, "tokenizer.json", &err);
    if (status != ERR_FORMAT && status != ERR_UNSUPPORTED) {
        fail_msg("%s: %s is read", form, fault->to);
    }
    if (!strstr(err.message, fault->says) || !strstr(err.message, form)) {
        fail_msg("%s, want %s", err.message, fault->says);
    }
    temp_folder_remove(&folder);
    buf_fini(&changed);
}

static void test_tekken_faults(void **state) {
    (void)state;
    static const struct fault faults[] = {
        {NULL, "", "is not valid JSON"},
        {NULL, "[]", "\"config\" is"},
        {NULL, "{\"config\": {}}", "config has no \"pattern\""},
        {"\"pattern\": \"", "\"pattern\": \"(", "pattern"},
        {"\"pattern\": \"", "\"pattern\": \"\\u0000", "NUL"},
        {"\"default_vocab_size\": 390", "\"default_vocab_size\": 99999999999",
         "default_vocab_size"},
        {"\"default_vocab_size\": 390", "\"default_vocab_size\": 4000000", "at least 3999990"},
        {"\"default_vocab_size\": 390", "\"default_vocab_size\": 10", "all of the 10 ids"},
        {"\"default_vocab_size\": 390", "\"default_vocab_size\": 100", "byte 0x5a has no token"},
        {"special_tokens\": 10", "special_tokens\": 999999999", "special_tokens"},
        {"\"vocab\": [", "\"vocab\": 1, \"other\": [", "\"vocab\" is no list"},
        {"{\"rank\": 1,", "{\"rank\": 2,", "another rank than its place"},
        {"\"token_bytes\": \"AQ==\"", "\"token_bytes\": null", "has no bytes"},
        {"\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"AQ\"", "not in base64"},
        {"\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"AR==\"", "not in base64"},
        {"\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"A*==\"", "not in base64"},
        {"\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"\"", "not in base64"},
        {"\"token_bytes\": \"AQ==\"", "\"token_bytes\": \"AAA=\"", "byte 0x01 has no token"},
        {"\"token_str\": \"a\"", "\"token_str\": \"\xff\"", "unable to decode byte 0xff"},
        {"\"special_tokens\": [", "\"special_tokens\": [1, ", "want an object"},
        {"\"token_str\": \"</s>\"", "\"token_str\": \"<s>\"", "appears twice"},
        {"\"token_str\": \"</s>\"", "\"token_str\": \"the\"", "appears twice"},
        {"\"rank\": 2, \"token_str\": \"</s>\"", "\"rank\": 1, \"token_str\": \"</s>\"",
         "the rank of another"},
        {"\"token_str\": \"<s>\"", "\"token_str\": \"<begin>\"", "no special token <s>"},
        {"\"special_tokens\"", "\"none\"", "version \"v11\" has no list"},
    };
    char *text = read_form("tekken.json");
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        check_fault("tekken.json", text, NULL, &faults[i]);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tekken),
        cmocka_unit_test(test_tekken_without_special_tokens),
        cmocka_unit_test(test_both),
        cmocka_unit_test(test_tekken_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
