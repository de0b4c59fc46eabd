/* Ranks that have a device each. Their hosts meet, in shared memory or by MPI, to exchange what the
 * devices need to reach each other. From then on the devices meet by themselves (backend.h,
 * collective). */
#ifndef COMM_DEVICE_COMM_H
#define COMM_DEVICE_COMM_H

#include "comm/barrier.h"
#include "comm/comm.h"

struct device_comm_options {
    struct backend *backend; // with `collective`
    const struct collective_spec *spec; // whose has_failed the comm sets
    // Of ranks that share memory:
    struct barrier *barrier; // all-zero at first, in memory that the backend has registered
    void *cards; // [world_size][COLLECTIVE_CARD_BYTES], mapped by all ranks
    struct comm
        *hosts; // an mpi_comm of the same ranks, of which there is no such memory; else NULL
};

// Borrows backend, barrier and cards for the comm's life. Takes `hosts` if it succeeds.
MUST_USE enum status device_comm_create(struct comm **out,
                                        const struct device_comm_options *options, struct err *err);
// By all ranks of a comm with `hosts`, once it is connected, and before any frees memory that other
// devices read. When it returns, none reads it any more. A rank that waits longer than
// lost_seconds ends all processes.
void device_comm_end(struct comm *comm, double lost_seconds);

#endif
