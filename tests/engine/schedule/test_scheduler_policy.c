/* What each policy puts into a step, number by number. Bug ids as in test_scheduler.c. */
#include "engine/schedule/scheduler_fixture.h"
#include "support/cmocka_all.h"

static void test_mixed_step_is_decodes_then_chunks_then_waiting(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 16});
    struct sequence *a = fixture_add(&f, 0, 4, 20), *b = fixture_add(&f, 100, 5, 20);
    fixture_step(&f);
    struct sequence *c = fixture_add(&f, 200, 18, 4), *d = fixture_add(&f, 300, 20, 4);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_decode_tokens, 2);
    assert_ptr_equal(f.schedule.items[0].seq, a);
    assert_ptr_equal(f.schedule.items[1].seq, b);
    assert_ptr_equal(f.schedule.items[2].seq, c);
    assert_int_equal(f.schedule.items[2].num_tokens, 14);
    assert_int_equal(f.schedule.num_items, 3);
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(c->num_scheduled_tokens, 4); // its rest first
    assert_int_equal(d->num_scheduled_tokens, 10);
    assert_int_equal(f.schedule.num_decode_tokens, 2);
    assert_int_equal(f.schedule.num_prefill_tokens, 14);
    assert_int_equal(f.schedule.num_tokens, 16);
    fixture_complete(&f);
    fixture_run(&f, 100);
    fixture_fini(&f);
}

static void test_b5_mixed_decodes_go_on_while_prompts_arrive(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 16});
    struct sequence *seq = fixture_add(&f, 0, 4, 12);
    fixture_step(&f);
    for (int32_t i = 1; i < 12; i++) {
        fixture_add(&f, 100 * i, 16, 1); // a budget's worth of prefill every step
        fixture_step(&f);
        assert_int_equal(sequence_num_generated(seq), i + 1);
    }
    fixture_fini(&f);
}

static void test_mixed_allocates_blocks_as_chunks_need_them(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 6});
    struct sequence *seq = fixture_add(&f, 0, 20, 2);
    static const uint32_t want[] = {2, 3, 5, 5};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        fixture_step(&f);
        assert_int_equal(seq->num_blocks, want[i]);
    }
    fixture_fini(&f);
}

static void test_mixed_admission_leaves_running_sequences_their_next_block(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.num_blocks = 8});
    fixture_add(&f, 0, 8, 8); // 3 blocks with its first decode, 4 at its end
    fixture_step(&f);
    fixture_step(&f);
    struct sequence *b = fixture_add(&f, 100, 16, 4); // 4 blocks and 1 to decode into
    fixture_step(&f);
    assert_int_equal(b->status, SEQUENCE_WAITING); // 5 are free, 1 of them is spoken for
    fixture_run(&f, 100);
    assert_int_equal(scheduler_num_preemptions(f.scheduler), 0);
    fixture_fini(&f);

    fixture_init(&f, (struct scheduler_config){.num_blocks = 9});
    fixture_add(&f, 0, 8, 8);
    fixture_step(&f);
    fixture_step(&f);
    b = fixture_add(&f, 100, 16, 4);
    fixture_step(&f);
    assert_int_equal(b->status, SEQUENCE_RUNNING);
    fixture_run(&f, 100);
    assert_int_equal(scheduler_num_preemptions(f.scheduler), 0);
    fixture_fini(&f);
}

// The same for two that are admitted in one step: the second leaves the first its next block.
static void test_mixed_admission_leaves_those_of_this_step_their_next_block(void **state) {
    (void)state;
    for (uint32_t num_blocks = 5; num_blocks <= 6; num_blocks++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.num_blocks = num_blocks});
        fixture_add(&f, 0, 8, 4); // 2 blocks and 1 to decode into
        struct sequence *b = fixture_add(&f, 100, 8, 4);
        fixture_step(&f);
        assert_int_equal(b->status, num_blocks == 5 ? SEQUENCE_WAITING : SEQUENCE_RUNNING);
        fixture_run(&f, 100);
        assert_int_equal(scheduler_num_preemptions(f.scheduler), 0);
        fixture_fini(&f);
    }
}

static void test_mixed_admission_counts_what_partial_prefills_still_need(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.num_blocks = 12, .max_num_batched_tokens = 8});
    fixture_add(&f, 0, 34, 2); // 9 blocks, in chunks
    struct sequence *b = fixture_add(&f, 100, 12, 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(b->status, SEQUENCE_WAITING); // though most blocks are free at first
        fixture_step(&f);
    }
    fixture_run(&f, 100);
    assert_int_equal(scheduler_num_preemptions(f.scheduler), 0);
    fixture_fini(&f);
}

// An older sequence in prefill (overtaken by a younger one while it was deferred) takes back the
// blocks of the younger one, which may be in the schedule already.
static void test_mixed_preempting_a_scheduled_decode_takes_it_out(void **state) {
    (void)state;
    uint32_t num_taken_out = 0;
    for (uint32_t num_blocks = 34; num_blocks < 44; num_blocks++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 4,
                                                   .num_blocks = num_blocks,
                                                   .block_size = 2,
                                                   .enable_prefix_caching = true});
        fixture_add(&f, 0, 3, 1);
        struct sequence *old = fixture_add(&f, 0, 62, 4), *young = fixture_add(&f, 1000, 1, 60);
        fixture_step(&f);
        assert_int_equal(young->status, SEQUENCE_RUNNING);
        assert_int_equal(old->num_deferrals, 1);
        while (young->status == SEQUENCE_RUNNING) {
            // With room in its last block it decodes without asking for one.
            bool had_room = young->num_tokens <= young->num_blocks * 2;
            fixture_schedule(&f);
            if (young->status == SEQUENCE_WAITING && had_room && !old->is_prefilled) {
                assert_int_equal(f.schedule.num_decode_tokens, 0);
                assert_int_equal(f.schedule.num_items, 1);
                assert_ptr_equal(f.schedule.items[0].seq, old);
                assert_int_equal(f.schedule.num_tokens, f.schedule.items[0].num_tokens);
                assert_int_equal(young->num_scheduled_tokens, 0);
                num_taken_out++;
            }
            fixture_complete(&f);
        }
        fixture_run(&f, 200);
        assert_int_equal(young->num_tokens, 61);
        assert_int_equal(old->num_tokens, 66);
        fixture_fini(&f);
    }
    assert_true(num_taken_out > 0);
}

// Tokens that were appended without a step are kept when the sequence loses its blocks before they
// are computed, and the scheduler has no sequence in part any more.
static void test_a_preempted_sequence_keeps_tokens_appended_ahead(void **state) {
    (void)state;
    enum { AHEAD = 3 };
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.num_blocks = 4});
    struct sequence *old = fixture_add(&f, 0, 4, 8), *young = fixture_add(&f, 100, 3, 13);
    while (old->num_tokens < 9) fixture_step(&f); // its next token needs a block
    uint32_t num_tokens = young->num_tokens;
    assert_true(scheduler_can_run_ahead(f.scheduler, young));
    for (int32_t i = 0; i < AHEAD; i++) scheduler_append_ahead(f.scheduler, young, 7000 + i);
    assert_false(scheduler_can_run_ahead(f.scheduler, old));
    fixture_step(&f);
    assert_int_equal(young->status, SEQUENCE_WAITING);
    assert_true(scheduler_can_run_ahead(f.scheduler, old));
    while (young->status == SEQUENCE_WAITING) fixture_step(&f);
    assert_int_equal(young->num_tokens, num_tokens + AHEAD + 1);
    assert_int_equal(young->num_computed_tokens, num_tokens + AHEAD);
    for (int32_t i = 0; i < AHEAD; i++) {
        assert_int_equal(young->token_ids[num_tokens + (uint32_t)i], 7000 + i);
    }
    fixture_run(&f, 100);
    assert_int_equal(young->num_tokens, 16);
    fixture_fini(&f);
}

static void test_prefill_first_prefill_wins_and_is_never_mixed(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.policy = SCHEDULE_PREFILL_FIRST});
    fixture_add(&f, 0, 4, 4);
    fixture_step(&f);
    fixture_add(&f, 100, 5, 4);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_decode_tokens, 0);
    assert_int_equal(f.schedule.num_prefill_tokens, 5);
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_decode_tokens, 2);
    assert_int_equal(f.schedule.num_prefill_tokens, 0);
    assert_ptr_equal(f.schedule.items[0].seq, f.seqs[0]);
    fixture_complete(&f);
    fixture_fini(&f);
}

static void test_prefill_first_cuts_only_the_first_prompt_of_a_batch(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.policy = SCHEDULE_PREFILL_FIRST,
                                               .max_num_batched_tokens = 15});
    struct sequence *a = fixture_add(&f, 0, 10, 2), *b = fixture_add(&f, 100, 20, 2);
    struct sequence *c = fixture_add(&f, 200, 10, 2), *d = fixture_add(&f, 300, 1, 2);
    fixture_schedule(&f);
    assert_int_equal(a->num_scheduled_tokens, 10); // b would have to be cut, so it is alone
    assert_int_equal(f.schedule.num_items, 1);
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(b->num_scheduled_tokens, 15);
    assert_int_equal(f.schedule.num_items, 1);
    assert_int_equal(b->num_blocks, 5); // the whole prompt's, at once
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(b->num_scheduled_tokens, 5);
    assert_int_equal(c->num_scheduled_tokens, 10); // fits exactly; then the budget is used up
    assert_int_equal(d->num_scheduled_tokens, 0);
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(d->num_scheduled_tokens, 1);
    assert_int_equal(f.schedule.num_items, 1);
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_decode_tokens, 4);
    fixture_complete(&f);
    assert_false(scheduler_has_unfinished(f.scheduler));
    fixture_fini(&f);
}

static void test_prefill_first_abort_of_a_cut_prompt(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.policy = SCHEDULE_PREFILL_FIRST,
                                               .max_num_batched_tokens = 15});
    fixture_add(&f, 0, 40, 2);
    struct sequence *b = fixture_add(&f, 100, 20, 2);
    fixture_schedule(&f);
    scheduler_finish(f.scheduler, f.seqs[0]);
    fixture_complete(&f);
    fixture_schedule(&f);
    assert_int_equal(b->num_scheduled_tokens, 15);
    fixture_complete(&f);
    scheduler_finish(f.scheduler, b);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_items, 0);
    fixture_fini(&f);
}

static void test_prefill_first_reserves_nothing(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.policy = SCHEDULE_PREFILL_FIRST, .num_blocks = 8});
    fixture_add(&f, 0, 8, 8);
    fixture_step(&f);
    fixture_step(&f);
    struct sequence *b = fixture_add(&f, 100, 16, 4);
    fixture_step(&f);
    assert_int_equal(b->status, SEQUENCE_RUNNING);
    fixture_run(&f, 100);
    fixture_fini(&f);
}

// Launches what is scheduled: every item's token is on its way.
static void launch(struct fixture *f) {
    scheduler_advance(f->scheduler);
    for (uint32_t i = 0; i < f->schedule.num_items; i++) {
        scheduler_append_pending(f->scheduler, f->schedule.items[i].seq, i);
    }
}

// Its last token is pending, and nothing of it is left to run.
static void test_one_that_has_all_its_tokens_lets_others_pass(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){0});
    struct sequence *full = fixture_add(&f, 0, 4, 1), *other = fixture_add(&f, 100, 4, 20);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_items, 2);
    launch(&f);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_items, 1);
    assert_ptr_equal(f.schedule.items[0].seq, other);
    scheduler_resolve_token(f.scheduler, other, 8);
    launch(&f);
    scheduler_finish(f.scheduler, other);
    fixture_schedule(&f); // alone with a token on its way: there is nothing to run
    assert_int_equal(f.schedule.num_items, 0);
    scheduler_resolve_token(f.scheduler, full, 7);
    fixture_fini(&f);
}

// Three outputs of one prompt, with and without a cache.
static void test_outputs_share_the_prompt_that_the_first_computes(void **state) {
    (void)state;
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 8,
                                                   .enable_prefix_caching = is_cached});
        struct sequence *first = fixture_add(&f, 0, 14, 8);
        f.origin = first;
        struct sequence *second = fixture_add(&f, 0, 14, 8), *third = fixture_add(&f, 0, 14, 8);
        f.origin = NULL;
        struct sequence *other = fixture_add(&f, 500, 2, 8);
        fixture_schedule(&f);
        assert_int_equal(f.schedule.num_items, 1);
        assert_int_equal(first->num_scheduled_tokens, 8);
        fixture_complete(&f);
        fixture_schedule(&f); // there is room for more, but the prompt is not there yet
        assert_int_equal(first->num_scheduled_tokens, 6);
        assert_int_equal(f.schedule.num_items, 2);
        assert_ptr_equal(f.schedule.items[1].seq, other);
        fixture_complete(&f);
        fixture_schedule(&f);
        struct sequence *outputs[] = {second, third};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(outputs[i]->num_computed_tokens, 12);
            assert_int_equal(outputs[i]->num_scheduled_tokens, 2);
            assert_memory_equal(outputs[i]->block_table, first->block_table, 3 * sizeof(uint32_t));
            assert_int_not_equal(outputs[i]->block_table[3], first->block_table[3]);
        }
        fixture_complete(&f);
        assert_int_equal(scheduler_num_cached_tokens(f.scheduler), 0); // the prompt counts once
        fixture_run(&f, 100);
        fixture_fini(&f);
    }
}

// The last token's logits are wanted, so its block is computed again.
static void test_outputs_of_a_prompt_of_full_blocks(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){0});
    f.origin = fixture_add(&f, 0, 8, 4);
    struct sequence *second = fixture_add(&f, 0, 8, 4);
    fixture_step(&f);
    fixture_schedule(&f);
    assert_int_equal(second->num_computed_tokens, 4);
    assert_int_equal(second->num_scheduled_tokens, 4);
    fixture_complete(&f);
    fixture_run(&f, 100);
    fixture_fini(&f);
}

// Whatever the prompt's length, the first keeps the window before its last block for the others.
static void test_outputs_share_the_window_of_the_prompt(void **state) {
    (void)state;
    for (uint32_t len = 9; len < 40; len++) {
        struct fixture f;
        fixture_init(&f, (struct scheduler_config){.groups = {1, {8}}});
        struct sequence *first = fixture_add(&f, 0, len, 4);
        first->is_origin = true;
        f.origin = first;
        struct sequence *second = fixture_add(&f, 0, len, 4);
        fixture_step(&f);
        fixture_schedule(&f);
        assert_int_equal(second->num_computed_tokens, (len - 1) / 4 * 4);
        fixture_complete(&f);
        fixture_run(&f, 100);
        fixture_fini(&f);
    }
}

// In the smallest cache that the request fits into, nothing can be kept for others.
static void test_keeping_for_other_outputs_preempts_nobody(void **state) {
    (void)state;
    for (uint32_t chunk = 4; chunk < 6; chunk++) {
        struct fixture f;
        struct scheduler_config config = {.max_num_batched_tokens = chunk, .groups = {1, {10}}};
        config.num_blocks = (uint32_t)block_groups_most(&config.groups, 4, 100, chunk);
        fixture_init(&f, config);
        fixture_add(&f, 0, 16, 4)->is_origin = true;
        fixture_run(&f, 100);
        assert_int_equal(scheduler_num_preemptions(f.scheduler), 0);
        fixture_fini(&f);
    }
}

static void test_an_output_whose_first_has_gone_computes_the_prompt(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_seqs = 1});
    struct sequence *first = fixture_add(&f, 0, 10, 1);
    f.origin = first;
    struct sequence *second = fixture_add(&f, 0, 10, 2);
    fixture_step(&f); // ends with its only token
    assert_int_equal(first->status, SEQUENCE_FINISHED);
    fixture_schedule(&f);
    assert_int_equal(second->num_scheduled_tokens, 10);
    fixture_complete(&f);
    fixture_run(&f, 100);
    fixture_fini(&f);
}

static void test_one_that_skips_the_cache_waits_for_no_block(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.enable_prefix_caching = true});
    fixture_add(&f, 0, 14, 4);
    struct sequence *waits = fixture_add(&f, 0, 14, 4), *skips = fixture_add(&f, 0, 14, 4);
    skips->skips_cache = true;
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_items, 2);
    assert_int_equal(waits->num_scheduled_tokens, 0);
    assert_int_equal(skips->num_scheduled_tokens, 14);
    fixture_complete(&f);
    fixture_run(&f, 100);
    assert_int_equal(skips->num_cached_tokens, 0);
    assert_int_equal(waits->num_cached_tokens, 12);
    fixture_fini(&f);
}

static void test_lower_priorities_are_admitted_first(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_seqs = 1});
    f.priority = 1;
    struct sequence *late = fixture_add(&f, 0, 4, 2);
    f.priority = -1;
    struct sequence *first = fixture_add(&f, 100, 4, 2), *second = fixture_add(&f, 200, 4, 2);
    f.priority = 0;
    struct sequence *third = fixture_add(&f, 300, 4, 2);
    struct sequence *const order[] = {first, second, third, late};
    for (size_t i = 0; i < 4; i++) {
        fixture_schedule(&f);
        assert_ptr_equal(f.schedule.items[0].seq, order[i]);
        fixture_complete(&f);
        fixture_step(&f);
        assert_int_equal(order[i]->status, SEQUENCE_FINISHED);
    }
    fixture_fini(&f);
}

// 6 blocks of 4 tokens for three sequences of 4 + 8 tokens: out of blocks when all decode.
static void test_the_least_important_is_preempted(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.num_blocks = 6});
    f.priority = 5;
    struct sequence *least = fixture_add(&f, 0, 4, 8); // arrived first
    f.priority = 0;
    struct sequence *a = fixture_add(&f, 100, 4, 8), *b = fixture_add(&f, 200, 4, 8);
    while (!scheduler_num_preemptions(f.scheduler)) fixture_step(&f);
    assert_int_equal(least->status, SEQUENCE_WAITING);
    assert_int_equal(a->status, SEQUENCE_RUNNING);
    assert_int_equal(b->status, SEQUENCE_RUNNING);
    fixture_run(&f, 100);
    fixture_fini(&f);
}

// While steps overlap: the last token of `first` is still being sampled, and `last` gives its
// blocks back for want of one more. Nothing is left to run, so the next schedule with items tells
// of it.
static void test_preemption_of_an_empty_schedule_is_told_by_the_next(void **state) {
    (void)state;
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_batched_tokens = 2, .num_blocks = 5});
    struct sequence *first = fixture_add(&f, 0, 2, 8), *last = fixture_add(&f, 100, 12, 1);
    while (!sequence_is_full(first)) {
        fixture_schedule(&f);
        assert_int_equal(f.schedule.num_preempted, 0);
        scheduler_advance(f.scheduler);
        if (first->has_pending_token) scheduler_resolve_token(f.scheduler, first, 7);
        if (sequence_num_uncomputed(first) == 0) scheduler_append_pending(f.scheduler, first, 0);
    }
    for (fixture_schedule(&f); f.schedule.num_items; fixture_schedule(&f)) {
        assert_int_equal(f.schedule.num_preempted, 0); // it goes on in its last block
        scheduler_advance(f.scheduler);
    }
    assert_int_equal(last->status, SEQUENCE_WAITING);
    scheduler_finish(f.scheduler, first);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_items, 1);
    assert_true(f.schedule.items[0].is_admitted);
    assert_int_equal(f.schedule.num_preempted, 1);
    assert_int_equal(f.schedule.preempted[0], last->arrival);
    scheduler_advance(f.scheduler);
    fixture_schedule(&f);
    assert_int_equal(f.schedule.num_preempted, 0);
    assert_false(f.schedule.items[0].is_admitted);
    fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_step_is_decodes_then_chunks_then_waiting),
        cmocka_unit_test(test_b5_mixed_decodes_go_on_while_prompts_arrive),
        cmocka_unit_test(test_mixed_allocates_blocks_as_chunks_need_them),
        cmocka_unit_test(test_mixed_admission_leaves_running_sequences_their_next_block),
        cmocka_unit_test(test_mixed_admission_leaves_those_of_this_step_their_next_block),
        cmocka_unit_test(test_mixed_admission_counts_what_partial_prefills_still_need),
        cmocka_unit_test(test_mixed_preempting_a_scheduled_decode_takes_it_out),
        cmocka_unit_test(test_a_preempted_sequence_keeps_tokens_appended_ahead),
        cmocka_unit_test(test_prefill_first_prefill_wins_and_is_never_mixed),
        cmocka_unit_test(test_prefill_first_cuts_only_the_first_prompt_of_a_batch),
        cmocka_unit_test(test_prefill_first_abort_of_a_cut_prompt),
        cmocka_unit_test(test_prefill_first_reserves_nothing),
        cmocka_unit_test(test_one_that_has_all_its_tokens_lets_others_pass),
        cmocka_unit_test(test_outputs_share_the_prompt_that_the_first_computes),
        cmocka_unit_test(test_outputs_of_a_prompt_of_full_blocks),
        cmocka_unit_test(test_outputs_share_the_window_of_the_prompt),
        cmocka_unit_test(test_keeping_for_other_outputs_preempts_nobody),
        cmocka_unit_test(test_an_output_whose_first_has_gone_computes_the_prompt),
        cmocka_unit_test(test_one_that_skips_the_cache_waits_for_no_block),
        cmocka_unit_test(test_lower_priorities_are_admitted_first),
        cmocka_unit_test(test_the_least_important_is_preempted),
        cmocka_unit_test(test_preemption_of_an_empty_schedule_is_told_by_the_next),
    };
    return cmocka_run_group_tests_name("scheduler_policy", tests, NULL, NULL);
}
