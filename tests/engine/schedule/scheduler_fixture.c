#include "engine/schedule/scheduler_fixture.h"

#include "engine/schedule/block_checks.h"
#include "support/cmocka_all.h"

void fixture_init(struct fixture *f, struct scheduler_config config) {
    if (config.max_num_seqs == 0) config.max_num_seqs = 64;
    if (config.max_num_batched_tokens == 0) config.max_num_batched_tokens = 64;
    if (config.num_blocks == 0) config.num_blocks = 64;
    if (config.block_size == 0) config.block_size = 4;
    if (config.groups.num_groups == 0) config.groups.num_groups = 1;
    *f = (struct fixture){.config = config};
    struct err err;
    assert_int_equal(scheduler_create(&f->scheduler, &config, &err), OK);
    assert_int_equal(schedule_init(&f->schedule, config.max_num_seqs, &err), OK);
}

static void check_blocks(const struct fixture *f) {
    const char *fault = block_checks_run(scheduler_blocks(f->scheduler), f->seqs, f->num_seqs);
    if (fault) fail_msg("%s", fault);
}

void fixture_fini(struct fixture *f) {
    for (uint32_t i = 0; i < f->num_seqs; i++) scheduler_finish(f->scheduler, f->seqs[i]);
    check_blocks(f);
    assert_int_equal(scheduler_num_blocks_used(f->scheduler), 0);
    assert_false(scheduler_has_unfinished(f->scheduler));
    scheduler_destroy(f->scheduler);
    schedule_fini(&f->schedule);
    for (uint32_t i = 0; i < f->num_seqs; i++) sequence_destroy(f->seqs[i]);
}

struct sequence *fixture_add(struct fixture *f, int32_t first, uint32_t num_prompt_tokens,
                             uint32_t max_new_tokens) {
    int32_t tokens[1024];
    assert_true(num_prompt_tokens <= 1024 && f->num_seqs < FIXTURE_SEQS_MAX);
    for (uint32_t i = 0; i < num_prompt_tokens; i++) tokens[i] = first + (int32_t)i;
    struct sequence *seq;
    struct err err;
    assert_int_equal(sequence_create(&seq, f->num_seqs, tokens, num_prompt_tokens, max_new_tokens,
                                     f->config.block_size, f->config.groups.num_groups, &err),
                     OK);
    f->seqs[f->num_seqs++] = seq;
    seq->priority = f->priority;
    seq->origin = f->origin;
    assert_int_equal(scheduler_add(f->scheduler, seq, &err), OK);
    return seq;
}

void fixture_schedule(struct fixture *f) {
    scheduler_schedule(f->scheduler, &f->schedule);
    check_blocks(f);
}

void fixture_complete(struct fixture *f) {
    scheduler_advance(f->scheduler);
    check_blocks(f);
    for (uint32_t i = 0; i < f->schedule.num_items; i++) {
        const struct scheduled *item = &f->schedule.items[i];
        struct sequence *seq = item->seq;
        if (!item->needs_token || seq->status == SEQUENCE_FINISHED) continue;
        // Generated tokens differ from prompts and between sequences.
        scheduler_append_token(f->scheduler, seq,
                               (int32_t)(10000 * (seq->id + 1) + seq->num_tokens));
        if (seq->num_tokens == seq->num_tokens_max) scheduler_finish(f->scheduler, seq);
    }
    check_blocks(f);
}

uint32_t fixture_step(struct fixture *f) {
    fixture_schedule(f);
    uint32_t num_tokens = f->schedule.num_tokens;
    fixture_complete(f);
    return num_tokens;
}

uint32_t fixture_run(struct fixture *f, uint32_t limit) {
    uint32_t num_steps = 0;
    while (scheduler_has_unfinished(f->scheduler)) {
        if (num_steps++ == limit) fail_msg("unfinished after %u steps", limit);
        fixture_step(f);
    }
    return num_steps;
}
