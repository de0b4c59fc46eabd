/* Continuous batching: which sequences run in the next step and with how many tokens, under
 * max_num_batched_tokens and max_num_seqs. Pure: no I/O, no clock, no device, no allocation after
 * create.
 *
 * Policies. mixed: one token for every running sequence that decodes, then the rest of a prompt
 * that was cut, then waiting ones fill the token budget; blocks are allocated as chunks need them.
 * prefill-first: the original nano-vllm's policy (a step is all prefill or all decode, prefill
 * wins; only a batch's first prompt is cut into chunks, its blocks are allocated at once). Out of
 * blocks: the last running sequence is preempted by recompute and waits; nothing is admitted in that
 * step. So the first unfinished sequence always gets on.
 *
 * Both queues are in order of priority (lower first, as in vLLM), then of arrival, and sequences are
 * admitted in that order, with one exception: a sequence whose next uncached block is being computed by another one in this step
 * waits until it can share it, and lets others pass meanwhile. So does one whose origin has not computed
 * its prompt, also without a prefix cache.
 *
 * A step: scheduler_schedule -> run the model -> scheduler_advance (KV is there, full blocks are
 * published) -> per item with needs_token: scheduler_append_token, and scheduler_finish for those
 * that end.
 *
 * A device may run one step behind (policy mixed): a step that is enqueued is advanced at once, since
 * the next one runs after it, and every sequence gets a pending token, whose id
 * scheduler_resolve_token brings before the next advance. A sequence that turns out to have ended has run one token in
 * vain. One that waits_for_token has its next step only after its token is known: while others run,
 * in every second step. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/block_manager.h"
#include "engine/sequence.h"

enum schedule_policy { SCHEDULE_MIXED, SCHEDULE_PREFILL_FIRST };

struct scheduler_config {
    enum schedule_policy policy;
    uint32_t max_num_seqs; // cap on active sequences: those that hold KV blocks; never
        // more are active than max_num_batched_tokens can decode
    uint32_t max_num_batched_tokens; // cap on tokens of one step
    uint32_t num_blocks; // of the KV cache
    uint32_t block_size; // tokens
    bool enable_prefix_caching;
    uint64_t hash_seed; // per process: cached prefixes cannot be forged from outside
};

struct scheduled {
    struct sequence *seq; // runs tokens [start, start + num_tokens)
    uint32_t start; // its num_computed_tokens
    uint32_t num_tokens;
    uint32_t num_prompt_rows; // of the first of them the engine wants log-probabilities of the next
        // token; 0 from the scheduler
    bool needs_token; // the last token's logits are wanted: the sequence's known tokens are all
        // computed
    bool is_admitted; // it waited before this step: what comes before its tokens was cached
};

// What one step runs; the caller's, and filled by scheduler_schedule.
struct schedule {
    struct scheduled *items; // [num_items], the first num_decode_tokens of them are decodes
    uint32_t num_items, max_items;
    uint32_t num_tokens; // sum over items
    uint32_t num_decode_tokens; // of items whose prefill was done before: the newest token only
    uint32_t num_prefill_tokens; // the rest
    // Arrivals of the sequences that were preempted since the last schedule with items, in order.
    uint64_t *preempted; // [num_preempted], room for max_items
    uint32_t num_preempted;
};

// max_items: max_num_seqs of the scheduler's config.
MUST_USE enum status schedule_init(struct schedule *schedule, uint32_t max_items, struct err *err);
void schedule_fini(struct schedule *schedule); // all-zero is fine

struct scheduler;

// Every number of the config must be at least 1, else ERR_INVALID.
MUST_USE enum status scheduler_create(struct scheduler **out, const struct scheduler_config *config,
                                      struct err *err);
// NULL is fine. Sequences are the caller's; those still queued are finished first.
void scheduler_destroy(struct scheduler *scheduler);

// ERR_INVALID with a sentence when the sequence could never run to its end: the blocks that it needs
// at most exceed the whole cache; or when it was made for another block size. Reads the config
// alone: any thread may call it at any time.
MUST_USE enum status scheduler_check(const struct scheduler *scheduler, const struct sequence *seq,
                                     struct err *err);
// Queues a new sequence. Fails as scheduler_check does.
MUST_USE enum status scheduler_add(struct scheduler *scheduler, struct sequence *seq,
                                   struct err *err);
// Picks the next step's work, allocates its blocks, preempts where it must. Empty (num_items 0)
// only when nothing is unfinished but sequences whose last token is pending; such a step need not be
// advanced. The schedule is borrowed until scheduler_advance; the caller may keep its items longer.
void scheduler_schedule(struct scheduler *scheduler, struct schedule *schedule);
// After the step ran: every item's tokens are computed; full blocks become visible to the prefix
// cache. nano-vllm: the first half of postprocess; land in llm_engine.c is the other.
void scheduler_advance(struct scheduler *scheduler);
// Once for every item with needs_token, after advance and before the next schedule, unless it is
// finished.
void scheduler_append_token(struct scheduler *scheduler, struct sequence *seq, int32_t token_id);
// The same for a token that is still being sampled, in `row` of the step's results.
void scheduler_append_pending(struct scheduler *scheduler, struct sequence *seq, uint32_t row);
// Its id. Legal at any time, also between schedule and advance.
void scheduler_resolve_token(struct scheduler *scheduler, struct sequence *seq, int32_t token_id);
// Takes a sequence out, from whatever queue, frees its blocks, marks it FINISHED. Also the abort;
// legal at any time, also between schedule and advance. Items of schedules go on pointing to it: it
// must live as long as they are used.
void scheduler_finish(struct scheduler *scheduler, struct sequence *seq);

bool scheduler_has_unfinished(const struct scheduler *scheduler);
uint32_t scheduler_num_waiting(const struct scheduler *scheduler);
uint32_t scheduler_num_running(const struct scheduler *scheduler);
uint64_t scheduler_num_preemptions(const struct scheduler *scheduler);
uint64_t scheduler_num_cached_tokens(const struct scheduler *scheduler); // sum of num_cached_tokens
uint32_t scheduler_num_blocks_used(const struct scheduler *scheduler);
uint32_t scheduler_num_blocks_peak(const struct scheduler *scheduler);
// As block_manager_observe.
void scheduler_observe(struct scheduler *scheduler, struct block_changes *changes);
// First in the order of the queues; NULL when nothing is unfinished. For aborting everything.
struct sequence *scheduler_first(const struct scheduler *scheduler);
// For tests, counters and the observer.
const struct block_manager *scheduler_blocks(const struct scheduler *scheduler);

#endif
