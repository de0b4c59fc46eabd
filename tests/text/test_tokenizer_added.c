// Added tokens of tokenizer_config.json and tokenizer.json together. The expected ids are those of
// transformers 5 for the same files.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/buf.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "text/tokenizer/tokenizer.h"

// Ids: a 0, b 1, " " 2, ab 3, <s> 4.
#define TOKENIZER(normalizer, added)                                                               \
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true, \"normalized\": "    \
    "false"                                                                                        \
    "}" added "], \"normalizer\": " normalizer ","                                                 \
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"                   \
    "  \"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"},"                             \
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"ab\": 3},"  \
    "  \"merges\": [\"a b\"]}}"
#define X5 ", {\"id\": 5, \"content\": \"<x>\", \"normalized\": false}"
#define SPECIAL_X5 ", {\"id\": 5, \"content\": \"<x>\", \"normalized\": false, \"special\": true}"
#define DECODER(tokens) "{\"added_tokens_decoder\": {" tokens "}}"

static enum status open_files(struct tokenizer **out, const char *tokenizer, const char *config,
                              const char *name, struct err *err) {
    struct temp_folder folder;
    char path[300];
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, name, tokenizer);
    if (config) temp_folder_write_text(&folder, "tokenizer_config.json", config);
    snprintf(path, sizeof path, "%s/%s", folder.path, name);
    enum status status = tokenizer_open_file(out, path, err);
    temp_folder_remove(&folder);
    return status;
}

// The ids of the text, and their text when special tokens are skipped.
static void check_file(const char *tokenizer_json, const char *config, const char *name,
                       const char *text, const char *expected, const char *skipped) {
    struct tokenizer *tokenizer;
    struct err err = {0};
    if (open_files(&tokenizer, tokenizer_json, config, name, &err)) fail_msg("%s", err.message);
    struct token_list ids = {0};
    struct buf out = {0}, decoded = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, NULL, &ids, NULL), OK);
    assert_int_equal(buf_append_str(&out, "", NULL), OK);
    for (size_t i = 0; i < ids.len; i++) {
        assert_int_equal(buf_appendf(&out, NULL, i ? " %d" : "%d", (int)ids.ids[i]), OK);
    }
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.len, true, &decoded, NULL), OK);
    if (strcmp(out.data, expected) != 0 || strcmp(decoded.data, skipped) != 0) {
        fail_msg("%s: %s gives %s and \"%s\", want %s and \"%s\"", config, text, out.data,
                 decoded.data, expected, skipped);
    }
    buf_fini(&out);
    buf_fini(&decoded);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
}

static void check(const char *tokenizer_json, const char *config, const char *text,
                  const char *expected, const char *skipped) {
    check_file(tokenizer_json, config, "tokenizer.json", text, expected, skipped);
}

static void test_tokens_only_there(void **state) {
    (void)state;
    const char *plain = TOKENIZER("null", "");
    check(plain, DECODER("\"5\": {\"content\": \"<x>\"}"), "a<x>b", "0 5 1", "a<x>b");
    check(
        plain,
        DECODER("\"6\": {\"content\": \"<y>\", \"special\": true}, \"5\": {\"content\": \"<x>\"}"),
        "a<x><y>b", "0 5 6 1", "a<x>b");
    check(plain, DECODER("\"5\": {\"content\": \"<x>\", \"lstrip\": true, \"rstrip\": true}"),
          "a <x> b", "0 5 1", "a<x>b");
    // A token of the model: no merge makes it, and none uses it.
    check(plain, DECODER("\"1\": {\"content\": \"b\", \"single_word\": true}"), "ab b", "3 2 1",
          "ab b");
    check(plain, DECODER("\"3\": {\"content\": \"ab\", \"__type\": \"AddedToken\"}"), "aab", "0 3",
          "aab");
}

// The first token takes the white space that the second one stands for, and leaves nothing of it.
static void test_a_token_that_another_has_taken_along(void **state) {
    (void)state;
    const char *config = DECODER("\"5\": {\"content\": \"<x>\", \"rstrip\": true},"
                                 " \"6\": {\"content\": \"\\n\", \"lstrip\": true}");
    check(TOKENIZER("null", ""), config, "<x>\na", "5 0", "<x>a");
    check(TOKENIZER("null", ""), config, "<x>a\nb", "5 0 6 1", "<x>a\nb");
}

static void test_tokens_in_both(void **state) {
    (void)state;
    const char *both = TOKENIZER("null", X5);
    check(both, DECODER("\"5\": {\"content\": \"<x>\", \"lstrip\": true}"), "a <x> b", "0 5 2 1",
          "a<x> b");
    check(both, DECODER("\"5\": {\"content\": \"<x>\", \"special\": true}"), "a<x>b", "0 5 1",
          "ab");
    check(TOKENIZER("null", SPECIAL_X5), DECODER("\"5\": {\"content\": \"<x>\"}"), "a<x>b", "0 5 1",
          "ab");
    check(both,
          "{\"eos_token\": \"<x>\", \"added_tokens_decoder\": {\"5\": {\"content\": \"<x>\"}}}",
          "a<x>b", "0 5 1", "ab");
    check(both,
          "{\"pad_token\": {\"content\": \"<x>\"},"
          " \"added_tokens_decoder\": {\"5\": {\"content\": \"<x>\"}}}",
          "a<x>b", "0 5 1", "ab");
}

// By default a special token is matched as written, and any other one in normalised text.
static void test_normalized_tokens(void **state) {
    (void)state;
    const char *a_for_b = TOKENIZER(
        "{\"type\": \"Replace\", \"pattern\": {\"String\": \"b\"}, \"content\": \"a\"}", "");
    check(a_for_b, DECODER("\"5\": {\"content\": \"<b>\"}"), "a<a><b>", "0 5 5", "a<a><a>");
    check(a_for_b, DECODER("\"5\": {\"content\": \"<b>\", \"special\": true}"), "a<b>", "0 5", "a");
}

static void test_no_such_file_or_member(void **state) {
    (void)state;
    const char *plain = TOKENIZER("null", "");
    check(plain, NULL, "ab", "3", "ab");
    check(plain, "{\"model_max_length\": 1000000000000000019884624838656}", "ab", "3", "ab");
    check(plain, "{\"added_tokens_decoder\": null}", "ab", "3", "ab");
    check_file(plain, DECODER("\"3\": {\"content\": \"b\"}"), "other.json", "ab", "3", "ab");
}

static void test_faults(void **state) {
    (void)state;
    static const struct {
        const char *config, *says;
    } faults[] = {
        {"{", "not valid JSON"},
        {"[]", "is a list, want an object"},
        {"{\"added_tokens_decoder\": []}", "\"added_tokens_decoder\" is a list, want an object"},
        {DECODER("\"x\": {\"content\": \"<x>\"}"), "the key \"x\", want an id"},
        {DECODER("\"05\": {\"content\": \"<x>\"}"), "the key \"05\", want an id"},
        {DECODER("\"99999999\": {\"content\": \"<x>\"}"), "the key \"99999999\", want an id"},
        {DECODER("\"5\": \"<x>\""), "token 5 is a string, want an object"},
        {DECODER("\"5\": {}"), "token 5 has no content"},
        {DECODER("\"5\": {\"content\": \"\"}"), "token 5 has no content"},
        {DECODER("\"5\": {\"content\": 5}"), "\"content\" is"},
        {DECODER("\"5\": {\"content\": \"<x>\", \"special\": 1}"), "\"special\" is"},
        {DECODER("\"5\": {\"content\": \"<x>\", \"lstripp\": true}"), "key \"lstripp\""},
        {DECODER("\"5\": {\"content\": \"<x>\"}, \"5\": {\"content\": \"<y>\"}"), "duplicate"},
        // Files whose ids differ from those that transformers gives are refused.
        {DECODER("\"7\": {\"content\": \"<x>\"}"), "\"<x>\" has id 7, but"},
        {DECODER("\"2\": {\"content\": \"<x>\"}"), "\"<x>\" has id 2, but"},
        {DECODER("\"1\": {\"content\": \"ab\"}"), "\"ab\" has id 1, but"},
        {DECODER("\"5\": {\"content\": \"<s>\"}"), "gives \"<s>\" the id 5, tokenizer.json 4"},
        {DECODER("\"5\": {\"content\": \"<x>\"}, \"6\": {\"content\": \"<x>\"}"), "appears twice"},
    };
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct tokenizer *tokenizer;
        struct err err = {0};
        enum status status =
            open_files(&tokenizer, TOKENIZER("null", ""), faults[i].config, "tokenizer.json", &err);
        if (status != ERR_FORMAT && status != ERR_UNSUPPORTED) {
            fail_msg("%s gives %s", faults[i].config, status_name(status));
        }
        assert_null(tokenizer);
        if (!strstr(err.message, "tokenizer_config.json") || !strstr(err.message, faults[i].says)) {
            fail_msg("%s says: %s", faults[i].config, err.message);
        }
    }
}

static void test_a_token_that_is_normalised_to_nothing_is_refused(void **state) {
    (void)state;
    static const char text[] =
        TOKENIZER("{\"type\": \"Replace\", \"pattern\": {\"String\": \"<x>\"}, \"content\": \"\"}",
                  ", {\"id\": 5, \"content\": \"<x>\"}");
    struct tokenizer *tokenizer;
    struct err err = {0};
    assert_int_equal(tokenizer_parse(&tokenizer, text, strlen(text), "t.json", &err),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "removes all of the added token \"<x>\""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_only_there),
        cmocka_unit_test(test_a_token_that_another_has_taken_along),
        cmocka_unit_test(test_tokens_in_both),
        cmocka_unit_test(test_normalized_tokens),
        cmocka_unit_test(test_no_such_file_or_member),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_a_token_that_is_normalised_to_nothing_is_refused),
    };
    return cmocka_run_group_tests_name("tokenizer_added", tests, NULL, NULL);
}
