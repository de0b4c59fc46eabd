// Streaming: the pieces are whole characters, and together they are the text decoded at once.
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"
#include "text/tokenizer/detokenizer.h"
#include "text/unicode/unicode.h"

// Random ids are mostly torn characters.
static void check_random_ids(const struct tokenizer *tokenizer, uint64_t seed) {
    enum { NUM_IDS = 64 };
    uint32_t num_tokens = tokenizer_num_tokens(tokenizer);
    struct buf whole = {0}, pieces = {0};
    for (int round = 0; round < 300; round++) {
        int32_t ids[NUM_IDS];
        struct detokenizer detokenizer = {0};
        bool skip_special = round % 2;
        buf_clear(&whole);
        buf_clear(&pieces);
        for (int i = 0; i < NUM_IDS; i++) {
            // Half of them single bytes, which are the first ids.
            uint32_t range = fixture_random(&seed) % 2 ? 256 : num_tokens;
            do {
                ids[i] = (int32_t)(fixture_random(&seed) % range);
            } while (!tokenizer_token_bytes(tokenizer, ids[i], &(size_t){0}));
            size_t before = pieces.len;
            assert_int_equal(
                detokenizer_push(&detokenizer, tokenizer, ids[i], skip_special, &pieces, NULL), OK);
            size_t len = pieces.len - before;
            assert_true(len <= 3 * (tokenizer_max_token_bytes(tokenizer) + 4));
            if (len) assert_int_equal(utf8_valid_prefix(pieces.data + before, len), len);
        }
        assert_int_equal(detokenizer_flush(&detokenizer, &pieces, NULL), OK);
        assert_int_equal(tokenizer_decode(tokenizer, ids, NUM_IDS, skip_special, &whole, NULL), OK);
        assert_int_equal(pieces.len, whole.len);
        if (whole.len) assert_memory_equal(pieces.data, whole.data, whole.len);
    }
    buf_fini(&whole);
    buf_fini(&pieces);
}

static void test_random_ids(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    check_random_ids(tokenizer, 1);
    tokenizer_close(tokenizer);
}

static void test_random_ids_of_qwen3(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open_published(QWEN3_TOKENIZER);
    check_random_ids(tokenizer, 2);
    tokenizer_close(tokenizer);
}

static int32_t byte_id(const struct tokenizer *tokenizer, unsigned char byte) {
    for (int32_t id = 0; id < 4096; id++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
        if (bytes && len == 1 && (unsigned char)bytes[0] == byte) return id;
    }
    fail_msg("no token for byte %02x", byte);
    return -1;
}

static void test_a_character_comes_with_its_last_byte(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct detokenizer detokenizer = {0};
    struct buf out = {0};
    static const unsigned char smile[] = {0xf0, 0x9f, 0x99, 0x82};
    for (size_t i = 0; i < sizeof smile; i++) {
        assert_int_equal(out.len, 0);
        assert_int_equal(detokenizer_push(&detokenizer, tokenizer, byte_id(tokenizer, smile[i]),
                                          false, &out, NULL),
                         OK);
    }
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, smile, 4);
    buf_fini(&out);
    tokenizer_close(tokenizer);
}

static void test_half_a_character_at_the_end_is_replaced(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct detokenizer detokenizer = {0};
    struct buf out = {0};
    static const unsigned char half[] = {0xf0, 0x9f, 0x99};
    for (size_t i = 0; i < sizeof half; i++) {
        assert_int_equal(detokenizer_push(&detokenizer, tokenizer, byte_id(tokenizer, half[i]),
                                          false, &out, NULL),
                         OK);
    }
    assert_int_equal(out.len, 0);
    assert_int_equal(detokenizer_flush(&detokenizer, &out, NULL), OK);
    assert_string_equal(out.data, "\xef\xbf\xbd");
    assert_int_equal(detokenizer_flush(&detokenizer, &out, NULL), OK); // nothing is left
    assert_int_equal(out.len, 3);
    buf_fini(&out);
    tokenizer_close(tokenizer);
}

static void test_special_and_unknown_ids(void **state) {
    (void)state;
    struct tokenizer *tokenizer = fixture_open(TINY_TOKENIZER);
    struct detokenizer detokenizer = {0};
    struct buf out = {0};
    static const int32_t ids[] = {4091, -1, 4096, INT32_MAX, 4092};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        assert_int_equal(detokenizer_push(&detokenizer, tokenizer, ids[i], true, &out, NULL), OK);
    }
    assert_string_equal(out.data, "<think>"); // added, but not special
    assert_int_equal(detokenizer_push(&detokenizer, tokenizer, 4091, false, &out, NULL), OK);
    assert_string_equal(out.data, "<think><|im_end|>");
    buf_fini(&out);
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ids),
        cmocka_unit_test(test_random_ids_of_qwen3),
        cmocka_unit_test(test_a_character_comes_with_its_last_byte),
        cmocka_unit_test(test_half_a_character_at_the_end_is_replaced),
        cmocka_unit_test(test_special_and_unknown_ids),
    };
    return cmocka_run_group_tests_name("detokenizer", tests, NULL, NULL);
}
