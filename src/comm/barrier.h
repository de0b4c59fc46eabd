/* A barrier in memory that processes share, and the smallest of their numbers. A failure of the
 * group opens it for good. */
#ifndef COMM_BARRIER_H
#define COMM_BARRIER_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/thread/wakeup.h"

// All-zero before its first use.
struct barrier {
    CACHE_ALIGNED atomic_uint num_arrived;
    CACHE_ALIGNED struct wakeup over; // signalled when all have arrived
    atomic_uint has_failed; // nonzero: nobody waits any more
    uint64_t values[64]; // by rank, of barrier_minimum
};

// For how long ranks that wait for each other should spin before they sleep.
double barrier_spin_seconds(uint32_t world_size);
// Returns when `world_size` ranks have called it, or the barrier has failed. Spins for
// `spin_seconds`, then sleeps.
void barrier_wait(struct barrier *barrier, uint32_t world_size, double spin_seconds);
// The smallest of all ranks' values, when all have called it; or any once the barrier has failed.
uint64_t barrier_minimum(struct barrier *barrier, uint32_t rank, uint32_t world_size,
                         double spin_seconds, uint64_t value);
// Makes waiting ranks return, and later calls of barrier_wait too. Any process and thread may call
// it.
void barrier_fail(struct barrier *barrier);

#endif
