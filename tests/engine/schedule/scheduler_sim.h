/* A simulated engine around the scheduler: a KV cache in which each slot remembers the whole prefix
 * that wrote it, and a model whose next token depends on that prefix and the request's own seed
 * alone, so that what a request generates when it runs alone is known beforehand. Everything is
 * made from one seed. Some requests are one prompt with several outputs, some have priorities, some
 * are aborted, between two steps or in one. Some decodes get drafts, right and wrong ones.
 *
 * In some cases the chain hashes are made to collide all the time.
 *
 * Every step checks: the schedule against its limits and its policy, the block invariants, that
 * each position below num_computed_tokens of every running sequence reads, through block tables
 * that a device keeps, what that sequence's own prefix would have written, that nothing writes to a
 * block that others can see, and that outputs of one prompt neither compute it before their origin
 * has nor its full blocks again. */
#ifndef ENGINE_SCHEDULER_SIM_H
#define ENGINE_SCHEDULER_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/schedule/scheduler.h"

struct sim_totals { // what a run of cases has met, to show that it met everything
    uint64_t num_cases, num_steps, num_requests;
    uint64_t num_tokens; // run through the model
    uint64_t num_preemptions, num_cached_tokens, num_deferrals, num_duplicates, num_evictions;
    uint64_t num_collisions;
    uint64_t num_shared_prompts; // outputs that found their origin's prompt computed
    uint64_t num_drafts, num_right; // tokens drafted, and those of them that were kept
    uint64_t num_aborts, num_midstep_aborts, num_refused, num_finished;
    double worst_step_ratio; // of a case: steps / tokens of its requests
};

// Runs one case to its end. NULL, or what went wrong (static storage, valid until the next call).
const char *scheduler_sim_run(uint64_t seed, enum schedule_policy policy,
                              bool enable_prefix_caching, struct sim_totals *totals);

#endif
