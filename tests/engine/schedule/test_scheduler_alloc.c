// The scheduler allocates at its creation and a sequence's; each failure there is ERR_NOMEM without
// a leak, and steps allocate nothing.
#include <malloc.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/schedule/scheduler.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

enum { NUM_SEQS = 12, BLOCK_SIZE = 4 };

static const struct scheduler_config config = {
    .max_num_seqs = 8,
    .max_num_batched_tokens = 32,
    .num_blocks = 20,
    .block_size = BLOCK_SIZE,
    .groups = {.num_groups = 1},
    .enable_prefix_caching = true,
};

static enum status create_sequence(struct sequence **out, uint64_t id, struct err *err) {
    int32_t prompt[24];
    for (int32_t i = 0; i < 24; i++) prompt[i] = i < 12 ? i : i + (int32_t)id;
    return sequence_create(out, id, prompt, 24, 20, BLOCK_SIZE, 1, err);
}

static enum status create_and_add(void *context, struct err *err) {
    (void)context;
    struct scheduler *scheduler;
    enum status status = scheduler_create(&scheduler, &config, err);
    if (status) return status;
    struct sequence *seq;
    status = create_sequence(&seq, 0, err);
    if (!status) status = scheduler_add(scheduler, seq, err);
    struct schedule schedule = {0};
    struct block_changes changes = {0};
    if (!status) status = schedule_init(&schedule, NUM_SEQS, err);
    if (!status) status = block_changes_init(&changes, config.num_blocks, err);
    if (!status) scheduler_observe(scheduler, &changes);
    if (!status) scheduler_schedule(scheduler, &schedule);
    scheduler_destroy(scheduler);
    block_changes_fini(&changes);
    schedule_fini(&schedule);
    sequence_destroy(seq);
    return status;
}

static void test_each_allocation_may_fail(void **state) {
    (void)state;
    struct alloc_sweep sweep = {.work = create_and_add};
    assert_int_equal(alloc_sweep_run(&sweep), 14);
}

static size_t allocated_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

// What the memory plan counts. Where every group has a window, most of it are prefixes.
static void test_bytes_are_those_of_the_plan(void **state) {
    (void)state;
    static const struct block_groups groups[] = {{1, {0}}, {3, {0, 64, 64}}, {2, {64, 32}}};
    for (size_t i = 0; i < 2 * ARRAY_LEN(groups); i++) {
        struct scheduler_config large = config;
        large.num_blocks = 30000;
        large.block_size = 16;
        large.groups = groups[i / 2];
        large.enable_prefix_caching = i % 2;
        struct scheduler *scheduler;
        size_t before = allocated_bytes();
        assert_int_equal(scheduler_create(&scheduler, &large, NULL), OK);
        size_t taken = allocated_bytes() - before, want = scheduler_bytes(&large);
        scheduler_destroy(scheduler);
        size_t off = taken > want ? taken - want : want - taken;
        if (off > 16 * 4096) fail_msg("case %zu: %zu bytes, want %zu", i, taken, want);
    }
}

static void test_steps_do_not_allocate(void **state) {
    (void)state;
    struct err err;
    struct scheduler *scheduler;
    struct sequence *seqs[NUM_SEQS];
    assert_int_equal(scheduler_create(&scheduler, &config, &err), OK);
    for (uint64_t i = 0; i < NUM_SEQS; i++) {
        assert_int_equal(create_sequence(&seqs[i], i / 2, &err), OK);
    }
    struct schedule schedule;
    struct block_changes changes;
    assert_int_equal(schedule_init(&schedule, NUM_SEQS, &err), OK);
    assert_int_equal(block_changes_init(&changes, config.num_blocks, &err), OK);
    scheduler_observe(scheduler, &changes);
    alloc_hook_reset();
    for (size_t i = 0; i < NUM_SEQS; i++) {
        assert_int_equal(scheduler_add(scheduler, seqs[i], &err), OK);
    }
    while (scheduler_has_unfinished(scheduler)) {
        scheduler_schedule(scheduler, &schedule);
        scheduler_advance(scheduler);
        for (uint32_t i = 0; i < schedule.num_items; i++) {
            struct sequence *seq = schedule.items[i].seq;
            if (!schedule.items[i].needs_token) continue;
            scheduler_append_token(scheduler, seq, 7);
            if (seq->num_tokens == seq->num_tokens_max) scheduler_finish(scheduler, seq);
        }
    }
    assert_int_equal(alloc_hook_count(), 0);
    // It was a run with everything in it.
    const struct block_manager_stats *stats = &scheduler_blocks(scheduler)->stats;
    assert_true(scheduler_num_preemptions(scheduler) > 0 && stats->num_evicted > 0);
    assert_true(stats->num_hits > 0 && stats->num_duplicates > 0);
    scheduler_destroy(scheduler);
    block_changes_fini(&changes);
    schedule_fini(&schedule);
    for (size_t i = 0; i < NUM_SEQS; i++) sequence_destroy(seqs[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_may_fail),
        cmocka_unit_test(test_bytes_are_those_of_the_plan),
        cmocka_unit_test(test_steps_do_not_allocate),
    };
    return cmocka_run_group_tests_name("scheduler_alloc", tests, NULL, NULL);
}
