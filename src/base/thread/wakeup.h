/* A wake-up that threads and processes can share. A waiter never misses a signal: it waits until
 * the count of signals differs from the count that it read before. */
#ifndef BASE_WAKEUP_H
#define BASE_WAKEUP_H

#include <stdatomic.h>
#include <stdbool.h>

// All-zero before its first use. May lie in memory that several processes map.
struct wakeup {
    atomic_uint count; // signals so far
    atomic_uint num_sleeping; // waiters in, or about to enter, futex_wait
};

// Wakes all waiters.
void wakeup_signal(struct wakeup *wakeup);
// Read the count before looking for news: wakeup_wait then returns at once for later news.
unsigned wakeup_count(const struct wakeup *wakeup);
// Returns once the count differs from `seen`. Spins for `spin_seconds`, then sleeps.
void wakeup_wait(struct wakeup *wakeup, unsigned seen, double spin_seconds);
// The same for at most `seconds` of sleep. Whether the count differs.
bool wakeup_wait_for(struct wakeup *wakeup, unsigned seen, double spin_seconds, double seconds);

#endif
