/* Continuous batching: which sequences run in the next step and with how many tokens, under
 * max_num_batched_tokens and max_num_seqs. Pure: no I/O, no clock, no device, no allocation after
 * create.
 *
 * There are two policies.
 * - mixed: every decoding sequence gets one token. Then the rest of a prompt that was cut, then
 *   waiting sequences fill the token budget, or what the pacer leaves of it (pacer.h). Blocks are
 *   allocated as chunks need them.
 * - prefill-first: nano-vllm's policy. A step is all prefill or all decode, and prefill wins. Only
 *   a step's first prompt is cut into chunks, and all its blocks are allocated at once; where
 *   layers have windows, by chunks too.
 *
 * When no block is free, the last running sequence is preempted by recompute and waits. Nothing is
 * admitted in that step. So the first unfinished sequence always gets on.
 *
 * Both queues are in order of priority (lower first, as in vLLM), then of arrival
 * (sequence_queue.h). Sequences are admitted in that order, with one exception. If another sequence
 * computes a sequence's next uncached block in this step, the sequence waits until it can share the
 * block, and others may pass it. So does a sequence whose origin has not computed their prompt yet,
 * also without a prefix cache.
 *
 * A step is these calls:
 *   scheduler_schedule
 *   (the model runs)
 *   scheduler_advance       the KV is computed, and full blocks are published
 *   scheduler_append_token  for each item with needs_token; scheduler_finish for those that end
 *
 * With mixed a device may run one step behind. Then a step is advanced as soon as it is enqueued,
 * because the next one runs after it. Each item with needs_token gets a pending token: it counts,
 * but only the device knows its id. scheduler_resolve_token brings the id before the next advance.
 * A sequence that turns out to have ended has run one token too many, which is thrown away. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/schedule/block_manager.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/sequence.h"

enum schedule_policy { SCHEDULE_MIXED, SCHEDULE_PREFILL_FIRST };

struct scheduler_config {
    enum schedule_policy policy;
    // Most active sequences: those that hold KV blocks. No more are active than
    // max_num_batched_tokens either, so that each can decode.
    uint32_t max_num_seqs;
    uint32_t max_num_batched_tokens; // most tokens of one step
    uint32_t num_blocks; // of the KV cache
    uint32_t block_size; // tokens
    struct block_groups groups;
    bool enable_prefix_caching;
    // Of a model with recurrent layers: slots for snapshots of states, and the distance of their
    // tokens, a multiple of block_size. 0: it has no such layers, or no prefix cache.
    uint32_t num_snapshots, snapshot_tokens;
    struct pace_options pace; // off unless the policy is mixed
    uint64_t hash_seed; // a secret of the process, so that nobody can forge a cached prefix
};

struct scheduler;

// Every number of the config must be at least 1, else ERR_INVALID.
MUST_USE enum status scheduler_create(struct scheduler **out, const struct scheduler_config *config,
                                      struct err *err);
// What scheduler_create allocates.
size_t scheduler_bytes(const struct scheduler_config *config);
// NULL is fine. Sequences are the caller's; those still queued are finished first.
void scheduler_destroy(struct scheduler *scheduler);

// ERR_INVALID with a sentence when the sequence could need more blocks than the whole cache has, or
// was made for another block size or other KV groups. Reads only the config, so any thread may call
// it at any time.
MUST_USE enum status scheduler_check(const struct scheduler *scheduler, const struct sequence *seq,
                                     struct err *err);
// Queues a new sequence. Fails as scheduler_check does.
MUST_USE enum status scheduler_add(struct scheduler *scheduler, struct sequence *seq,
                                   struct err *err);
// Picks the next step's work, allocates its blocks, and preempts where blocks are short. num_items
// is 0 only when every unfinished sequence has all its tokens, the last one pending; such a step is
// not advanced. The schedule is borrowed until scheduler_advance. The caller may use its items
// longer.
void scheduler_schedule(struct scheduler *scheduler, struct schedule *schedule);
// Call it when a step's results are there, with the time that it took. The pacer learns from it how
// long the parts of the next prompts may be.
// Returns what pacer_measure does.
double scheduler_measure(struct scheduler *scheduler, const struct schedule *schedule,
                         double seconds);
// Call it after the step ran. Every item's tokens are computed now, and its full blocks are
// published in the prefix cache. nano-vllm: the first half of postprocess; finish_step in
// llm_engine.c is the other.
void scheduler_advance(struct scheduler *scheduler);
// Call it once for every unfinished item with needs_token, between advance and the next schedule.
void scheduler_append_token(struct scheduler *scheduler, struct sequence *seq, int32_t token_id);
// The same for a pending token, whose id will be in `row` of the step's results.
void scheduler_append_pending(struct scheduler *scheduler, struct sequence *seq, uint32_t row);
// Brings the id of the pending token. Legal at any time, also between schedule and advance.
void scheduler_resolve_token(struct scheduler *scheduler, struct sequence *seq, int32_t token_id);
// A further token of the step that brought the last one, whose id is known. That step ran the last
// one too, so its KV is computed. Call it between advance and the next schedule.
void scheduler_append_further(struct scheduler *scheduler, struct sequence *seq, int32_t token_id);
// Whether a sequence may go on with tokens that need no sampling: only one at a time may, and only
// with mixed, where the others decode beside it.
bool scheduler_can_run_ahead(const struct scheduler *scheduler, const struct sequence *seq);
// A further token whose id is known, and whose KV is not computed: the next steps compute the last
// ones together, like a part of a prompt, and sample behind them. Call it where the sequence may
// run ahead, or has just done so, between advance and the next schedule.
void scheduler_append_ahead(struct scheduler *scheduler, struct sequence *seq, int32_t token_id);
// Adds drafts to a decode: guesses of the tokens that follow, which the caller has written behind
// the sequence's last token, whose id is known. The step runs them too, and samples behind each.
// They take free blocks, and leave one to each running sequence. Returns how many the step runs.
// Call it between schedule and advance, and the next schedule when this step's results are known.
// Of these, the caller appends those that the drafts do not contradict: the first as any token,
// each other one with scheduler_append_further. Drafts never enter the prefix cache.
uint32_t scheduler_add_drafts(struct scheduler *scheduler, struct scheduled *item,
                              uint32_t num_drafts);
// Ends or aborts a sequence: takes it out of its queue, frees its blocks and marks it finished.
// Legal at any time, also between schedule and advance. Items of schedules still point to it, so it
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
// The first of each queue in its order, the others follow by `next`; NULL: it is empty. For the
// observer.
const struct sequence *scheduler_first_running(const struct scheduler *scheduler);
const struct sequence *scheduler_first_waiting(const struct scheduler *scheduler);
// First in the order of the queues; NULL when nothing is unfinished. For aborting everything.
struct sequence *scheduler_first(const struct scheduler *scheduler);
// For tests, counters and the observer.
const struct block_manager *scheduler_blocks(const struct scheduler *scheduler);

#endif
