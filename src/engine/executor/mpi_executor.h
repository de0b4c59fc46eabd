/* The executor whose ranks are processes that mpirun has started. This is process 0's side. The
 * other processes wait in mpi_worker_run for engines and their steps.
 *
 * Of the first engine process 0 is rank 0. Of further engines (data_parallel_size) all ranks are
 * other processes, and their rank 0 sends the results of each step.
 *
 * mpirun watches the processes: it ends all when one is lost. So there is nothing to watch here. A
 * process that is stopped is noticed by a deadline, in a step and when engines end. */
#ifndef ENGINE_EXECUTOR_MPI_EXECUTOR_H
#define ENGINE_EXECUTOR_MPI_EXECUTOR_H

#include "comm/mpi_wire.h"
#include "engine/executor/executor.h"

// A step of another process may take its time, but seldom this long. A GPU's step is taken to be
// lost then, and so are processes that take longer to end.
enum { MPI_PATIENCE_SECONDS = 60 };

// Tells the other ranks to load. They get the plan's block count.
MUST_USE enum status mpi_executor_create(struct executor **out, const struct engine_plan *plan,
                                         const struct nvllm_engine_options *options,
                                         struct err *err);

// Ends the processes, and MPI. No engine may be left. If a process does not answer for that long,
// all are ended at once, this one too.
void mpi_executor_leave(const struct mpi_wire *wire, const struct mpi_world *world,
                        double patience_seconds);

#endif
