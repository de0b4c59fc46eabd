/* A barrier in memory that processes share. A failure of the group opens it for good. */
#ifndef COMM_MEETING_H
#define COMM_MEETING_H

#include <stdint.h>

#include "base/bell.h"
#include "base/compiler.h"

// All-zero before its first use.
struct meeting {
    CACHE_ALIGNED atomic_uint num_arrived;
    CACHE_ALIGNED struct bell over; // rung when all have arrived
    atomic_uint has_failed; // nonzero: nobody waits any more
};

// Returns when `world_size` ranks have called it, or the meeting has failed. Spins for
// `spin_seconds`, then sleeps.
void meeting_wait(struct meeting *meeting, uint32_t world_size, double spin_seconds);
// Makes waiting ranks return, and later calls of meeting_wait too. Any process and thread may call
// it.
void meeting_fail(struct meeting *meeting);

#endif
