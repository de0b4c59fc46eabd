/* Rank 0's side of a tensor-parallel group. It starts the other ranks as processes, tells them what
 * to run, notices when one of them is gone, and ends them.
 *
 * The workers run the program `nanovllm`, which finds the shared memory at an inherited descriptor.
 * A thread that lives as long as the group starts and watches them. The kernel kills a worker when
 * the thread that started it ends (PR_SET_PDEATHSIG), so no worker outlives its engine, however
 * that ends.
 *
 * All functions but rank_group_check belong to the engine's thread. A process that forks may go on
 * using the engine in the parent; the child must not touch it. */
#ifndef ENGINE_RANKS_RANK_GROUP_H
#define ENGINE_RANKS_RANK_GROUP_H

#include "engine/model_runner.h"
#include "engine/ranks/rank_segment.h"

struct rank_group;

// Starts plan->world_size - 1 workers of the program `program`, which load their slices while the
// caller loads its own. `options`: the engine's; workers get the plan's block count.
MUST_USE enum status rank_group_start(struct rank_group **out, const struct engine_plan *plan,
                                      const struct nvllm_engine_options *options,
                                      const char *program, struct err *err);
// Waits until all workers have loaded, and connects all ranks. If one could not, returns its error.
MUST_USE enum status rank_group_wait_ready(struct rank_group *group, struct err *err);
struct comm *rank_group_comm(struct rank_group *group);
struct batch_header *rank_group_batch(struct rank_group *group, uint32_t slot);
struct sample_result *rank_group_results(struct rank_group *group);

// These tell the workers. The caller then makes the same call on rank 0's own runner; warm_up:
// calls warm_up_run.
void rank_group_warm_up(struct rank_group *group);
void rank_group_launch(struct rank_group *group, uint32_t slot);
void rank_group_begin_counts(struct rank_group *group, uint32_t slot, const int32_t *ids,
                             uint32_t num_prompt, uint32_t num_ids);

// Under mpirun: waits until rank 0's step is done, and ends all processes where that takes so long
// that another rank must be lost. Else the watching thread notices, and this returns at once.
void rank_group_wait_step(struct rank_group *group, const struct model_runner *runner,
                          uint32_t slot);

// Of a group that has no rank in this process: waits until its ranks are warm. The plan gets their
// number of KV blocks.
void rank_group_wait_warm(struct rank_group *group, struct engine_plan *plan);
// Likewise: waits for a step's results, as model_runner_wait.
void rank_group_wait_results(struct rank_group *group, uint32_t slot,
                             const struct sample_result **results,
                             const struct sample_result **prompt_results);

// ERR_DEVICE with the reason once a worker has ended, was stopped or has failed. It stays so.
MUST_USE enum status rank_group_check(struct rank_group *group, struct err *err);
// After an error of rank 0: the reason why a rank is lost, if one is, else the error as it was
// given.
enum status rank_group_blame(struct rank_group *group, enum status status, struct err *err);
// Ends the workers and the comm. The runner that uses the comm is destroyed before. NULL is fine.
void rank_group_stop(struct rank_group *group);

#endif
