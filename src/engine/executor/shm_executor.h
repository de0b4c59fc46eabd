/* The executor whose ranks share memory on one host. Rank 0 is in this process. It starts the other
 * ranks as processes, tells them what to run, notices when one of them is gone, and ends them.
 *
 * The workers run the program `nanovllm`, which finds the shared memory at an inherited descriptor.
 * A thread that lives as long as the executor starts and watches them. The kernel kills a worker
 * when the thread that started it ends (PR_SET_PDEATHSIG), so no worker outlives its engine,
 * however that ends. A process that forks may go on using the engine in the parent; the child must
 * not touch it. */
#ifndef ENGINE_EXECUTOR_SHM_EXECUTOR_H
#define ENGINE_EXECUTOR_SHM_EXECUTOR_H

#include "engine/executor/executor.h"

// Starts plan->world_size - 1 workers of the program options->worker_program, which load their
// slices while the caller loads its own. They get the plan's block count.
MUST_USE enum status shm_executor_create(struct executor **out, const struct engine_plan *plan,
                                         const struct nvllm_engine_options *options,
                                         struct err *err);

#endif
