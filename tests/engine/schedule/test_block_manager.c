/* Rules of the block manager, one by one. Bug ids (B4, B19, ...) are those of the original project
 * that must not exist here. */
#include <string.h>

#include "engine/schedule/block_fixture.h"
#include "support/cmocka_all.h"

static const struct block_groups one_group = {.num_groups = 1};

static void test_init_refuses_an_empty_cache(void **state) {
    (void)state;
    struct block_manager manager;
    struct err err;
    assert_int_equal(block_manager_init(&manager, 0, 16, &one_group, true, 0, &err), ERR_INVALID);
    assert_int_equal(block_manager_init(&manager, 8, 0, &one_group, true, 0, &err), ERR_INVALID);
    assert_null(manager.blocks);
    block_manager_fini(&manager);
}

static void test_grow_is_all_or_nothing(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 3, &one_group);
    struct sequence *seq = block_fixture_add(&f, 0, 5);
    assert_false(block_manager_grow(&f.manager, seq, 13));
    assert_int_equal(seq->num_blocks, 0);
    assert_int_equal(f.manager.num_free, 3);
    assert_true(block_manager_grow(&f.manager, seq, 5));
    assert_int_equal(seq->num_blocks, 2);
    assert_true(block_manager_grow(&f.manager, seq, 8)); // no new block is begun
    assert_int_equal(seq->num_blocks, 2);
    assert_true(block_manager_grow(&f.manager, seq, 9));
    assert_int_equal(seq->num_blocks, 3);
    assert_int_equal(f.manager.stats.num_used_peak, 3);
    block_fixture_fini(&f);
}

static void test_full_hit_on_exact_block_multiple_leaves_a_block_to_compute(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    assert_int_equal(block_fixture_run(&f, block_fixture_add(&f, 0, 8)), 0);
    assert_int_equal(block_fixture_run(&f, block_fixture_add(&f, 0, 8)), 4); // never all 8
    assert_int_equal(block_fixture_run(&f, block_fixture_add(&f, 0, 9)), 8);
    block_fixture_fini(&f);
}

static void test_one_block_prompt_is_never_matched(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    block_fixture_run(&f, block_fixture_add(&f, 0, 4));
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 4)), 0);
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 5)), 1);
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 1)), 0);
    block_fixture_fini(&f);
}

static void test_partial_blocks_are_not_published(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *seq = block_fixture_add(&f, 0, 7);
    block_fixture_run(&f, seq);
    assert_int_equal(seq->num_published, 1);
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 9)), 1);
    block_fixture_fini(&f);
}

static void test_blocks_are_invisible_until_published(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *seq = block_fixture_add(&f, 0, 9);
    block_manager_match(&f.manager, seq);
    block_manager_admit(&f.manager, seq);
    assert_true(block_manager_grow(&f.manager, seq, 9));
    struct sequence *same = block_fixture_add(&f, 0, 9);
    assert_int_equal(block_fixture_match(&f, same), 0); // allocated, nothing is computed (#208)
    seq->num_computed_tokens = 6;
    block_manager_publish(&f.manager, seq);
    assert_int_equal(block_fixture_match(&f, same), 1);
    seq->num_computed_tokens = 9;
    block_manager_publish(&f.manager, seq);
    assert_int_equal(block_fixture_match(&f, same), 2);
    block_fixture_fini(&f);
}

static void test_generated_blocks_are_published(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *seq = block_fixture_add(&f, 0, 3);
    block_fixture_run(&f, seq);
    while (seq->num_tokens < 9) {
        seq->token_ids[seq->num_tokens] =
            (int32_t)seq->num_tokens; // as block_fixture_add() would count on
        seq->num_tokens++;
    }
    assert_true(block_manager_grow(&f.manager, seq, 9));
    seq->num_computed_tokens = 8;
    block_manager_publish(&f.manager, seq);
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 12)), 2);
    block_fixture_fini(&f);
}

static void test_freed_blocks_stay_findable_until_allocated_again(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 4, &one_group);
    struct sequence *first = block_fixture_add(&f, 0, 12), *same = block_fixture_add(&f, 0, 12);
    block_fixture_run(&f, first);
    block_manager_release(&f.manager, first);
    assert_int_equal(f.manager.num_free, 4);
    assert_int_equal(block_fixture_match(&f, same), 2);
    // Another content: takes the block that was never published, then the oldest cached one, which
    // is the end of the prefix, not its start.
    struct sequence *other = block_fixture_add(&f, 100, 8);
    block_fixture_run(&f, other);
    assert_int_equal(block_fixture_match(&f, same), 2);
    assert_int_equal(f.manager.stats.num_evicted, 1);
    struct sequence *third = block_fixture_add(&f, 200, 4);
    block_fixture_run(&f, third);
    assert_int_equal(block_fixture_match(&f, same), 1);
    block_fixture_fini(&f);
}

static void test_least_recently_used_prefix_is_evicted_first(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 4, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 5), *b = block_fixture_add(&f, 100, 5);
    block_fixture_run(&f, a);
    block_fixture_run(&f, b);
    block_manager_release(&f.manager, a);
    block_manager_release(&f.manager, b);
    block_manager_match(&f.manager, a); // used again: now b's is the older one
    block_manager_admit(&f.manager, a);
    block_manager_release(&f.manager, a);
    struct sequence *c = block_fixture_add(&f, 200, 12);
    block_fixture_run(&f, c); // two spare blocks and one cached one
    assert_int_equal(block_fixture_match(&f, a), 1);
    assert_int_equal(block_fixture_match(&f, b), 0);
    block_fixture_fini(&f);
}

static void test_stale_hash_after_reallocation_is_no_hit(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 3, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 12), *again = block_fixture_add(&f, 0, 12);
    block_fixture_run(&f, a);
    block_manager_release(&f.manager, a);
    struct sequence *b = block_fixture_add(&f, 100, 12);
    block_fixture_run(&f, b); // all three blocks have b's content now (#163)
    assert_int_equal(block_fixture_match(&f, again), 0);
    assert_int_equal(f.manager.published.count, 3);
    block_fixture_fini(&f);
}

static void test_revived_block_leaves_the_free_list_and_keeps_its_content(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 5, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 9), *b = block_fixture_add(&f, 0, 9),
                    *c = block_fixture_add(&f, 0, 9);
    block_fixture_run(&f, a);
    uint32_t prefix[2] = {a->block_table[0], a->block_table[1]};
    block_manager_release(&f.manager, a);
    assert_int_equal(block_fixture_run(&f, b), 8);
    assert_memory_equal(b->block_table, prefix, sizeof prefix);
    assert_int_equal(f.manager.num_free, 2);
    struct sequence *other = block_fixture_add(&f, 100, 8);
    block_fixture_run(&f, other); // takes all that is free: not the revived ones
    block_fixture_check(&f);
    block_manager_release(&f.manager, other);
    block_manager_release(&f.manager, b); // freeing a revived block does not forget it (9fa256a)
    assert_int_equal(block_fixture_run(&f, c), 8);
    block_fixture_fini(&f);
}

static void test_num_taken_counts_new_and_revived_blocks(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 13), *b = block_fixture_add(&f, 0, 6),
                    *c = block_fixture_add(&f, 0, 17);
    block_fixture_run(&f, a);
    block_fixture_run(&f, b); // shares a's first block
    block_manager_release(&f.manager, a);
    assert_int_equal(block_fixture_match(&f, c), 3);
    // 5 blocks in all: 1 is in use by b, 2 are cached and free, 2 are new.
    assert_int_equal(block_manager_num_taken(&f.manager, c, 5, 1), 4);
    uint32_t num_free = f.manager.num_free;
    assert_int_equal(block_fixture_run(&f, c), 12);
    assert_int_equal(num_free - f.manager.num_free, 4);
    block_fixture_fini(&f);
}

static void test_b18_duplicate_content_is_kept_once(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 8), *b = block_fixture_add(&f, 0, 8);
    block_fixture_run(&f, a);
    block_fixture_run(&f, b); // had to compute its second block again, then shares a's
    assert_int_equal(b->block_table[1], a->block_table[1]);
    assert_int_equal(f.manager.stats.num_duplicates, 1);
    assert_int_equal(f.manager.num_free, 6);
    assert_int_equal(f.manager.published.count, 2);
    block_manager_release(&f.manager, a); // the mapped copy stays b's
    block_fixture_check(&f);
    assert_int_equal(block_fixture_match(&f, block_fixture_add(&f, 0, 9)), 2);
    block_fixture_fini(&f);
}

static void test_duplicate_of_a_free_cached_block_revives_it(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 8), *b = block_fixture_add(&f, 0, 8);
    block_fixture_run(&f, a);
    block_manager_match(&f.manager, b);
    block_manager_admit(&f.manager, b);
    assert_true(block_manager_grow(&f.manager, b, 8));
    uint32_t second = a->block_table[1];
    block_manager_release(&f.manager, a);
    b->num_computed_tokens = 8;
    block_manager_publish(&f.manager, b);
    block_fixture_check(&f);
    assert_int_equal(b->block_table[1], second);
    block_fixture_fini(&f);
}

// Makes the hashes of both sequences collide from block `index` on, as an unlucky or forged pair
// would.
static void forge(struct block_fixture *f, struct sequence *victim, struct sequence *forged,
                  uint32_t num_hashes) {
    block_manager_hash(&f->manager, victim, num_hashes - 1);
    memcpy(forged->block_hashes, victim->block_hashes, num_hashes * sizeof(uint64_t));
    forged->num_hashes = num_hashes;
}

static void test_b19_equal_hash_of_other_tokens_is_no_hit(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 8, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 9), *b = block_fixture_add(&f, 100, 9);
    forge(&f, a, b, 2);
    block_fixture_run(&f, a);
    assert_int_equal(block_fixture_match(&f, b), 0);
    block_fixture_fini(&f);
}

static void test_b19_equal_hash_and_tokens_after_another_prefix_is_no_hit(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 12, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 9), *b = block_fixture_add(&f, 100, 9);
    memcpy(b->token_ids + 4, a->token_ids + 4, 5 * sizeof(int32_t)); // second blocks are equal
    block_fixture_run(&f, a);
    block_manager_hash(&f.manager, b, 0);
    b->block_hashes[1] = a->block_hashes[1]; // and their chain hashes collide
    b->num_hashes = 2;
    struct sequence *c = block_fixture_add(&f, 100, 5); // puts b's first block into the cache
    block_fixture_run(&f, c);
    assert_int_equal(block_fixture_match(&f, b), 1);
    block_fixture_fini(&f);
}

static void test_b19_collision_is_not_published_over_the_other(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 6, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 9), *b = block_fixture_add(&f, 100, 9),
                    *c = block_fixture_add(&f, 0, 9);
    forge(&f, a, b, 2);
    block_fixture_run(&f, a);
    assert_int_equal(block_fixture_run(&f, b), 0);
    assert_int_equal(b->num_published, 0);
    assert_int_equal(f.manager.stats.num_collisions, 1);
    assert_int_equal(block_fixture_match(&f, c), 2); // a's content is found, not b's
    // Once the other is evicted, publication succeeds.
    block_manager_release(&f.manager, a);
    struct sequence *d = block_fixture_add(&f, 200, 12);
    block_fixture_run(&f, d);
    block_manager_publish(&f.manager, b);
    block_fixture_check(&f);
    assert_int_equal(b->num_published, 2);
    block_fixture_fini(&f);
}

static void test_salts_do_not_share(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 12, &one_group);
    struct sequence *a = block_fixture_add_salted(&f, 0, 9, 1),
                    *b = block_fixture_add_salted(&f, 0, 9, 2);
    struct sequence *c = block_fixture_add_salted(&f, 0, 9, 1),
                    *d = block_fixture_add_salted(&f, 0, 9, 3);
    block_fixture_run(&f, a);
    assert_int_equal(block_fixture_match(&f, b), 0);
    assert_int_equal(block_fixture_match(&f, c), 2);
    forge(&f, a, d, 2); // not even with equal hashes
    assert_int_equal(block_fixture_match(&f, d), 0);
    block_fixture_fini(&f);
}

static void test_hashes_depend_on_the_seed(void **state) {
    (void)state;
    struct err err;
    struct block_manager one, two;
    int32_t tokens[4] = {1, 2, 3, 4};
    struct sequence *a, *b;
    assert_int_equal(block_manager_init(&one, 2, 4, &one_group, true, 1, &err), OK);
    assert_int_equal(block_manager_init(&two, 2, 4, &one_group, true, 2, &err), OK);
    assert_int_equal(sequence_create(&a, 0, tokens, 4, 1, 4, 1, &err), OK);
    assert_int_equal(sequence_create(&b, 1, tokens, 4, 1, 4, 1, &err), OK);
    assert_true(block_manager_hash(&one, a, 0) != block_manager_hash(&two, b, 0));
    sequence_destroy(a);
    sequence_destroy(b);
    block_manager_fini(&one);
    block_manager_fini(&two);
}

static void test_b27_each_block_is_hashed_once(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 16, &one_group);
    struct sequence *seq = block_fixture_add(&f, 0, 41);
    for (int i = 0; i < 100; i++) block_fixture_match(&f, seq); // misses at its first block
    assert_int_equal(f.manager.stats.num_hashed, 1);
    block_fixture_run(&f, seq);
    assert_int_equal(f.manager.stats.num_hashed, 10);
    block_manager_release(&f.manager, seq); // preempted
    assert_int_equal(block_fixture_run(&f, seq), 40);
    assert_int_equal(f.manager.stats.num_hashed, 10);
    block_fixture_fini(&f);
}

static void test_match_notices_eviction_and_extension(void **state) {
    (void)state;
    struct block_fixture f;
    block_fixture_init(&f, 4, &one_group);
    struct sequence *a = block_fixture_add(&f, 0, 12), *b = block_fixture_add(&f, 0, 16),
                    *c = block_fixture_add(&f, 100, 8);
    block_fixture_run(&f, a);
    assert_int_equal(block_fixture_match(&f, b), 3);
    block_manager_release(&f.manager, a);
    block_fixture_run(&f, c); // evicts a's last block
    assert_int_equal(block_fixture_match(&f, b), 2);
    block_manager_release(&f.manager, c);
    block_fixture_run(&f, a); // and it is cached anew, in another place perhaps
    assert_int_equal(block_fixture_match(&f, b), 3);
    assert_int_equal(block_manager_num_taken(&f.manager, b, 4, 1), 1);
    block_fixture_fini(&f);
}

static void test_without_caching_nothing_is_hashed_or_found(void **state) {
    (void)state;
    struct block_fixture f = {0};
    struct err err;
    assert_int_equal(block_manager_init(&f.manager, 8, BLOCK_SIZE, &one_group, false, 7, &err), OK);
    assert_int_equal(block_fixture_run(&f, block_fixture_add(&f, 0, 9)), 0);
    assert_int_equal(block_fixture_run(&f, block_fixture_add(&f, 0, 9)), 0);
    assert_int_equal(f.manager.stats.num_hashed, 0);
    assert_int_equal(f.manager.num_free, 2);
    block_fixture_fini(&f);
}

static void test_b2_sequence_refuses_what_cannot_be(void **state) {
    (void)state;
    struct err err;
    struct sequence *seq;
    int32_t token = 1;
    assert_int_equal(sequence_create(&seq, 0, &token, 0, 1, 4, 1, &err), ERR_INVALID);
    assert_string_equal(err.message, "the prompt has no tokens");
    assert_int_equal(sequence_create(&seq, 0, &token, 1, 0, 4, 1, &err), ERR_INVALID);
    assert_int_equal(sequence_create(&seq, 0, &token, 1, 1, 0, 1, &err), ERR_INVALID);
    assert_int_equal(sequence_create(&seq, 0, &token, 1, INT32_MAX, 4, 1, &err), ERR_INVALID);
    assert_int_equal(sequence_create(&seq, 0, &token, 1, UINT32_MAX, 4, 1, &err), ERR_INVALID);
    assert_null(seq);
    sequence_destroy(NULL);
}

static void test_b10_block_size_is_each_sequences_own(void **state) {
    (void)state;
    static const struct {
        uint32_t block_size, num_blocks;
    } cases[] = {{1, 9}, {3, 3}, {5, 2}, {9, 1}, {16, 1}, {256, 1}};
    int32_t tokens[7] = {0}; // and 3 more, the last of which needs no KV
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sequence *seq;
        struct err err;
        assert_int_equal(sequence_create(&seq, 0, tokens, 7, 3, cases[i].block_size, 1, &err), OK);
        assert_int_equal(seq->num_blocks_max, cases[i].num_blocks);
        sequence_destroy(seq);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_refuses_an_empty_cache),
        cmocka_unit_test(test_grow_is_all_or_nothing),
        cmocka_unit_test(test_full_hit_on_exact_block_multiple_leaves_a_block_to_compute),
        cmocka_unit_test(test_one_block_prompt_is_never_matched),
        cmocka_unit_test(test_partial_blocks_are_not_published),
        cmocka_unit_test(test_blocks_are_invisible_until_published),
        cmocka_unit_test(test_generated_blocks_are_published),
        cmocka_unit_test(test_freed_blocks_stay_findable_until_allocated_again),
        cmocka_unit_test(test_least_recently_used_prefix_is_evicted_first),
        cmocka_unit_test(test_stale_hash_after_reallocation_is_no_hit),
        cmocka_unit_test(test_revived_block_leaves_the_free_list_and_keeps_its_content),
        cmocka_unit_test(test_num_taken_counts_new_and_revived_blocks),
        cmocka_unit_test(test_b18_duplicate_content_is_kept_once),
        cmocka_unit_test(test_duplicate_of_a_free_cached_block_revives_it),
        cmocka_unit_test(test_b19_equal_hash_of_other_tokens_is_no_hit),
        cmocka_unit_test(test_b19_equal_hash_and_tokens_after_another_prefix_is_no_hit),
        cmocka_unit_test(test_b19_collision_is_not_published_over_the_other),
        cmocka_unit_test(test_salts_do_not_share),
        cmocka_unit_test(test_hashes_depend_on_the_seed),
        cmocka_unit_test(test_b27_each_block_is_hashed_once),
        cmocka_unit_test(test_match_notices_eviction_and_extension),
        cmocka_unit_test(test_without_caching_nothing_is_hashed_or_found),
        cmocka_unit_test(test_b2_sequence_refuses_what_cannot_be),
        cmocka_unit_test(test_b10_block_size_is_each_sequences_own),
    };
    return cmocka_run_group_tests_name("block_manager", tests, NULL, NULL);
}
