/* A bell that processes can share. A waiter never misses a ring: it waits for the count of rings to
 * change from the count that it read before. */
#ifndef BASE_BELL_H
#define BASE_BELL_H

#include <stdatomic.h>
#include <stdbool.h>

// All-zero before its first use. May lie in memory that several processes map.
struct bell {
    atomic_uint count; // how often it was rung
    atomic_uint num_sleeping; // waiters in, or about to enter, futex_wait
};

// Wakes all waiters.
void bell_ring(struct bell *bell);
// Read the count before you look for news; bell_wait then returns at once for news that came after.
unsigned bell_count(const struct bell *bell);
// Returns once the count differs from `seen`. Spins for `spin_seconds`, then sleeps.
void bell_wait(struct bell *bell, unsigned seen, double spin_seconds);
// The same for at most `seconds` of sleep. Whether the count differs.
bool bell_wait_for(struct bell *bell, unsigned seen, double spin_seconds, double seconds);

#endif
