/* What one step runs: which sequences, and which of their tokens. The scheduler fills it
 * (scheduler.h), the engine marks rows that it wants besides. */
#ifndef ENGINE_SCHEDULE_SCHEDULE_H
#define ENGINE_SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/schedule/pacer.h"
#include "engine/schedule/sequence.h"

struct scheduled {
    struct sequence *seq; // runs tokens [start, start + num_tokens)
    uint32_t start; // its num_computed_tokens
    uint32_t num_tokens;
    uint32_t num_drafts; // of them, the last ones: guesses, behind the sequence's own tokens
    // The engine wants the next token's log-probability after each of the first num_prompt_rows
    // tokens. The scheduler writes 0.
    uint32_t num_prompt_rows;
    // The engine wants the hidden states of the last num_pooled tokens. The scheduler writes 0.
    uint32_t num_pooled;
    // Its last token's logits are sampled, because after it nothing is uncomputed. With drafts the
    // logits of 1 + num_drafts tokens are.
    bool needs_token;
    bool ends_pooling; // the same of a sequence that is pooled: nothing is sampled
    uint32_t first_snapshot, num_snapshots; // of the schedule's
    uint32_t from_snapshot; // whose states it goes on from, or SNAPSHOT_NONE: its own
    bool is_admitted; // it waited before this step; its tokens before `start` were cached
};

// States that a step keeps in a slot: those behind the item's first num_tokens tokens.
struct scheduled_snapshot {
    uint32_t num_tokens;
    uint32_t slot;
};

// Rows of logits that are sampled for an item.
static inline uint32_t scheduled_num_rows(const struct scheduled *item) {
    return item->needs_token ? 1 + item->num_drafts : 0;
}

enum { STEP_SNAPSHOTS_MAX = 64 };

// What one step runs. The caller owns it, scheduler_schedule fills it.
struct schedule {
    // [num_items], the first num_decode_tokens of them are decodes of one token each, and drafts
    struct scheduled *items;
    uint32_t num_items, max_items;
    uint32_t num_tokens; // sum over items
    uint32_t num_decode_tokens; // without drafts
    uint32_t num_draft_tokens;
    uint32_t num_prefill_tokens; // of all other items
    struct step_work work; // the same, with positions
    struct scheduled_snapshot snapshots[STEP_SNAPSHOTS_MAX];
    uint32_t num_snapshots;
    // Arrivals of the sequences that were preempted since the last schedule with items, in order.
    uint64_t *preempted; // [num_preempted], at most max_items
    uint32_t num_preempted;
};

// max_items: max_num_seqs of the scheduler's config.
MUST_USE enum status schedule_init(struct schedule *schedule, uint32_t max_items, struct err *err);
void schedule_fini(struct schedule *schedule); // all-zero is fine
// Takes out the last item, a decode without drafts, of this sequence.
void schedule_remove_last(struct schedule *schedule, struct sequence *seq);

#endif
