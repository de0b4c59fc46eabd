/* A barrier in memory that processes share, and the smallest of their numbers. A failure of the
 * group opens it for good. */
#ifndef COMM_MEETING_H
#define COMM_MEETING_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/thread/bell.h"

// All-zero before its first use.
struct meeting {
    CACHE_ALIGNED atomic_uint num_arrived;
    CACHE_ALIGNED struct bell over; // rung when all have arrived
    atomic_uint has_failed; // nonzero: nobody waits any more
    uint64_t values[64]; // by rank, of meeting_minimum
};

// For how long ranks that wait for each other should spin before they sleep.
double meeting_spin_seconds(uint32_t world_size);
// Returns when `world_size` ranks have called it, or the meeting has failed. Spins for
// `spin_seconds`, then sleeps.
void meeting_wait(struct meeting *meeting, uint32_t world_size, double spin_seconds);
// The smallest of all ranks' values, when all have called it; or any once the meeting has failed.
uint64_t meeting_minimum(struct meeting *meeting, uint32_t rank, uint32_t world_size,
                         double spin_seconds, uint64_t value);
// Makes waiting ranks return, and later calls of meeting_wait too. Any process and thread may call
// it.
void meeting_fail(struct meeting *meeting);

#endif
