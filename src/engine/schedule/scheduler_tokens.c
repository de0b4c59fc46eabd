/* The scheduler's calls for tokens: those that a step brought, and drafts of those that follow. */
#include <inttypes.h>

#include "base/check.h"
#include "engine/schedule/scheduler_internal.h"

static void append(const struct scheduler *s, struct sequence *seq, int32_t token_id) {
    CHECK(!s->schedule && seq->status == SEQUENCE_RUNNING, "sequence %" PRIu64, seq->id);
    CHECK(seq->num_computed_tokens == seq->num_tokens && !sequence_is_full(seq),
          "%u computed of %u, at most %u", seq->num_computed_tokens, seq->num_tokens,
          seq->num_tokens_max);
    seq->token_ids[seq->num_tokens++] = token_id;
}

void scheduler_append_token(struct scheduler *s, struct sequence *seq, int32_t token_id) {
    append(s, seq, token_id);
}

void scheduler_append_pending(struct scheduler *s, struct sequence *seq, uint32_t row) {
    CHECK(!seq->has_pending_token, "sequence %" PRIu64, seq->id);
    append(s, seq, -1);
    seq->has_pending_token = true;
    seq->pending_row = row;
}

void scheduler_resolve_token(struct scheduler *s, struct sequence *seq, int32_t token_id) {
    (void)s; // the token is the sequence's alone until its block is full
    CHECK(seq->has_pending_token, "sequence %" PRIu64, seq->id);
    seq->token_ids[seq->num_tokens - 1] = token_id;
    seq->has_pending_token = false;
}

void scheduler_append_further(struct scheduler *s, struct sequence *seq, int32_t token_id) {
    CHECK(!s->schedule && !seq->has_pending_token && !sequence_is_full(seq), "sequence %" PRIu64,
          seq->id);
    seq->token_ids[seq->num_tokens++] = token_id;
    seq->num_computed_tokens++;
}

bool scheduler_can_run_ahead(const struct scheduler *s, const struct sequence *seq) {
    return s->config.policy == SCHEDULE_MIXED && !s->partial_prefill &&
           seq->status == SEQUENCE_RUNNING && seq->is_prefilled && !seq->has_pending_token;
}

void scheduler_append_ahead(struct scheduler *s, struct sequence *seq, int32_t token_id) {
    CHECK(!s->schedule && !seq->has_pending_token && !sequence_is_full(seq), "sequence %" PRIu64,
          seq->id);
    CHECK(s->partial_prefill == seq || scheduler_can_run_ahead(s, seq), "sequence %" PRIu64,
          seq->id);
    seq->token_ids[seq->num_tokens++] = token_id;
    seq->is_prefilled = false;
    s->partial_prefill = seq;
}

uint32_t scheduler_add_drafts(struct scheduler *s, struct scheduled *item, uint32_t num_drafts) {
    struct sequence *seq = item->seq;
    CHECK(s->schedule && seq->is_prefilled && item->num_tokens == 1 && !seq->has_pending_token,
          "sequence %" PRIu64, seq->id);
    // Of the tokens that may come, the last one's KV is never read.
    num_drafts = min_u32(num_drafts, seq->num_tokens_max - seq->num_tokens - 1);
    num_drafts = min_u32(num_drafts, budget_left(s));
    uint32_t num_groups = s->config.groups.num_groups, end = seq->num_tokens + num_drafts;
    uint32_t held = seq->num_blocks * s->config.block_size;
    if (end > held) {
        uint64_t missing = block_manager_blocks_for(&s->blocks, end) - seq->num_blocks;
        uint64_t reserved = s->running.count;
        bool has_grown = s->blocks.num_free >= (missing + reserved) * num_groups &&
                         block_manager_grow(&s->blocks, seq, end);
        if (!has_grown) num_drafts = held - seq->num_tokens;
    }
    item->num_drafts = num_drafts;
    item->num_tokens += num_drafts;
    s->schedule->num_tokens += num_drafts;
    s->schedule->num_draft_tokens += num_drafts;
    step_work_add_decodes(&s->schedule->work, item->start + 1, num_drafts);
    return num_drafts;
}
