// The tokenizer against Hugging Face tokenizers' ids of the same texts, and its own promises: any
// bytes can be encoded, threads do not disturb each other, time is linear.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"

static void check_vectors(const struct tokenizer *tokenizer, const char *path) {
    json_t *vectors = fixture_json(path);
    size_t i;
    json_t *line;
    assert_true(json_array_size(vectors) > 100);
    json_array_foreach(vectors, i, line) {
        char name[300];
        snprintf(name, sizeof name, "%s, line %zu", path, i);
        const json_t *ids = json_object_get(line, "ids");
        fixture_check_ids(tokenizer, json_object_get(line, "text"), false, ids, name);
        fixture_check_decoded(tokenizer, ids, false, json_object_get(line, "decoded"), name);
        fixture_check_decoded(tokenizer, ids, true, json_object_get(line, "decoded_skip_special"),
                              name);
    }
    json_decref(vectors);
}

static void test_bundled_model_as_recorded(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    check_vectors(tokenizer, TINY_VECTORS);
    tokenizer_close(tokenizer);
}

static void test_qwen3_as_recorded(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open_published(QWEN3_TOKENIZER);
    check_vectors(tokenizer, QWEN3_VECTORS);
    tokenizer_close(tokenizer);
}

static void test_variants_as_recorded(void **state) {
    (void)state;
    json_t *variants = fixture_json("tests/reference/data/tokenizer_variants.json");
    size_t i, k;
    json_t *variant, *line;
    assert_true(json_array_size(variants) > 20);
    json_array_foreach(variants, i, variant) {
        const char *name = json_string_value(json_object_get(variant, "name"));
        json_t *root = fixture_changed(json_object_get(variant, "change"));
        struct tokenizer *tokenizer = fixture_parse(root);
        json_array_foreach(json_object_get(variant, "cases"), k, line) {
            const json_t *text = json_object_get(line, "text");
            const json_t *ids = json_object_get(line, "ids");
            fixture_check_ids(tokenizer, text, true, ids, name);
            fixture_check_ids(tokenizer, text, false, json_object_get(line, "plain_ids"), name);
            fixture_check_decoded(tokenizer, ids, false, json_object_get(line, "decoded"), name);
            fixture_check_decoded(tokenizer, ids, true,
                                  json_object_get(line, "decoded_skip_special"), name);
        }
        tokenizer_close(tokenizer);
        json_decref(root);
    }
    json_decref(variants);
}

// "a b" and ["a", "b"] are the same merge.
static void test_merges_as_strings(void **state) {
    (void)state;
    json_t *root = fixture_json(TINY_TOKENIZER);
    json_t *model = json_object_get(root, "model");
    json_t *strings = json_array();
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(model, "merges"), i, pair) {
        json_array_append_new(strings,
                              json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                                           json_string_value(json_array_get(pair, 1))));
    }
    json_object_set_new(model, "merges", strings);
    struct tokenizer *tokenizer = fixture_parse(root);
    check_vectors(tokenizer, TINY_VECTORS);
    tokenizer_close(tokenizer);
    json_decref(root);
}

static void encode(const struct tokenizer *tokenizer, const char *text, size_t len,
                   struct token_list *out) {
    struct err err = {0};
    if (tokenizer_encode(tokenizer, text, len, false, NULL, out, &err)) fail_msg("%s", err.message);
}

static void test_invalid_utf8_is_replaced(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    static const char
        broken[] = "a\xff\xe4\xb8z\xed\xa0\x80\xf0\x9f",
        repaired[] = "a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd";
    struct token_list a = {0}, b = {0};
    encode(tokenizer, broken, sizeof broken - 1, &a);
    encode(tokenizer, repaired, sizeof repaired - 1, &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.ids, b.ids, a.len * sizeof *a.ids);
    token_list_fini(&a);
    token_list_fini(&b);
    tokenizer_close(tokenizer);
}

static void test_text_may_hold_nul(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct token_list ids = {0};
    struct buf text = {0};
    encode(tokenizer, "a\0b", 3, &ids);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.len, false, &text, NULL), OK);
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.data, "a\0b", 3);
    token_list_fini(&ids);
    buf_fini(&text);
    tokenizer_close(tokenizer);
}

// Answers yes once it was asked as often as `user_data` says.
static int count_down(void *user_data) {
    int *left = user_data;
    return --*left <= 0;
}

// A text of many words, and one long word whose joins take long.
static void test_interrupt_ends_an_encode(void **state) {
    (void)state;
    enum { LEN = 16 << 20 };
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct token_list ids = {0};
    char *text = malloc(LEN);
    assert_non_null(text);
    static const char *const fills[] = {"a word ", "abcabd"};
    for (size_t i = 0; i < ARRAY_LEN(fills); i++) {
        size_t period = strlen(fills[i]);
        for (size_t at = 0; at < LEN; at++) text[at] = fills[i][at % period];
        int left = 3;
        struct interrupt interrupt = {.is_wanted = count_down, .user_data = &left};
        struct err err = {0};
        assert_int_equal(tokenizer_encode(tokenizer, text, LEN, false, &interrupt, &ids, &err),
                         ERR_INTERRUPTED);
        assert_int_equal(left, 0); // it was not asked again after the first yes
        assert_int_equal(ids.len, 0);
    }
    free(text);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
}

static int count_asks(void *user_data) {
    int *num_asks = user_data;
    ++*num_asks;
    return 0;
}

// Texts of the test above: they are not encoded to their ends, nor is the long word joined.
static void test_limit_ends_an_encode(void **state) {
    (void)state;
    enum { LEN = 16 << 20, LEN_MAX = 1000 };
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    char *text = malloc(LEN);
    assert_non_null(text);
    static const char *const fills[] = {"a word ", "abcabd"};
    for (size_t i = 0; i < ARRAY_LEN(fills); i++) {
        size_t period = strlen(fills[i]);
        for (size_t at = 0; at < LEN; at++) text[at] = fills[i][at % period];
        int num_asks = 0;
        struct token_list ids = {.len_max = LEN_MAX};
        struct interrupt interrupt = {.is_wanted = count_asks, .user_data = &num_asks};
        struct err err = {0};
        assert_int_equal(tokenizer_encode(tokenizer, text, LEN, false, &interrupt, &ids, &err),
                         ERR_CAPACITY);
        assert_in_range(num_asks, 0, 1); // the word's length is asked for before it is joined
        assert_int_equal(ids.len, 0);
        // One that fits, and one that has a few more: the caller is to count.
        assert_int_equal(tokenizer_encode(tokenizer, text, 900, false, NULL, &ids, &err), OK);
        assert_in_range(ids.len, 1, LEN_MAX);
        token_list_fini(&ids);
    }
    free(text);
    tokenizer_close(tokenizer);
}

static void test_encode_appends(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct token_list ids = {0};
    encode(tokenizer, "a", 1, &ids);
    size_t first = ids.len;
    encode(tokenizer, "a", 1, &ids);
    assert_int_equal(ids.len, 2 * first);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
}

static void test_token_lookups(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    int32_t id = -1;
    size_t len;
    assert_int_equal(tokenizer_num_tokens(tokenizer), 4096);
    assert_true(tokenizer_find(tokenizer, "<|im_end|>", 10, &id));
    assert_int_equal(id, 4091);
    assert_true(tokenizer_token_is_special(tokenizer, id));
    assert_true(tokenizer_find(tokenizer, "<think>", 7, &id));
    assert_false(tokenizer_token_is_special(tokenizer, id));
    assert_true(tokenizer_find(tokenizer,
                               "\xc4\xa0"
                               "a",
                               3, &id)); // in the byte-level alphabet
    const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
    assert_int_equal(len, 2);
    assert_memory_equal(bytes, " a", 2);
    assert_false(tokenizer_find(tokenizer, "no such token", 13, &id));
    assert_null(tokenizer_token_bytes(tokenizer, 4096, &len));
    assert_null(tokenizer_token_bytes(tokenizer, -1, &len));
    assert_false(tokenizer_token_is_special(tokenizer, -1));
    assert_true(tokenizer_max_token_bytes(tokenizer) >= strlen("<|endoftext|>"));
    tokenizer_close(tokenizer);
}

static void test_decode_refuses_an_unknown_id(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct err err = {0};
    struct buf text = {0};
    const int32_t ids[] = {64, 4096};
    assert_int_equal(tokenizer_decode(tokenizer, ids, 2, false, &text, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "4096"));
    assert_int_equal(text.len, 0);
    buf_fini(&text);
    tokenizer_close(tokenizer);
}

enum { NUM_THREADS = 4, NUM_TEXTS = 200 };

struct job {
    const struct tokenizer *tokenizer;
    uint64_t hash;
};

static void *encode_many(void *arg) {
    struct job *job = arg;
    uint64_t random = 7;
    struct buf text = {0};
    struct token_list ids = {0};
    for (int i = 0; i < NUM_TEXTS; i++) {
        size_t len = fixture_random_text(&random, 40, &text);
        ids.len = 0;
        if (tokenizer_encode(job->tokenizer, text.data, len, false, NULL, &ids, NULL)) return NULL;
        for (size_t k = 0; k < ids.len; k++) job->hash = job->hash * 31 + (uint32_t)ids.ids[k];
    }
    buf_fini(&text);
    token_list_fini(&ids);
    return NULL;
}

static void test_threads_share_a_tokenizer(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct job alone = {.tokenizer = tokenizer}, jobs[NUM_THREADS];
    pthread_t threads[NUM_THREADS];
    encode_many(&alone);
    assert_true(alone.hash != 0);
    for (int i = 0; i < NUM_THREADS; i++) {
        jobs[i] = (struct job){.tokenizer = tokenizer};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &jobs[i]), 0);
    }
    for (int i = 0; i < NUM_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(jobs[i].hash == alone.hash);
    }
    tokenizer_close(tokenizer);
}

// One character, 400,000 times. With anything quadratic in it this does not end in minutes; what
// comes out decodes to the text.
static void check_one_character(const struct tokenizer *tokenizer, const char *character) {
    enum { COUNT = 400000 };
    size_t size = strlen(character);
    struct buf text = {0}, decoded = {0};
    struct token_list ids = {0};
    assert_int_equal(buf_reserve(&text, COUNT * size, NULL), OK);
    for (int i = 0; i < COUNT; i++) assert_int_equal(buf_append(&text, character, size, NULL), OK);
    encode(tokenizer, text.data, text.len, &ids);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.len, false, &decoded, NULL), OK);
    assert_int_equal(decoded.len, text.len);
    assert_memory_equal(decoded.data, text.data, text.len);
    buf_fini(&text);
    buf_fini(&decoded);
    token_list_fini(&ids);
}

static const char *const characters[] = {"a",   " ",
                                         "\n",  "1",
                                         "!",   "'",
                                         "<",   "\xe4\xb8\xad",
                                         " \n", "\xe3\x80\x80",
                                         "ab",  "\xf0\x9f\x99\x82",
                                         " a",  "\t "};

static void test_linear_time(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    for (size_t i = 0; i < ARRAY_LEN(characters); i++) {
        check_one_character(tokenizer, characters[i]);
    }
    tokenizer_close(tokenizer);
}

// The same for a pattern that is run as a regular expression.
static void test_linear_time_of_another_pattern(void **state) {
    (void)state;
    json_t *change = json_pack(
        "{s:{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}}", "pre_tokenizer", "type",
        "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
        "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "behavior", "Isolated", "invert", 0, "type", "ByteLevel", "use_regex", 0,
        "add_prefix_space", 0);
    assert_non_null(change);
    json_t *root = fixture_changed(change);
    struct tokenizer *tokenizer = fixture_parse(root);
    for (size_t i = 0; i < ARRAY_LEN(characters); i++) {
        check_one_character(tokenizer, characters[i]);
    }
    tokenizer_close(tokenizer);
    json_decref(root);
    json_decref(change);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundled_model_as_recorded),
        cmocka_unit_test(test_qwen3_as_recorded),
        cmocka_unit_test(test_variants_as_recorded),
        cmocka_unit_test(test_merges_as_strings),
        cmocka_unit_test(test_invalid_utf8_is_replaced),
        cmocka_unit_test(test_text_may_hold_nul),
        cmocka_unit_test(test_interrupt_ends_an_encode),
        cmocka_unit_test(test_limit_ends_an_encode),
        cmocka_unit_test(test_encode_appends),
        cmocka_unit_test(test_token_lookups),
        cmocka_unit_test(test_decode_refuses_an_unknown_id),
        cmocka_unit_test(test_threads_share_a_tokenizer),
        cmocka_unit_test(test_linear_time),
        cmocka_unit_test(test_linear_time_of_another_pattern),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
