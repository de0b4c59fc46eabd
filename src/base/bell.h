/* A bell that processes share: who waits for news hears that it was rung since he last looked. */
#ifndef BASE_BELL_H
#define BASE_BELL_H

#include <stdatomic.h>

// All-zero before its first use. May lie in memory that several processes map.
struct bell {
    atomic_uint count; // how often it was rung
    atomic_uint num_sleeping; // waiters asleep, or about to be
};

// Wakes everybody who waits.
void bell_ring(struct bell *bell);
// To be read before looking for news; bell_wait then returns for news that came after.
unsigned bell_count(const struct bell *bell);
// Returns once the count differs from `seen`. Spins for `spin_seconds`, then sleeps.
void bell_wait(struct bell *bell, unsigned seen, double spin_seconds);

#endif
