#include "base/thread/bell.h"

#include <limits.h>

#include "base/thread/futex.h"

void bell_ring(struct bell *bell) {
    atomic_fetch_add(&bell->count, 1);
    if (atomic_load(&bell->num_sleeping)) {
        futex_wake(&bell->count, INT_MAX, FUTEX_BETWEEN_PROCESSES);
    }
}

unsigned bell_count(const struct bell *bell) {
    return atomic_load(&bell->count);
}

// Below 0 seconds: no limit. May return early.
static void sleep_once(struct bell *bell, unsigned seen, double seconds) {
    // This thread adds itself before the kernel compares the count; bell_ring changes the count
    // before it reads num_sleeping. One of the two sees the other, so no wake-up is lost.
    atomic_fetch_add(&bell->num_sleeping, 1);
    futex_wait(&bell->count, seen, seconds, FUTEX_BETWEEN_PROCESSES);
    atomic_fetch_sub(&bell->num_sleeping, 1);
}

void bell_wait(struct bell *bell, unsigned seen, double spin_seconds) {
    while (!futex_spin(&bell->count, seen, spin_seconds)) sleep_once(bell, seen, -1);
}

bool bell_wait_for(struct bell *bell, unsigned seen, double spin_seconds, double seconds) {
    if (futex_spin(&bell->count, seen, spin_seconds)) return true;
    sleep_once(bell, seen, seconds);
    return bell_count(bell) != seen;
}
