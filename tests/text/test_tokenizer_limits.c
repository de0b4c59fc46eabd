// Hostile files and texts: texts and pairs that are chosen to collide in a hash do not collide, and
// a normalizer's result that is too long is refused before it is built.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"
#include "text/tokenizer/tokenizer_parts.h"

enum { NUM_CHOSEN = 1000, SLOTS = 4096 }; // of a hash table with so many slots

// The longest row of used slots: the most slots that a lookup reads.
static size_t longest_row(const struct vocab *vocab) {
    size_t longest = 0, row = 0;
    for (size_t i = 0; i < vocab->num_slots; i++) {
        row = vocab->slots[i].id_plus_1 ? row + 1 : 0;
        if (row > longest) longest = row;
    }
    return longest;
}

// Texts that would all collide if the hash had no secret.
static void test_chosen_tokens_do_not_meet(void **state) {
    (void)state;
    struct vocab vocab;
    vocab_init(&vocab);
    char text[32];
    for (uint32_t id = 0, n = 0; id < NUM_CHOSEN; n++) {
        int len = snprintf(text, sizeof text, "t%u", n);
        if (XXH3_64bits(text, (size_t)len) % SLOTS >= 4) continue;
        assert_int_equal(vocab_add(&vocab, text, (size_t)len, id++, TOKEN_MODEL, NULL), OK);
    }
    assert_in_range(longest_row(&vocab), 1, NUM_CHOSEN / 4);
    vocab_fini(&vocab);
}

// The same for pairs: their products with the golden ratio, a usual multiplier, are small numbers.
static void test_chosen_merges_do_not_meet(void **state) {
    (void)state;
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    uint64_t inverse = golden; // mod 2^64, by Newton's iteration
    for (int i = 0; i < 6; i++) inverse *= 2 - golden * inverse;
    assert_true(inverse * golden == 1);
    struct bpe bpe = {0};
    vocab_init(&bpe.vocab);
    assert_int_equal(bpe_reserve_merges(&bpe, NUM_CHOSEN, NULL), OK);
    for (uint64_t i = 1; i <= NUM_CHOSEN; i++) {
        uint64_t pair = i * inverse;
        bpe_add_merge(&bpe, (uint32_t)(pair >> 32), (uint32_t)pair, (uint32_t)i);
    }
    size_t longest = 0, row = 0;
    for (size_t i = 0; i < bpe.num_slots; i++) {
        row = bpe.merges[i].pair != UINT64_MAX ? row + 1 : 0;
        if (row > longest) longest = row;
    }
    assert_in_range(longest, 1, NUM_CHOSEN / 4);
    bpe_fini(&bpe);
}

// The bundled tokenizer with another normalizer, written as JSON.
static struct tokenizer *open_normalizing(const char *normalizer) {
    json_t *change = json_object();
    json_t *value = json_loads(normalizer, 0, NULL);
    assert_non_null(value);
    json_object_set_new(change, "normalizer", value);
    json_t *root = fixture_changed(change);
    struct tokenizer *tokenizer = fixture_parse(root);
    json_decref(root);
    json_decref(change);
    return tokenizer;
}

// A text of `len` letters x, normalised: ERR_INVALID, and no large buffer was made for it.
static void check_refused(const char *normalizer, size_t len) {
    struct tokenizer *tokenizer = open_normalizing(normalizer);
    struct tokenizer_scratch scratch = {0};
    tokenizer_scratch_begin(&scratch, len, NULL);
    char *text = malloc(len);
    assert_non_null(text);
    memset(text, 'x', len);
    const char *normalized = text;
    size_t normalized_len = len;
    struct err err = {0};
    assert_int_equal(tokenizer_normalize(tokenizer, &scratch, &normalized, &normalized_len, &err),
                     ERR_INVALID);
    assert_non_null(strstr(err.message, "make this text longer than"));
    size_t allowed = EFFORT_NORMALIZED_MIN + len * EFFORT_NORMALIZED_PER_BYTE;
    assert_in_range(scratch.normalized.capacity, 0, 2 * allowed);
    tokenizer_scratch_fini(&scratch);
    free(text);
    tokenizer_close(tokenizer);
}

#define A16 "aaaaaaaaaaaaaaaa"
#define A200 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 A16 "aaaaaaaa"
#define REPLACE(pattern, content)                                                                  \
    "{\"type\": \"Replace\", \"pattern\": {" pattern "}, \"content\": \"" content "\"}"

static void test_a_normalizer_that_grows_a_text_is_refused_first(void **state) {
    (void)state;
    enum { LEN = 1 << 20 }; // may become 32 MiB, would become 200 MiB
    check_refused(REPLACE("\"String\": \"x\"", A200), LEN);
    check_refused(REPLACE("\"Regex\": \"x\"", A200), LEN);
    check_refused(REPLACE("\"String\": \"xx\"", A200 A200), LEN);
}

// Many pieces share one bound: the text between two added tokens is normalised by itself.
static void test_pieces_share_the_bound(void **state) {
    (void)state;
    struct tokenizer *tokenizer =
        open_normalizing("{\"type\": \"Prepend\", \"prepend\": \"" A200 A16 A16 A16 "\"}");
    static const char piece[] = "<|im_end|>x";
    enum { LEN = sizeof piece - 1, COUNT = 400000 };
    char *text = malloc((size_t)LEN * COUNT);
    assert_non_null(text);
    for (size_t i = 0; i < COUNT; i++) memcpy(text + i * LEN, piece, LEN);
    struct token_list ids = {0};
    struct err err = {0};
    enum status status =
        tokenizer_encode(tokenizer, text, (size_t)LEN * COUNT / 100, false, NULL, &ids, &err);
    if (status) fail_msg("%s", err.message);
    token_list_fini(&ids);
    status = tokenizer_encode(tokenizer, text, (size_t)LEN * COUNT, false, NULL, &ids, &err);
    assert_int_equal(status, ERR_INVALID);
    assert_int_equal(ids.len, 0);
    token_list_fini(&ids);
    free(text);
    tokenizer_close(tokenizer);
}

// At each letter a search that reads up to the end of the text.
static void test_searches_share_the_budget(void **state) {
    (void)state;
    enum { LEN = 40000 };
    json_t *change = json_object();
    json_t *splits =
        json_loads("{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                   "\"pattern\": {\"Regex\":"
                   " \".*?z|.\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\","
                   " \"add_prefix_space\": false, \"use_regex\": false}]}",
                   0, NULL);
    assert_non_null(splits);
    json_object_set_new(change, "pre_tokenizer", splits);
    json_t *root = fixture_changed(change);
    struct tokenizer *tokenizer = fixture_parse(root);
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'q', LEN);
    struct token_list ids = {0};
    struct err err = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, LEN, false, NULL, &ids, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "gave up on this text"));
    assert_int_equal(tokenizer_encode(tokenizer, text, LEN / 100, false, NULL, &ids, &err), OK);
    assert_int_equal(ids.len, LEN / 100);
    token_list_fini(&ids);
    free(text);
    tokenizer_close(tokenizer);
    json_decref(root);
    json_decref(change);
}

// An added token that nearly matches at each place of the text.
static void test_added_tokens_share_the_budget(void **state) {
    (void)state;
    enum { LEN = 100000, TOKEN = 10000 };
    char *text = malloc(LEN + 1);
    assert_non_null(text);
    memset(text, 'q', LEN);
    text[TOKEN] = '\0';
    json_t *root = fixture_json(TINY_TOKENIZER);
    json_array_append_new(
        json_object_get(root, "added_tokens"),
        json_pack("{s:i, s:s, s:b}", "id", 4096, "content", text, "normalized", 0));
    struct tokenizer *tokenizer = fixture_parse(root);
    for (size_t i = TOKEN - 1; i < LEN; i += TOKEN) text[i] = 'x';
    text[TOKEN] = 'q';
    struct token_list ids = {0};
    struct err err = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, LEN, false, NULL, &ids, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "gave up on this text"));
    token_list_fini(&ids);
    free(text);
    tokenizer_close(tokenizer);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen_tokens_do_not_meet),
        cmocka_unit_test(test_chosen_merges_do_not_meet),
        cmocka_unit_test(test_a_normalizer_that_grows_a_text_is_refused_first),
        cmocka_unit_test(test_pieces_share_the_bound),
        cmocka_unit_test(test_searches_share_the_budget),
        cmocka_unit_test(test_added_tokens_share_the_budget),
    };
    return cmocka_run_group_tests_name("tokenizer_limits", tests, NULL, NULL);
}
