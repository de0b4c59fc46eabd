// Drafts from the texts of other outputs: what is found, for whom, and what is forgotten.
#include "engine/draft/draft_pool.h"

#include "support/cmocka_all.h"

enum { MAX_LEN = 16 };

static void fill(int32_t *tokens, uint32_t count, int32_t first) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = first + (int32_t)i;
}

static struct draft_pool made(uint32_t min_len) {
    struct draft_pool pool;
    struct err err = {0};
    if (draft_pool_init(&pool, min_len, MAX_LEN, &err)) fail_msg("%s", err.message);
    return pool;
}

// Looks for what follows first, first + 1, ... Returns how many are found, all of them right.
static uint32_t find(const struct draft_pool *pool, uint64_t salt, int32_t first, uint32_t count,
                     uint32_t more_than, uint32_t *match_len) {
    int32_t tokens[32], draft[8];
    fill(tokens, count, first);
    uint32_t found = draft_pool_find(pool, salt, tokens, count, more_than, draft, 8, match_len);
    for (uint32_t i = 0; i < found; i++) assert_int_equal(draft[i], first + (int32_t)(count + i));
    return found;
}

static void test_texts_of_one_salt_are_found(void **state) {
    (void)state;
    struct draft_pool pool = made(3);
    int32_t tokens[100];
    uint32_t len = 0;
    fill(tokens, 100, 1000);
    assert_int_equal(find(&pool, 1, 1050, 6, 0, &len), 0);
    draft_pool_add(&pool, 1, tokens, 100, 40);
    assert_int_equal(find(&pool, 1, 1050, 6, 0, &len), 8);
    assert_int_equal(len, 6);
    assert_int_equal(find(&pool, 2, 1050, 6, 0, &len), 0); // another's salt
    assert_int_equal(find(&pool, 1, 1050, 3, 0, &len), 0); // too short a match
    assert_int_equal(find(&pool, 1, 1050, 6, 6, &len), 0); // no longer than the known one
    assert_int_equal(find(&pool, 1, 1050, 32, 6, &len), 8);
    assert_int_equal(len, MAX_LEN);
    assert_int_equal(find(&pool, 1, 1090, 6, 0, &len), 4); // up to the text's end
    assert_int_equal(find(&pool, 1, 1094, 6, 0, &len), 0);
    // Of the prompt, the end alone: what an answer begins with has matches too.
    assert_int_equal(find(&pool, 1, 1036, 4, 0, &len), 8);
    assert_int_equal(find(&pool, 1, 1010, 6, 0, &len), 0);
    draft_pool_fini(&pool);
}

// A token that others wrote is enough, but only where there is nothing else.
static void test_one_token_is_enough(void **state) {
    (void)state;
    struct draft_pool pool = made(1);
    int32_t tokens[100], draft[8];
    uint32_t len = 0;
    fill(tokens, 100, 1000);
    draft_pool_add(&pool, 1, tokens, 100, 40);
    static const int32_t end[] = {7, 8, 9, 1050}, other[] = {7, 8, 9, 10};
    assert_int_equal(draft_pool_find(&pool, 1, end, 4, 0, draft, 8, &len), 8);
    assert_int_equal(len, 1);
    assert_int_equal(draft[0], 1051);
    assert_int_equal(draft_pool_find(&pool, 1, end, 4, 1, draft, 8, &len), 0);
    assert_int_equal(draft_pool_find(&pool, 2, end, 4, 0, draft, 8, &len), 0); // another's salt
    assert_int_equal(draft_pool_find(&pool, 1, other, 4, 0, draft, 8, &len), 0);
    // A run comes first, although its place is older.
    tokens[50] = 5;
    draft_pool_add(&pool, 1, tokens + 50, 10, 1);
    assert_int_equal(find(&pool, 1, 1049, 6, 0, &len), 8);
    assert_int_equal(len, 6);
    draft_pool_fini(&pool);
    pool = made(3);
    fill(tokens, 100, 1000);
    draft_pool_add(&pool, 1, tokens, 100, 40);
    assert_int_equal(draft_pool_find(&pool, 1, end, 4, 0, draft, 8, &len), 0);
    draft_pool_fini(&pool);
}

static void test_old_texts_and_beginnings_are_forgotten(void **state) {
    (void)state;
    struct draft_pool pool = made(3);
    static int32_t tokens[3 * DRAFT_POOL_TEXT_LEN];
    uint32_t len = 0;
    fill(tokens, 3 * DRAFT_POOL_TEXT_LEN, 0);
    draft_pool_add(&pool, 0, tokens, 3 * DRAFT_POOL_TEXT_LEN, 1);
    assert_int_equal(find(&pool, 0, 2 * DRAFT_POOL_TEXT_LEN, 8, 0, &len), 8);
    assert_int_equal(find(&pool, 0, DRAFT_POOL_TEXT_LEN, 8, 0, &len), 0);
    for (int32_t i = 1; i <= DRAFT_POOL_TEXTS; i++) {
        fill(tokens, 40, 10000 * i);
        draft_pool_add(&pool, 0, tokens, 40, 1);
    }
    assert_int_equal(find(&pool, 0, 2 * DRAFT_POOL_TEXT_LEN, 8, 0, &len), 0);
    for (int32_t i = 1; i <= DRAFT_POOL_TEXTS; i++) {
        assert_int_equal(find(&pool, 0, 10000 * i, 8, 0, &len), 8);
    }
    draft_pool_fini(&pool);
}

// Hashes of two salts are equal now and then. Nobody may see another's text then either.
static void test_equal_hashes_tell_nothing(void **state) {
    (void)state;
    struct draft_pool pool = made(1);
    static int32_t tokens[DRAFT_POOL_TEXT_LEN];
    uint32_t len = 0;
    fill(tokens, DRAFT_POOL_TEXT_LEN, 0);
    draft_pool_add(&pool, 1, tokens, DRAFT_POOL_TEXT_LEN, 1);
    for (uint64_t salt = 2; salt < 2000; salt++) {
        for (int32_t i = 0; i < 1000; i++) {
            assert_int_equal(find(&pool, salt, i, 4, 0, &len), 0);
        }
    }
    draft_pool_fini(&pool);
}

// Behind the end of a text stands what the one before it had there.
static void test_rest_of_a_longer_text_is_not_seen(void **state) {
    (void)state;
    for (uint32_t min_len = 1; min_len <= 3; min_len += 2) {
        struct draft_pool pool = made(min_len);
        int32_t tokens[100];
        uint32_t len = 0;
        fill(tokens, 100, 0);
        draft_pool_add(&pool, 0, tokens, 100, 1);
        for (int32_t i = 1; i <= DRAFT_POOL_TEXTS; i++) {
            fill(tokens, 20, 10000 * i);
            draft_pool_add(&pool, 0, tokens, 20, 1);
        }
        assert_int_equal(find(&pool, 0, 50, 6, 0, &len), 0);
        draft_pool_fini(&pool);
    }
}

static void test_nothing_generated_and_no_pool(void **state) {
    (void)state;
    struct draft_pool pool = made(3), none = {0};
    int32_t tokens[40];
    uint32_t len = 0;
    fill(tokens, 40, 0);
    draft_pool_add(&pool, 0, tokens, 40, 40);
    draft_pool_add(&none, 0, tokens, 40, 1);
    assert_int_equal(find(&pool, 0, 26, 6, 0, &len), 0);
    assert_int_equal(find(&none, 0, 26, 6, 0, &len), 0);
    draft_pool_fini(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_of_one_salt_are_found),
        cmocka_unit_test(test_one_token_is_enough),
        cmocka_unit_test(test_old_texts_and_beginnings_are_forgotten),
        cmocka_unit_test(test_equal_hashes_tell_nothing),
        cmocka_unit_test(test_rest_of_a_longer_text_is_not_seen),
        cmocka_unit_test(test_nothing_generated_and_no_pool),
    };
    return cmocka_run_group_tests_name("draft_pool", tests, NULL, NULL);
}
