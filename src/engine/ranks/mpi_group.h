/* Process 0's side of a tensor-parallel group that mpirun has started: what rank_group.h does with
 * processes of its own. The other processes wait in mpi_worker_run for engines and their steps.
 *
 * Of the first engine process 0 is rank 0. Of further engines (data_parallel_size) all ranks are
 * other processes, and their rank 0 sends the results of each step.
 *
 * mpirun watches the processes: it ends all when one is lost. So there is nothing to watch here. */
#ifndef ENGINE_RANKS_MPI_GROUP_H
#define ENGINE_RANKS_MPI_GROUP_H

#include "comm/comm.h"
#include "comm/mpi_wire.h"
#include "engine/engine_plan.h"
#include "engine/model_runner.h"

struct mpi_group;

// Whether the options say that mpirun starts the ranks.
bool mpi_group_is_wanted(const struct nvllm_engine_options *options);

// Tells the other ranks to load. `options`: the engine's; they get the plan's block count.
MUST_USE enum status mpi_group_start(struct mpi_group **out, const struct engine_plan *plan,
                                     const struct nvllm_engine_options *options, struct err *err);
MUST_USE enum status mpi_group_wait_ready(struct mpi_group *group, struct err *err);
// After an error of rank 0 in something that all ranks do: the others wait for it, and MPI cannot
// take that back. So it ends all processes, once it has said why.
enum status mpi_group_blame(struct mpi_group *group, enum status status, const struct err *err);
void mpi_group_warm_up(struct mpi_group *group);
struct comm *mpi_group_comm(struct mpi_group *group);
struct batch_header *mpi_group_batch(struct mpi_group *group, uint32_t slot);
struct sample_result *mpi_group_results(struct mpi_group *group);
void mpi_group_launch(struct mpi_group *group, uint32_t slot);
void mpi_group_begin_counts(struct mpi_group *group, uint32_t slot, const int32_t *ids,
                            uint32_t num_prompt, uint32_t num_ids);
// As rank_group_wait_step.
void mpi_group_wait_step(struct mpi_group *group, const struct model_runner *runner, uint32_t slot);
// Of a group whose rank 0 is another process, as rank_group's.
void mpi_group_wait_warm(struct mpi_group *group, struct engine_plan *plan);
void mpi_group_wait_results(struct mpi_group *group, uint32_t slot,
                            const struct sample_result **results,
                            const struct sample_result **prompt_results);
// The error of a rank that could not load; for good.
MUST_USE enum status mpi_group_check(struct mpi_group *group, struct err *err);
void mpi_group_stop(struct mpi_group *group); // NULL is fine

// The processes end, and MPI. No engine may be left.
void mpi_group_leave(const struct mpi_wire *wire, const struct mpi_world *world);

#endif
