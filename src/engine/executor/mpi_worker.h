/* A rank that mpirun has started, beside rank 0: loads its slice of each engine's model that rank 0
 * makes, and runs the steps that it is told. */
#ifndef ENGINE_EXECUTOR_MPI_WORKER_H
#define ENGINE_EXECUTOR_MPI_WORKER_H

#include "comm/mpi_wire.h"

// Until rank 0 leaves. OK, or why a step could not be run: the other ranks wait for this one then,
// so the caller has to end them (wire->end_all).
MUST_USE enum status mpi_worker_run(const struct mpi_wire *wire, const struct mpi_world *world,
                                    struct err *err);

#endif
