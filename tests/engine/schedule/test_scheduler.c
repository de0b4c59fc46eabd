/* What holds for both policies, one rule each, mostly with mixed. test_scheduler_policy.c has what
 * is particular to each. Bug ids are those of the original project that must not exist here. */
#include <string.h>

#include "engine/schedule/scheduler_fixture.h"
#include "support/cmocka_all.h"

static const enum schedule_policy policies[] = {SCHEDULE_MIXED, SCHEDULE_PREFILL_FIRST};

static void test_create_refuses_zeros(void **state) {
    (void)state;
    struct scheduler_config good = {.max_num_seqs = 1,
                                    .max_num_batched_tokens = 1,
                                    .num_blocks = 1,
                                    .block_size = 1,
                                    .groups = {.num_groups = 1}};
    struct scheduler_config configs[] = {good, good, good, good, good};
    configs[0].max_num_seqs = 0;
    configs[1].max_num_batched_tokens = 0;
    configs[2].num_blocks = 0;
    configs[3].block_size = 0;
    configs[4].groups.num_groups = 0;
    struct scheduler *scheduler;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        assert_int_equal(scheduler_create(&scheduler, &configs[i], &err), ERR_INVALID);
        assert_null(scheduler);
    }
    assert_int_equal(scheduler_create(&scheduler, &good, &err), OK);
    scheduler_destroy(scheduler);
    scheduler_destroy(NULL);
}

static void test_b1_request_that_can_never_fit_is_refused(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.num_blocks = 4});
    int32_t tokens[16] = {0};
    struct sequence *seq;
    struct err err;
    assert_int_equal(sequence_create(&seq, 0, tokens, 10, 8, 4, 1, &err), OK);
    assert_int_equal(scheduler_add(f.scheduler, seq, &err), ERR_INVALID);
    assert_string_equal(err.message, "10 prompt tokens and up to 8 generated ones need 5 KV blocks "
                                     "of 4 tokens, the whole cache has 4");
    assert_false(scheduler_has_unfinished(f.scheduler));
    sequence_destroy(seq);
    fixture_fini(&f);
}

static void test_b1_sequence_may_grow_to_the_whole_cache(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i], .num_blocks = 4});
        struct sequence *a = fixture_add(&f, 0, 3, 13), *b = fixture_add(&f, 100, 3, 14);
        fixture_run(&f, 100);
        assert_int_equal(a->num_tokens, 16);
        assert_int_equal(b->num_tokens, 17); // the last token needs no KV
        assert_int_equal(scheduler_num_blocks_peak(f.scheduler), 4);
        fixture_fini(&f);
    }
}

static void test_b1_schedule_of_nothing_is_empty(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i]});
        fixture_schedule(&f);
        assert_int_equal(f.schedule.num_items, 0);
        assert_int_equal(f.schedule.num_tokens, 0);
        fixture_schedule(&f); // needs no advance in between
        scheduler_advance(f.scheduler);
        fixture_add(&f, 0, 4, 1);
        assert_int_equal(fixture_step(&f), 4);
        fixture_schedule(&f);
        assert_int_equal(f.schedule.num_items, 0);
        fixture_fini(&f);
    }
}

static void test_b4_max_num_seqs_caps_the_active(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i], .max_num_seqs = 2});
        for (int32_t k = 0; k < 5; k++) fixture_add(&f, 100 * k, 4, 6);
        while (scheduler_has_unfinished(f.scheduler)) {
            fixture_schedule(&f);
            uint32_t num_holding = 0;
            for (uint32_t k = 0; k < f.num_seqs; k++) num_holding += f.seqs[k]->num_blocks > 0;
            assert_true(num_holding <= 2);
            assert_int_equal(scheduler_num_running(f.scheduler), num_holding);
            assert_int_equal(f.schedule.num_items, num_holding); // and all of them run
            fixture_complete(&f);
        }
        fixture_fini(&f);
    }
}

static void test_b4_no_more_are_active_than_a_step_can_decode(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f,
                     (struct scheduler_config){.policy = policies[i], .max_num_batched_tokens = 3});
        for (int32_t k = 0; k < 6; k++) fixture_add(&f, 100 * k, 1, 4);
        fixture_step(&f);
        assert_int_equal(scheduler_num_running(f.scheduler), 3);
        fixture_schedule(&f);
        assert_int_equal(f.schedule.num_decode_tokens, 3);
        fixture_complete(&f);
        assert_int_equal(fixture_run(&f, 20), 6);
        fixture_fini(&f);
    }
}

static void test_b10_sequence_made_for_another_block_size_is_refused(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.block_size = 4});
    int32_t tokens[8] = {0};
    struct sequence *seq;
    struct err err;
    assert_int_equal(sequence_create(&seq, 0, tokens, 8, 8, 16, 1, &err), OK);
    assert_int_equal(scheduler_add(f.scheduler, seq, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "4 of 4 tokens"));
    sequence_destroy(seq);
    fixture_fini(&f);
}

static void test_b10_any_block_size_gives_each_position_its_slot(void **state) {
    (void)state;
    static const uint32_t block_sizes[] = {1, 2, 3, 7, 16, 256, 512};
    for (size_t i = 0; i < ARRAY_LEN(block_sizes); i++) {
        uint32_t block_size = block_sizes[i];
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.block_size = block_size, .num_blocks = 1000});
        struct sequence *seq = fixture_add(&f, 0, 500, 20);
        while (scheduler_has_unfinished(f.scheduler)) {
            fixture_schedule(&f);
            uint32_t end = seq->num_computed_tokens + f.schedule.items[0].num_tokens;
            assert_int_equal(seq->num_blocks, (end + block_size - 1) / block_size);
            fixture_complete(&f);
        }
        assert_int_equal(seq->num_tokens, 520);
        fixture_fini(&f);
    }
}

static void test_b18_identical_prompts_in_a_step_are_computed_once(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i],
                                                   .max_num_batched_tokens = 4096,
                                                   .block_size = 256,
                                                   .enable_prefix_caching = true});
        fixture_add(&f, 0, 600, 8);
        struct sequence *same = fixture_add(&f, 0, 600, 8);
        assert_int_equal(fixture_step(&f), 600);
        assert_int_equal(same->status, SEQUENCE_WAITING);
        fixture_schedule(&f);
        assert_int_equal(same->num_cached_tokens, 512);
        assert_int_equal(same->num_scheduled_tokens, 88);
        fixture_complete(&f);
        assert_int_equal(scheduler_num_blocks_used(f.scheduler), 4); // 2 shared, 1 each
        fixture_fini(&f);
    }
}

static void test_b18_of_many_identical_prompts_one_is_computed(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.enable_prefix_caching = true,
                                               .max_num_batched_tokens = 100});
    for (int i = 0; i < 10; i++) fixture_add(&f, 0, 41, 3);
    assert_int_equal(fixture_step(&f), 41);
    assert_int_equal(fixture_step(&f), 1 + 9); // one decodes, nine compute their last token
    assert_int_equal(scheduler_num_cached_tokens(f.scheduler), 9 * 40);
    fixture_fini(&f);
}

static void test_b18_deferred_sequence_lets_others_pass(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(
            &f, (struct scheduler_config){.policy = policies[i], .enable_prefix_caching = true});
        fixture_add(&f, 0, 9, 4);
        struct sequence *same = fixture_add(&f, 0, 9, 4), *other = fixture_add(&f, 100, 9, 4);
        fixture_step(&f);
        assert_int_equal(same->status, SEQUENCE_WAITING);
        assert_int_equal(other->status, SEQUENCE_RUNNING);
        fixture_step(&f);
        assert_int_equal(same->num_cached_tokens, 8);
        fixture_fini(&f);
    }
}

static void test_b18_deferred_sequence_keeps_its_seat(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_seqs = 2, .enable_prefix_caching = true});
    fixture_add(&f, 0, 9, 4);
    struct sequence *same = fixture_add(&f, 0, 9, 4), *other = fixture_add(&f, 100, 9, 4);
    fixture_step(&f);
    assert_int_equal(other->status, SEQUENCE_WAITING);
    fixture_step(&f);
    assert_int_equal(same->status, SEQUENCE_RUNNING);
    fixture_fini(&f);
}

static void test_b18_prefix_computed_in_chunks_is_waited_for(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 10,
                                               .block_size = 16,
                                               .enable_prefix_caching = true});
    fixture_add(&f, 100, 1, 30); // decodes all the while: chunks are of 9 and end within blocks
    fixture_step(&f);
    struct sequence *a = fixture_add(&f, 0, 40, 2), *same = fixture_add(&f, 0, 40, 2);
    while (a->num_computed_tokens < 32) {
        fixture_step(&f);
        assert_int_equal(same->status, SEQUENCE_WAITING);
    }
    fixture_run(&f, 100);
    assert_int_equal(same->num_cached_tokens, 32);
    fixture_fini(&f);
}

static void test_b18_deferral_ends_with_the_other_one(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.enable_prefix_caching = true});
    struct sequence *a = fixture_add(&f, 0, 9, 4), *same = fixture_add(&f, 0, 9, 4);
    fixture_schedule(&f);
    assert_int_equal(same->num_deferrals, 1);
    scheduler_finish(f.scheduler, a); // aborted: its blocks will never be published
    fixture_complete(&f);
    assert_int_equal(fixture_step(&f), 9);
    assert_int_equal(same->status, SEQUENCE_RUNNING);
    assert_int_equal(same->num_cached_tokens, 0);
    fixture_fini(&f);
}

static void test_b18_deferrals_are_limited(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.enable_prefix_caching = true});
    fixture_add(&f, 0, 9, 4);
    struct sequence *same = fixture_add(&f, 0, 9, 4);
    same->num_deferrals = same->num_tokens; // as if what it waited for was evicted again each time
    assert_int_equal(fixture_step(&f), 18);
    assert_int_equal(same->status, SEQUENCE_RUNNING);
    fixture_fini(&f);
}

static void test_b24_unfinished_chunks_need_no_token(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f,
                     (struct scheduler_config){.policy = policies[i], .max_num_batched_tokens = 8});
        struct sequence *seq = fixture_add(&f, 0, 20, 4);
        for (uint32_t step = 0; step < 3; step++) {
            fixture_schedule(&f);
            assert_int_equal(f.schedule.num_items, 1);
            assert_int_equal(f.schedule.items[0].num_tokens, step < 2 ? 8 : 4);
            assert_int_equal(f.schedule.items[0].needs_token, step == 2);
            assert_int_equal(f.schedule.num_prefill_tokens, f.schedule.num_tokens);
            fixture_complete(&f);
        }
        assert_int_equal(sequence_num_generated(seq), 1);
        fixture_fini(&f);
    }
}

static void test_b27_blocked_sequence_is_hashed_once(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i],
                                                   .num_blocks = 10,
                                                   .enable_prefix_caching = true});
        fixture_add(&f, 0, 9, 30);
        fixture_step(&f);
        struct sequence *blocked = fixture_add(&f, 0, 37, 1);
        for (int step = 0; step < 20; step++) fixture_step(&f);
        assert_int_equal(blocked->status, SEQUENCE_WAITING);
        // Its two blocks that hit and the one that misses, and those of the running one.
        uint64_t num_running_hashed = f.seqs[0]->num_hashes;
        assert_int_equal(scheduler_blocks(f.scheduler)->stats.num_hashed, num_running_hashed + 3);
        fixture_run(&f, 100);
        assert_int_equal(blocked->num_hashes, 9);
        fixture_fini(&f);
    }
}

static void test_decode_runs_exactly_the_newest_token(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i]});
        struct sequence *seq = fixture_add(&f, 0, 5, 8);
        fixture_step(&f);
        for (uint32_t known = 6; known < 12; known++) {
            fixture_schedule(&f);
            assert_int_equal(seq->num_computed_tokens, known - 1); // its position (#67)
            assert_int_equal(f.schedule.items[0].num_tokens, 1);
            assert_true(f.schedule.items[0].needs_token);
            assert_int_equal(f.schedule.num_decode_tokens, 1);
            fixture_complete(&f);
            assert_int_equal(seq->num_tokens, known + 1);
        }
        fixture_fini(&f);
    }
}

static void test_full_hit_on_exact_block_multiple_still_computes(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i],
                                                   .max_num_batched_tokens = 1024,
                                                   .block_size = 256,
                                                   .enable_prefix_caching = true});
        fixture_add(&f, 0, 512, 1);
        assert_int_equal(fixture_step(&f), 512);
        fixture_add(&f, 0, 512, 1);
        assert_int_equal(fixture_step(&f), 256); // (#117)
        assert_false(scheduler_has_unfinished(f.scheduler));
        fixture_fini(&f);
    }
}

// Two sequences in a cache that is too small for both; returns when the second was preempted.
static void run_until_preempted(struct fixture *f) {
    uint64_t num_preemptions = scheduler_num_preemptions(f->scheduler);
    for (int i = 0; i < 600; i++) {
        fixture_schedule(f);
        if (scheduler_num_preemptions(f->scheduler) > num_preemptions) return;
        fixture_complete(f);
    }
    fail_msg("nothing was preempted");
}

// Needs its next block for a token that is sampled already: known tokens are a block multiple and
// one.
static void check_preempted_keeps_its_tokens(struct scheduler_config config, uint32_t num_known) {
    struct fixture f;
    config.max_num_batched_tokens = 1024;
    config.block_size = 256;
    fixture_init(&f, config);
    fixture_add(&f, 0, 300, num_known - 1);
    fixture_step(&f);
    struct sequence *b = fixture_add(&f, 5000, 256, num_known);
    while (b->num_tokens < num_known) fixture_step(&f);
    run_until_preempted(&f);
    assert_int_equal(b->status, SEQUENCE_WAITING);
    assert_int_equal(b->num_tokens, num_known);
    while (b->num_scheduled_tokens == 0) {
        fixture_complete(&f);
        fixture_schedule(&f);
    }
    // All known tokens are computed, the sampled one too, and only then comes the next (#217).
    assert_int_equal(b->num_computed_tokens + b->num_scheduled_tokens, num_known);
    fixture_complete(&f);
    assert_int_equal(b->num_tokens, num_known + 1);
    assert_int_equal(b->token_ids[num_known - 1], 20000 + num_known - 1);
    fixture_run(&f, 600);
    assert_int_equal(b->num_tokens, 256 + num_known);
    fixture_fini(&f);
}

static void test_preempted_sequence_keeps_its_sampled_tokens(void **state) {
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        struct scheduler_config config = {.enable_prefix_caching = cached};
        config.policy = SCHEDULE_PREFILL_FIRST;
        config.num_blocks = 3;
        check_preempted_keeps_its_tokens(config, 257);
        // Mixed admits b only if it can have two blocks.
        config.policy = SCHEDULE_MIXED;
        config.num_blocks = 5;
        check_preempted_keeps_its_tokens(config, 513);
    }
}

static void test_preempted_sequence_hits_its_own_blocks(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.num_blocks = 10, .enable_prefix_caching = true});
    fixture_add(&f, 0, 4, 14);
    struct sequence *b = fixture_add(&f, 100, 12, 20);
    run_until_preempted(&f);
    fixture_complete(&f);
    uint32_t num_cached_tokens = b->num_cached_tokens;
    while (b->status == SEQUENCE_WAITING) fixture_step(&f);
    assert_int_equal(num_cached_tokens, 0);
    assert_int_equal(b->num_cached_tokens, 0); // stays what it was at its first admission
    assert_int_equal(scheduler_num_cached_tokens(f.scheduler), 0);
    assert_true(scheduler_blocks(f.scheduler)->stats.num_hits >= 3);
    fixture_run(&f, 100);
    fixture_fini(&f);
}

static void test_last_arrived_is_preempted_and_comes_back_first(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i], .num_blocks = 11});
        struct sequence *a = fixture_add(&f, 0, 5, 20), *b = fixture_add(&f, 100, 5, 20);
        struct sequence *c = fixture_add(&f, 200, 5, 20);
        fixture_step(&f);
        assert_int_equal(scheduler_num_running(f.scheduler), 3);
        struct sequence *d = fixture_add(&f, 300, 40, 1);
        run_until_preempted(&f);
        assert_int_equal(a->status, SEQUENCE_RUNNING);
        assert_int_equal(b->status, SEQUENCE_RUNNING);
        assert_int_equal(c->status, SEQUENCE_WAITING);
        assert_ptr_equal(c->next, d); // in front of who never ran
        assert_int_equal(c->num_blocks, 0);
        assert_int_equal(c->num_computed_tokens, 0);
        fixture_complete(&f);
        while (d->status == SEQUENCE_WAITING) fixture_step(&f);
        assert_true(c->was_scheduled && c->status != SEQUENCE_WAITING);
        fixture_run(&f, 100);
        fixture_fini(&f);
    }
}

static void test_2_6_sequence_that_preempts_itself_does_not_run(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i], .num_blocks = 6});
        fixture_add(&f, 0, 6, 7);
        struct sequence *b = fixture_add(&f, 100, 7, 9);
        fixture_step(&f);
        assert_int_equal(b->status, SEQUENCE_RUNNING);
        while (scheduler_num_blocks_used(f.scheduler) < 6) fixture_step(&f);
        run_until_preempted(&f);
        // Now that its own blocks are free again there would be one for its next token.
        assert_true(scheduler_blocks(f.scheduler)->num_free > 0);
        assert_int_equal(b->status, SEQUENCE_WAITING);
        assert_int_equal(b->schedule_index, SEQUENCE_UNSCHEDULED);
        for (uint32_t k = 0; k < f.schedule.num_items; k++) {
            assert_ptr_not_equal(f.schedule.items[k].seq, b);
        }
        assert_int_equal(f.schedule.num_items, 1);
        fixture_complete(&f);
        fixture_run(&f, 100);
        assert_int_equal(b->num_tokens, 16);
        fixture_fini(&f);
    }
}

static void test_blocked_head_is_not_overtaken(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i], .num_blocks = 8});
        fixture_add(&f, 0, 12, 8);
        fixture_step(&f);
        struct sequence *big = fixture_add(&f, 100, 28, 1), *small = fixture_add(&f, 200, 1, 1);
        fixture_step(&f);
        assert_int_equal(big->status, SEQUENCE_WAITING);
        assert_int_equal(small->status, SEQUENCE_WAITING);
        fixture_run(&f, 100);
        fixture_fini(&f);
    }
}

static void test_statistics(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.enable_prefix_caching = true, .max_num_seqs = 2});
    fixture_add(&f, 0, 9, 2);
    fixture_add(&f, 100, 9, 2);
    fixture_add(&f, 200, 9, 2);
    assert_int_equal(scheduler_num_waiting(f.scheduler), 3);
    fixture_step(&f);
    assert_int_equal(scheduler_num_waiting(f.scheduler), 1);
    assert_int_equal(scheduler_num_running(f.scheduler), 2);
    assert_int_equal(scheduler_num_blocks_used(f.scheduler), 6);
    assert_ptr_equal(scheduler_first(f.scheduler), f.seqs[0]);
    fixture_step(&f);
    assert_ptr_equal(scheduler_first(f.scheduler), f.seqs[2]);
    fixture_run(&f, 10);
    assert_null(scheduler_first(f.scheduler));
    assert_int_equal(scheduler_num_blocks_used(f.scheduler), 0);
    assert_int_equal(scheduler_num_blocks_peak(f.scheduler), 6);
    struct sequence *again = fixture_add(&f, 0, 9, 2);
    fixture_step(&f);
    assert_int_equal(again->num_cached_tokens, 8);
    assert_int_equal(scheduler_num_cached_tokens(f.scheduler), 8);
    assert_int_equal(scheduler_num_preemptions(f.scheduler), 0);
    fixture_fini(&f);
}

static void test_finish_is_legal_at_any_time(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.policy = policies[i],
                                                   .max_num_seqs = 4,
                                                   .enable_prefix_caching = true});
        for (int32_t k = 0; k < 6; k++) fixture_add(&f, 100 * k, 9, 9);
        scheduler_finish(f.scheduler, f.seqs[5]); // waiting
        assert_int_equal(scheduler_num_waiting(f.scheduler), 5);
        fixture_step(&f);
        scheduler_finish(f.scheduler, f.seqs[0]); // running, between steps
        fixture_schedule(&f);
        struct sequence *victim = f.schedule.items[0].seq;
        scheduler_finish(f.scheduler, victim); // in a step
        assert_int_equal(victim->status, SEQUENCE_FINISHED);
        assert_int_equal(victim->num_blocks, 0);
        assert_int_equal(victim->num_scheduled_tokens, 0);
        scheduler_advance(f.scheduler);
        assert_int_equal(victim->num_computed_tokens, 0);
        scheduler_finish(f.scheduler, f.seqs[2]); // computed, its token is not taken
        scheduler_finish(f.scheduler, f.seqs[2]); // twice is nothing
        assert_int_equal(f.seqs[2]->status, SEQUENCE_FINISHED);
        fixture_complete(&f);
        fixture_run(&f, 100);
        for (uint32_t k = 1; k < 5; k++) {
            bool is_aborted = f.seqs[k] == victim || k == 2;
            assert_int_equal(f.seqs[k]->status, SEQUENCE_FINISHED);
            assert_int_equal(f.seqs[k]->num_tokens == 18, !is_aborted);
        }
        fixture_fini(&f);
    }
}

static void test_step_whose_items_are_all_aborted_computes_nothing(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){0});
    fixture_add(&f, 0, 9, 9);
    struct sequence *other = fixture_add(&f, 100, 60, 4);
    fixture_schedule(&f);
    scheduler_finish(f.scheduler, f.seqs[0]);
    scheduler_finish(f.scheduler, other);
    scheduler_advance(f.scheduler);
    assert_int_equal(f.seqs[0]->num_computed_tokens + other->num_computed_tokens, 0);
    fixture_add(&f, 200, 5, 1);
    assert_int_equal(fixture_step(&f), 5);
    fixture_fini(&f);
}

static void test_destroy_lets_go_of_queued_sequences(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_seqs = 1});
    fixture_add(&f, 0, 9, 9);
    fixture_add(&f, 100, 9, 9);
    fixture_schedule(&f);
    scheduler_destroy(f.scheduler);
    schedule_fini(&f.schedule);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(f.seqs[i]->status, SEQUENCE_FINISHED);
        sequence_destroy(f.seqs[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_refuses_zeros),
        cmocka_unit_test(test_b1_request_that_can_never_fit_is_refused),
        cmocka_unit_test(test_b1_sequence_may_grow_to_the_whole_cache),
        cmocka_unit_test(test_b1_schedule_of_nothing_is_empty),
        cmocka_unit_test(test_b4_max_num_seqs_caps_the_active),
        cmocka_unit_test(test_b4_no_more_are_active_than_a_step_can_decode),
        cmocka_unit_test(test_b10_sequence_made_for_another_block_size_is_refused),
        cmocka_unit_test(test_b10_any_block_size_gives_each_position_its_slot),
        cmocka_unit_test(test_b18_identical_prompts_in_a_step_are_computed_once),
        cmocka_unit_test(test_b18_of_many_identical_prompts_one_is_computed),
        cmocka_unit_test(test_b18_deferred_sequence_lets_others_pass),
        cmocka_unit_test(test_b18_deferred_sequence_keeps_its_seat),
        cmocka_unit_test(test_b18_prefix_computed_in_chunks_is_waited_for),
        cmocka_unit_test(test_b18_deferral_ends_with_the_other_one),
        cmocka_unit_test(test_b18_deferrals_are_limited),
        cmocka_unit_test(test_b24_unfinished_chunks_need_no_token),
        cmocka_unit_test(test_b27_blocked_sequence_is_hashed_once),
        cmocka_unit_test(test_decode_runs_exactly_the_newest_token),
        cmocka_unit_test(test_full_hit_on_exact_block_multiple_still_computes),
        cmocka_unit_test(test_preempted_sequence_keeps_its_sampled_tokens),
        cmocka_unit_test(test_preempted_sequence_hits_its_own_blocks),
        cmocka_unit_test(test_last_arrived_is_preempted_and_comes_back_first),
        cmocka_unit_test(test_2_6_sequence_that_preempts_itself_does_not_run),
        cmocka_unit_test(test_blocked_head_is_not_overtaken),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_finish_is_legal_at_any_time),
        cmocka_unit_test(test_step_whose_items_are_all_aborted_computes_nothing),
        cmocka_unit_test(test_destroy_lets_go_of_queued_sequences),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
