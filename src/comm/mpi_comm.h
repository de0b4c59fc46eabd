/* CPU ranks that mpirun has started, on one host or on several. Each rank adds what the others send
 * it in the order of the ranks, as shm_comm does: so both give the same bits. Ranks with devices
 * use it for what their hosts tell each other (device_comm.h). */
#ifndef COMM_MPI_COMM_H
#define COMM_MPI_COMM_H

#include "comm/comm.h"
#include "comm/mpi_wire.h"
#include "comm/shm_comm.h"

// Ranks of one step wait for each other for milliseconds.
#define MPI_COMM_PATIENCE_SECONDS 10.0
#define MPI_COMM_LOST_SECONDS 60.0

struct mpi_comm_options {
    const struct mpi_wire *wire;
    uint32_t rank, world_size; // of the group
    uint32_t first; // the group's rank 0, of mpirun's processes
    double spin_seconds; // that a rank spins before it sleeps between two looks
    double patience_seconds; // rank 0 that waits longer in a step says so, and goes on waiting
    double lost_seconds; // a rank that waits longer in a step ends all processes
    struct shm_comm_shape shape;
};

// Bytes that a rank's comm allocates.
size_t mpi_comm_bytes(const struct shm_comm_shape *shape);
MUST_USE enum status mpi_comm_create(struct comm **out, const struct mpi_comm_options *options,
                                     struct err *err);
void mpi_comm_destroy(struct comm *comm); // NULL is fine
// all [world_size][bytes]: each rank gives its own part, and gets those of the others.
void mpi_comm_gather(struct comm *comm, void *all, size_t bytes);
// The last barrier, with a deadline of its own in place of the options'.
void mpi_comm_end(struct comm *comm, double lost_seconds);

#endif
