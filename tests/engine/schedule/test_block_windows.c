/* The block manager with several KV groups and with sliding windows. */
#include "engine/schedule/block_fixture.h"
#include "support/cmocka_all.h"

// One group with a window, or one without and one with it.
static void window_fixture_init(struct block_fixture *f, uint32_t num_blocks, uint32_t num_groups,
                                uint32_t window) {
    struct block_groups groups = {.num_groups = num_groups};
    groups.windows[num_groups - 1] = window;
    block_fixture_init(f, num_blocks, &groups);
}

static void test_blocks_behind_a_window_are_given_back(void **state) {
    (void)state;
    struct block_fixture f;
    window_fixture_init(&f, 16, 1, 6);
    struct sequence *seq = block_fixture_add(&f, 0, 21);
    block_fixture_run(&f, seq);
    assert_int_equal(f.manager.num_free, 10);
    block_manager_slide(&f.manager, seq,
                        seq->num_computed_tokens); // the query at 21 reads positions 16 .. 21
    block_fixture_check(&f);
    assert_int_equal(seq->first_blocks[0], 4);
    assert_int_equal(f.manager.num_free, 14);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(seq->block_table[i], BLOCK_NONE);
    // What was given back is still cached: all of the prefix's window is there.
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 21)), 5);
    block_fixture_fini(&f);
}

// A hit needs only the blocks in the window before its end.
static void test_a_hit_does_not_need_what_is_behind_the_window(void **state) {
    (void)state;
    struct block_fixture f;
    window_fixture_init(&f, 6, 1, 6);
    struct sequence *a = block_fixture_add(&f, 0, 20), *b = block_fixture_add(&f, 0, 25),
                    *c = block_fixture_add(&f, 100, 16);
    block_fixture_run(&f, a);
    block_manager_slide(&f.manager, a, a->num_computed_tokens);
    block_fixture_run(&f, c); // evicts the three blocks that were given back
    assert_int_equal(f.manager.stats.num_evicted, 3);
    assert_int_equal(block_fixture_match(&f, b), 5);
    block_manager_release(&f.manager, c);
    block_manager_release(&f.manager, a);
    block_fixture_run(&f,
                      block_fixture_add(&f, 200, 17)); // leaves one of the two blocks of the window
    assert_int_equal(block_fixture_match(&f, b), 0);
    block_fixture_fini(&f);
}

// The group without a window needs all blocks, the other its window's: the hit is what serves both.
static void test_a_hit_serves_every_group(void **state) {
    (void)state;
    struct block_fixture f;
    window_fixture_init(&f, 14, 2, 4);
    struct sequence *a = block_fixture_add(&f, 0, 25), *b = block_fixture_add(&f, 0, 30);
    block_fixture_run(&f, a); // 7 blocks in each group, which is all
    block_manager_slide(&f.manager, a, a->num_computed_tokens);
    block_fixture_check(&f);
    assert_int_equal(f.manager.num_free, 5); // the query at 25 reads positions 22 .. 25
    assert_int_equal(block_fixture_match(&f, b), 6);
    assert_int_equal(block_manager_num_taken(&f.manager, b, 8, 8), 2 + 2);
    struct sequence *other = block_fixture_add(&f, 100, 8);
    block_fixture_run(&f, other); // evicts 4 of the 5 blocks
    block_fixture_check(&f);
    assert_int_equal(block_fixture_match(&f, b), 6); // the last block of the window is a's own
    block_manager_release(&f.manager, a);
    block_manager_release(&f.manager, other);
    assert_int_equal(block_fixture_run(&f, b), 24);
    assert_int_equal(b->first_blocks[0], 0);
    assert_int_equal(b->first_blocks[1], 5);
    block_fixture_fini(&f);
}

// A waiting sequence is matched before every step. That looks only at what it may have lost,
// however long the prefix is.
static void test_a_repeated_match_is_short(void **state) {
    (void)state;
    uint64_t num_noted[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct block_fixture f;
        uint32_t num_entries = 20u << i;
        window_fixture_init(&f, 200, 2, 6);
        struct sequence *a = block_fixture_add(&f, 0, num_entries * BLOCK_SIZE + 1);
        struct sequence *b = block_fixture_add(&f, 0, num_entries * BLOCK_SIZE + 1);
        block_fixture_run(&f, a);
        assert_int_equal(block_fixture_match(&f, b), num_entries);
        num_noted[i] = f.manager.stats.num_noted;
        assert_int_equal(block_fixture_match(&f, b), num_entries);
        num_noted[i] = f.manager.stats.num_noted - num_noted[i];
        block_fixture_fini(&f);
    }
    assert_true(num_noted[0] < 6);
    assert_int_equal(num_noted[1], num_noted[0]);
}

// The last prefix of an earlier match lacked a block then. It has a new one when it is extended.
static void test_a_repeated_match_finds_a_new_block(void **state) {
    (void)state;
    struct block_fixture f;
    window_fixture_init(&f, 31, 2, 0);
    struct sequence *a = block_fixture_add(&f, 0, 41), *longer = block_fixture_add(&f, 0, 45),
                    *b = block_fixture_add(&f, 0, 49);
    block_fixture_run(&f, a); // publishes 10 blocks in each group
    block_manager_release(&f.manager, a);
    struct sequence *other = block_fixture_add(&f, 500, 24);
    assert_true(block_manager_grow(&f.manager, other, 24)); // 12 blocks, one of them published
    assert_int_equal(f.manager.stats.num_evicted, 1);
    assert_int_equal(block_fixture_match(&f, b), 9);
    assert_int_equal(b->num_published, 10);
    block_manager_release(&f.manager, other);
    block_fixture_run(&f, longer);
    assert_int_equal(block_fixture_match(&f, b), 11);
    for (uint32_t g = 0; g < 2; g++) {
        assert_memory_equal(sequence_table(b, g), sequence_table(longer, g), 11 * sizeof(uint32_t));
    }
    block_fixture_fini(&f);
}

// A sequence much longer than its window knows more prefixes than there are blocks. When none is
// unused its blocks are no longer published, and nothing else changes.
static void test_prefixes_may_run_out(void **state) {
    (void)state;
    struct block_fixture f;
    window_fixture_init(&f, 3, 1, 2);
    struct sequence *seq = block_fixture_add(&f, 0, 250);
    uint32_t num_prefixes = f.manager.num_prefixes;
    for (uint32_t end = BLOCK_SIZE; end <= 248; end += BLOCK_SIZE) {
        assert_true(block_manager_grow(&f.manager, seq, end));
        seq->num_computed_tokens = end;
        block_manager_publish(&f.manager, seq);
        block_manager_slide(&f.manager, seq, seq->num_computed_tokens);
        block_fixture_check(&f);
        assert_true(f.manager.num_blocks - f.manager.num_free <= 2);
    }
    assert_int_equal(seq->num_published, num_prefixes);
    assert_true(f.manager.stats.num_unknown > 0);
    block_manager_release(&f.manager, seq);
    assert_int_equal(block_fixture_run(&f, block_fixture_add(&f, 300, 9)), 0);
    block_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_behind_a_window_are_given_back),
        cmocka_unit_test(test_a_hit_does_not_need_what_is_behind_the_window),
        cmocka_unit_test(test_a_hit_serves_every_group),
        cmocka_unit_test(test_a_repeated_match_is_short),
        cmocka_unit_test(test_a_repeated_match_finds_a_new_block),
        cmocka_unit_test(test_prefixes_may_run_out),
    };
    return cmocka_run_group_tests_name("block_windows", tests, NULL, NULL);
}
