// Drafts of a text are what stood behind the longest earlier match of its end, whatever pieces the
// text came in.
#include "engine/draft/draft_index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

enum { NUM_TOKENS = 400, NUM_DRAFT = 7 };

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

// The place with the longest match, of equal ones the last; 0: none.
static uint32_t search(const int32_t *tokens, uint32_t num_tokens, uint32_t min_len,
                       uint32_t max_len, uint32_t *match_len) {
    uint32_t best = 0;
    *match_len = 0;
    for (uint32_t place = num_tokens; place-- > min_len;) {
        uint32_t len = 0;
        while (len < max_len && len < place &&
               tokens[place - 1 - len] == tokens[num_tokens - 1 - len]) {
            len++;
        }
        if (len < min_len || len <= *match_len) continue;
        *match_len = len;
        best = place;
    }
    return best;
}

// Returns how many matches were not found. These are of one token, where another one has its hash.
static uint32_t check_text(uint64_t seed, uint32_t num_ids, uint32_t min_len, uint32_t max_len) {
    uint32_t num_lost = 0;
    int32_t tokens[NUM_TOKENS], draft[NUM_DRAFT];
    struct draft_index index;
    assert_int_equal(draft_index_init(&index, NUM_TOKENS, min_len, max_len, NULL), OK);
    for (uint32_t i = 0; i < NUM_TOKENS; i++) tokens[i] = (int32_t)(next_random(&seed) % num_ids);
    for (uint32_t n = 1; n <= NUM_TOKENS; n += 1 + next_random(&seed) % 4) {
        uint32_t want_len = 0, len = 0;
        uint32_t place = n > min_len ? search(tokens, n, min_len, max_len, &want_len) : 0;
        uint32_t count = draft_index_find(&index, tokens, n, draft, NUM_DRAFT, &len);
        bool is_lost = !count && want_len == 1 && max_len > 1;
        num_lost += is_lost;
        assert_int_equal(count, place && !is_lost ? NUM_DRAFT : 0);
        if (!count) continue;
        assert_int_equal(len, want_len);
        for (uint32_t i = 0; i < NUM_DRAFT; i++) {
            // Behind the text's end the draft repeats itself.
            int32_t want = place + i < n ? tokens[place + i] : draft[place + i - n];
            assert_int_equal(draft[i], want);
        }
    }
    draft_index_fini(&index);
    return num_lost;
}

static void test_the_longest_match(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        // So many ids that each run of min_len tokens comes a few times.
        assert_int_equal(check_text(seed, 7, 2, 8), 0);
        assert_int_equal(check_text(seed, 60, 1, 1), 0);
        assert_int_equal(check_text(seed, 5, 3, 3), 0);
        // Most of the matches of these are of one token.
        assert_true(check_text(seed, 60, 1, 3) < NUM_TOKENS / 10);
        assert_true(check_text(seed, 200, 1, 8) < NUM_TOKENS / 10);
    }
}

static void test_a_repetition_goes_on(void **state) {
    (void)state;
    static const int32_t tokens[] = {5, 1, 2, 3, 1, 2, 3}, want[] = {1, 2, 3, 1, 2, 3, 1};
    int32_t draft[NUM_DRAFT];
    uint32_t len;
    struct draft_index index;
    assert_int_equal(draft_index_init(&index, 7, 2, 8, NULL), OK);
    assert_int_equal(draft_index_find(&index, tokens, 7, draft, NUM_DRAFT, &len), NUM_DRAFT);
    assert_int_equal(len, 3);
    assert_memory_equal(draft, want, sizeof want);
    draft_index_fini(&index);
}

static void test_nothing_matches(void **state) {
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 2, 3, 4, 5};
    int32_t draft[1];
    uint32_t len;
    struct draft_index index;
    assert_int_equal(draft_index_init(&index, 8, 3, 3, NULL), OK);
    assert_int_equal(draft_index_find(&index, tokens, 1, draft, 1, &len), 0);
    assert_int_equal(draft_index_find(&index, tokens, 6, draft, 1, &len), 0); // "2 3" is too short
    assert_int_equal(draft_index_find(&index, tokens, 7, draft, 1, &len), 1);
    assert_int_equal(draft[0], 2);
    assert_int_equal(draft_index_find(&index, tokens, 8, draft, 1, &len), 0);
    draft_index_fini(&index);
    assert_int_equal(draft_index_init(&index, 8, 4, 3, NULL), ERR_INVALID);
}

// The tables of a long context stay small, because each request clears its own. Matches are found.
static void test_a_long_text(void **state) {
    (void)state;
    enum { LONG = 60000, PLACE = 1000, LEN = 16 };
    int32_t *tokens = malloc(LONG * sizeof *tokens), draft[NUM_DRAFT];
    uint64_t random = 1;
    assert_non_null(tokens);
    for (int i = 0; i < LONG; i++) tokens[i] = (int32_t)(next_random(&random) % 50000);
    memcpy(tokens + LONG - LEN, tokens + PLACE, LEN * sizeof *tokens);
    struct draft_index index;
    uint32_t len;
    assert_int_equal(draft_index_init(&index, 1 << 20, 1, LEN, NULL), OK);
    assert_true(sizeof *index.heads << index.num_bits <= 64 << 10);
    assert_int_equal(draft_index_find(&index, tokens, LONG, draft, NUM_DRAFT, &len), NUM_DRAFT);
    assert_int_equal(len, LEN);
    assert_memory_equal(draft, tokens + PLACE + LEN, sizeof draft);
    draft_index_fini(&index);
    free(tokens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_match),
        cmocka_unit_test(test_a_repetition_goes_on),
        cmocka_unit_test(test_nothing_matches),
        cmocka_unit_test(test_a_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
