/* The start of a runner that has its weights: what happens on a first use happens before the first
 * request, and a device's KV cache fills the memory that all else leaves.
 *
 * What is left is measured, but two things wait for each other. Recorded steps take memory, so the
 * cache should be made after them. But they contain the cache's address, so they are recorded after
 * it. To record all of them twice would make the start longer. So the smallest and the largest step
 * are recorded first, beside a cache of one block. Each step is assumed to take what the largest
 * took, and 2 MiB more. A cache is made that leaves memory for that, all steps are recorded, and
 * what is left is measured. If the assumption was too low, the cache is made again, smaller, by
 * what was measured, and all steps are recorded again.
 *
 * Unless the plan wants the full warm-up, not all of this comes before the first request. Steps of
 * more than 16 sequences, but the largest, are recorded when they occur for the second time
 * (model_runner_record_later). The memory for that is left free.
 *
 * Ranks of a group decide together: the one with the least memory decides for all. */
#ifndef ENGINE_WARM_UP_H
#define ENGINE_WARM_UP_H

#include "engine/plan/engine_plan.h"
#include "engine/step/batch.h"
#include "engine/step/model_runner.h"

// Once, before the first launch, by all ranks at the same time. `plan` gets the number of KV
// blocks, where it fills memory; `batch` is overwritten. ERR_NOMEM: there is no memory for a
// sequence of max_model_len.
MUST_USE enum status warm_up_run(struct engine_plan *plan, struct model_runner *runner,
                                 struct batch *batch, struct err *err);
// The same on a rank without a scheduler, which builds no other batches.
MUST_USE enum status warm_up_run_worker(struct engine_plan *plan, struct model_runner *runner,
                                        struct err *err);

#endif
