#include "base/bell.h"

#include <limits.h>

#include "base/futex.h"

void bell_ring(struct bell *bell) {
    atomic_fetch_add(&bell->count, 1);
    if (atomic_load(&bell->num_sleeping)) {
        futex_wake(&bell->count, INT_MAX, FUTEX_BETWEEN_PROCESSES);
    }
}

unsigned bell_count(const struct bell *bell) {
    return atomic_load(&bell->count);
}

void bell_wait(struct bell *bell, unsigned seen, double spin_seconds) {
    while (!futex_spin(&bell->count, seen, spin_seconds)) {
        // This thread adds itself before the kernel compares the count; bell_ring changes the count
        // before it reads num_sleeping. One of the two sees the other, so no wake-up is lost.
        atomic_fetch_add(&bell->num_sleeping, 1);
        futex_wait(&bell->count, seen, -1, FUTEX_BETWEEN_PROCESSES);
        atomic_fetch_sub(&bell->num_sleeping, 1);
    }
}
