// Sampling parameters that are lists or maps: what they take, their bounds, and who owns the
// memory.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/buf.h"
#include "engine/params/params.h"
#include "support/cmocka_all.h"
#include "support/params_fixture.h"

static void test_stop_takes_a_string_or_a_list(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "stop", "</answer> or so");
    assert_int_equal(params.num_stop, 1);
    assert_string_equal(params.stop[0], "</answer> or so");
    set_ok(&params, "stop", "\"\\n\\n\"");
    assert_int_equal(params.num_stop, 1);
    assert_string_equal(params.stop[0], "\n\n");
    set_ok(&params, "stop", "[\"a\", \"\xc3\xa9\", \"END\"]");
    assert_int_equal(params.num_stop, 3);
    assert_string_equal(params.stop[0], "a");
    assert_string_equal(params.stop[1], "\xc3\xa9");
    assert_string_equal(params.stop[2], "END");
    set_ok(&params, "stop", "[]");
    assert_int_equal(params.num_stop, 0);
    params_fini_sampling(&params);

    set_refused("stop", "", "entry 0 of stop is empty");
    set_refused("stop", "[\"a\", \"\"]", "entry 1 of stop is empty");
    set_refused("stop", "[\"a\", 5]", "entry 1 of stop is an integer, want a string");
    set_refused("stop", "5", "stop is 5, want a string (in quotes) or a list of strings");
    set_refused("stop", "[\"a\"", "stop is [\"a\", want a string or a list of strings");
    set_refused("stop", "\"a", "stop is \"a, want a string or a list of strings");
    set_refused("stop", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
                "stop has 17 entries, want at most 16");
    set_refused("stop", "\"a\\u0000b\"",
                "entry 0 of stop has a NUL character, which none may have");
}

static void test_stop_strings_are_bounded(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    static char text[(128 << 10) + 2];
    memset(text, 's', sizeof text - 1);
    text[1024] = '\0';
    set_ok(&params, "stop", text);
    assert_int_equal(strlen(params.stop[0]), 1024);
    text[1024] = 's';
    text[1025] = '\0';
    set_refused("stop", text, "entry 0 of stop is longer than 1024 bytes");
    char list[1100];
    snprintf(list, sizeof list, "[\"a\", \"%.1060s\"]", text);
    set_refused("stop", list, "entry 1 of stop is longer than 1024 bytes");
    text[1025] = 's';
    set_refused("stop", text, "stop is longer than 128 KiB");
    set_refused("logit_bias", text, "logit_bias is longer than 128 KiB");
    params_fini_sampling(&params);
    const char *stops[] = {"a", text}; // a C caller's, not looked through to its end
    params.stop = stops;
    params.num_stop = 2;
    struct err err = {0};
    assert_int_equal(params_check_sampling(&params, &err), ERR_INVALID);
    assert_string_equal(err.message, "entry 1 of stop is longer than 1024 bytes");
}

// The longest lists within their bounds, written as long as JSON allows, are within the text's.
static void test_longest_lists_fit(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct buf text = {0};
    for (int i = 0; i < 16; i++) {
        assert_int_equal(buf_append_str(&text, i ? ",\"" : "[\"", NULL), OK);
        for (int k = 0; k < 1024; k++) assert_int_equal(buf_append_str(&text, "\\u0041", NULL), OK);
        assert_int_equal(buf_append_str(&text, "\"", NULL), OK);
    }
    assert_int_equal(buf_append_str(&text, "]", NULL), OK);
    set_ok(&params, "stop", text.data);
    assert_int_equal(params.num_stop, 16);
    buf_clear(&text);
    for (int i = 0; i < 1024; i++) {
        assert_int_equal(buf_appendf(&text, NULL, "%s\"%d\":-0.00000012345678901234567",
                                     i ? "," : "{", 2000000000 + i),
                         OK);
    }
    assert_int_equal(buf_append_str(&text, "}", NULL), OK);
    set_ok(&params, "logit_bias", text.data);
    assert_int_equal(params.num_logit_bias, 1024);
    buf_clear(&text);
    struct buf piece = {0}; // a list's longest text, or many ids
    for (int k = 0; k < 256; k++) assert_int_equal(buf_append_str(&piece, "\\u0041", NULL), OK);
    for (int i = 0; i < 1024; i++) {
        assert_int_equal(buf_appendf(&text, NULL, "%s\"%s\"", i ? ", " : "[", piece.data), OK);
    }
    assert_int_equal(buf_append_str(&text, "]", NULL), OK);
    set_ok(&params, "bad_words", text.data);
    assert_int_equal(params.num_bad_words, 1024);
    buf_clear(&text);
    buf_clear(&piece);
    for (int i = 0; i < 1 << 9; i++) {
        assert_int_equal(buf_appendf(&piece, NULL, "%s%d", i ? ", " : "", 2000000000 + i), OK);
    }
    for (int i = 0; i < 1 << 9; i++) {
        assert_int_equal(buf_appendf(&text, NULL, "%s%s", i ? ", " : "[", piece.data), OK);
    }
    assert_int_equal(buf_append_str(&text, "]", NULL), OK);
    set_ok(&params, "allowed_token_ids", text.data);
    assert_int_equal(params.num_allowed_token_ids, 1 << 18);
    buf_fini(&piece);
    buf_fini(&text);
    params_fini_sampling(&params);
}

static void test_stop_token_ids_take_a_list(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "stop_token_ids", "[7, 0, 2147483647]");
    assert_int_equal(params.num_stop_token_ids, 3);
    assert_int_equal(params.stop_token_ids[0], 7);
    assert_int_equal(params.stop_token_ids[1], 0);
    assert_int_equal(params.stop_token_ids[2], INT32_MAX);
    params_fini_sampling(&params);

    set_refused("stop_token_ids", "7", "stop_token_ids is 7, want a list of token ids");
    set_refused("stop_token_ids", "[7", "stop_token_ids is [7, want a list of token ids");
    set_refused("stop_token_ids", "[7, \"8\"]",
                "entry 1 of stop_token_ids is a string, want a token id");
    set_refused("stop_token_ids", "[7.0]",
                "entry 0 of stop_token_ids is a real number, want a token id");
    set_refused("stop_token_ids", "[-1]",
                "entry 0 of stop_token_ids is -1, want a token id from 0 to 2147483647");
    set_refused("stop_token_ids", "[2147483648]",
                "entry 0 of stop_token_ids is 2147483648, want a token id from 0 to 2147483647");
}

static void test_allowed_token_ids_take_a_list(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "allowed_token_ids", "[7, 2147483647]");
    assert_int_equal(params.num_allowed_token_ids, 2);
    assert_int_equal(params.allowed_token_ids[0], 7);
    assert_int_equal(params.allowed_token_ids[1], INT32_MAX);
    assert_int_equal(params.num_stop_token_ids, 0);
    params_fini_sampling(&params);
    // No token at all would be another wish than the default, every token.
    set_refused("allowed_token_ids", "[]", "allowed_token_ids is empty, want at least one entry");
    set_refused("allowed_token_ids", "7", "allowed_token_ids is 7, want a list of token ids");
    set_refused("allowed_token_ids", "[7, -1]",
                "entry 1 of allowed_token_ids is -1, want a token id from 0 to 2147483647");
    static int32_t many[(1 << 18) + 1];
    struct err err = {0};
    params.allowed_token_ids = many;
    params.num_allowed_token_ids = 1 << 18;
    assert_int_equal(params_check_sampling(&params, &err), OK);
    params.num_allowed_token_ids++;
    assert_int_equal(params_check_sampling(&params, &err), ERR_INVALID);
    assert_string_equal(err.message, "allowed_token_ids has 262145 entries, want at most 262144");
    params.allowed_token_ids = NULL;
    params.num_allowed_token_ids = 3;
    assert_int_equal(params_check_sampling(&params, &err), ERR_INVALID);
    assert_string_equal(err.message, "allowed_token_ids is NULL with 3 entries");
}

static void test_bad_words_take_a_string_or_a_list(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "bad_words", "a word");
    assert_int_equal(params.num_bad_words, 1);
    assert_string_equal(params.bad_words[0], "a word");
    set_ok(&params, "bad_words", "[\"one\", \"two\"]");
    assert_int_equal(params.num_bad_words, 2);
    assert_string_equal(params.bad_words[1], "two");
    assert_int_equal(params.num_stop, 0);
    set_ok(&params, "bad_words", "[]");
    assert_int_equal(params.num_bad_words, 0);
    params_fini_sampling(&params);
    set_refused("bad_words", "[\"\"]", "entry 0 of bad_words is empty");
    set_refused("bad_words", "[1]", "entry 0 of bad_words is an integer, want a string");
    char text[258];
    memset(text, 'w', sizeof text - 1);
    text[257] = '\0';
    set_refused("bad_words", text, "entry 0 of bad_words is longer than 256 bytes");
    const char *words[] = {"a", NULL};
    params.bad_words = words;
    params.num_bad_words = 2;
    struct err err = {0};
    assert_int_equal(params_check_sampling(&params, &err), ERR_INVALID);
    assert_string_equal(err.message, "entry 1 of bad_words is NULL");
}

static void test_logit_bias_takes_a_map(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "logit_bias", "{\"12\": -100, \"0\": 2.5, \"9\": \"-inf\"}");
    assert_int_equal(params.num_logit_bias, 3);
    assert_int_equal(params.logit_bias[0].token_id, 12);
    assert_true(params.logit_bias[0].bias == -100.0f);
    assert_int_equal(params.logit_bias[1].token_id, 0);
    assert_true(params.logit_bias[1].bias == 2.5f);
    assert_int_equal(params.logit_bias[2].token_id, 9);
    assert_true(isinf(params.logit_bias[2].bias) && params.logit_bias[2].bias < 0);
    set_ok(&params, "logit_bias", "{}");
    assert_int_equal(params.num_logit_bias, 0);
    params_fini_sampling(&params);

    set_refused("logit_bias", "[1]", "logit_bias is [1], want a map of token ids to biases");
    set_refused("logit_bias", "{\"x\": 1}", "logit_bias has the key \"x\", want a token id");
    set_refused("logit_bias", "{\"-1\": 1}", "logit_bias has the key \"-1\", want a token id");
    set_refused("logit_bias", "{\"01\": 1}", "logit_bias has the key \"01\", want a token id");
    set_refused("logit_bias", "{\"2147483648\": 1}",
                "logit_bias has the key \"2147483648\", want a token id");
    set_refused("logit_bias", "{\"\": 1}", "logit_bias has the key \"\", want a token id");
    set_refused("logit_bias", "{\"1\": 101}",
                "logit_bias of token 1 is 101, want a number from -100 to 100 or \"-inf\"");
    set_refused("logit_bias", "{\"1\": \"inf\"}",
                "logit_bias of token 1 is a string, want a number or \"-inf\"");
    set_refused("logit_bias", "{\"1\": 1, \"1\": 2}",
                "logit_bias is {\"1\": 1, \"1\": 2}, want a map of token ids to biases");
}

static void test_a_refused_list_keeps_the_old_one(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "stop", "[\"a\", \"b\"]");
    set_ok(&params, "stop_token_ids", "[3]");
    set_ok(&params, "logit_bias", "{\"4\": 1}");
    assert_int_equal(params_set_sampling(&params, "stop", "[1]", NULL), ERR_INVALID);
    assert_int_equal(params_set_sampling(&params, "stop_token_ids", "[-1]", NULL), ERR_INVALID);
    assert_int_equal(params_set_sampling(&params, "logit_bias", "{\"a\":1}", NULL), ERR_INVALID);
    assert_int_equal(params.num_stop, 2);
    assert_string_equal(params.stop[1], "b");
    assert_int_equal(params.stop_token_ids[0], 3);
    assert_int_equal(params.logit_bias[0].token_id, 4);
    params_fini_sampling(&params);
}

// How a line of JSON overrides the flags: a copy without ownership borrows the lists it does not
// set.
static void test_a_copy_can_borrow_lists(void **state) {
    (void)state;
    struct nvllm_sampling_params base = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&base, "stop", "[\"a\", \"b\"]");
    set_ok(&base, "stop_token_ids", "[3]");
    struct nvllm_sampling_params copy = base;
    copy.owned = NULL;
    set_ok(&copy, "stop", "c");
    assert_string_equal(copy.stop[0], "c");
    assert_int_equal(copy.stop_token_ids[0], 3);
    params_fini_sampling(&copy);
    assert_string_equal(base.stop[1], "b");
    assert_int_equal(base.stop_token_ids[0], 3);
    struct nvllm_sampling_params moved = base; // ownership moves with the struct
    params_fini_sampling(&moved);
    params_fini_sampling(NULL);
}

// Only what is parsed already can have a NUL here, or be longer than a text may be.
static void test_parsed_values(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct err err = {0};
    json_t *biases = NULL;
    const char text[] = "{\"5\": \"-inf\\u0000\"}";
    assert_int_equal(jread_request(&biases, text, sizeof text - 1, "biases", NULL), OK);
    assert_int_equal(params_set_sampling_json(&params, "logit_bias", biases, &err), ERR_INVALID);
    assert_string_equal(err.message,
                        "logit_bias of token 5 is a string, want a number or \"-inf\"");
    json_decref(biases);
    static char long_text[129 << 10];
    memset(long_text, 'x', sizeof long_text - 1);
    json_t *stop = json_string(long_text);
    assert_int_equal(params_set_sampling_json(&params, "stop", stop, &err), ERR_INVALID);
    assert_string_equal(err.message, "stop is longer than 128 KiB");
    json_decref(stop);
    assert_defaults(&params);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_takes_a_string_or_a_list),
        cmocka_unit_test(test_stop_strings_are_bounded),
        cmocka_unit_test(test_longest_lists_fit),
        cmocka_unit_test(test_stop_token_ids_take_a_list),
        cmocka_unit_test(test_allowed_token_ids_take_a_list),
        cmocka_unit_test(test_bad_words_take_a_string_or_a_list),
        cmocka_unit_test(test_logit_bias_takes_a_map),
        cmocka_unit_test(test_a_refused_list_keeps_the_old_one),
        cmocka_unit_test(test_a_copy_can_borrow_lists),
        cmocka_unit_test(test_parsed_values),
    };
    cmocka_set_skip_filter(getenv("NANOVLLM_TEST_SKIP"));
    return cmocka_run_group_tests_name("params_list", tests, NULL, NULL);
}
