#include "base/thread/wakeup.h"

#include <limits.h>

#include "base/thread/futex.h"

void wakeup_signal(struct wakeup *wakeup) {
    atomic_fetch_add(&wakeup->count, 1);
    if (atomic_load(&wakeup->num_sleeping)) {
        futex_wake(&wakeup->count, INT_MAX, FUTEX_BETWEEN_PROCESSES);
    }
}

unsigned wakeup_count(const struct wakeup *wakeup) {
    return atomic_load(&wakeup->count);
}

// Below 0 seconds: no limit. May return early.
static void sleep_once(struct wakeup *wakeup, unsigned seen, double seconds) {
    // This thread adds itself before the kernel compares the count; wakeup_signal changes the count
    // before it reads num_sleeping. One of the two sees the other, so no wake-up is lost.
    atomic_fetch_add(&wakeup->num_sleeping, 1);
    futex_wait(&wakeup->count, seen, seconds, FUTEX_BETWEEN_PROCESSES);
    atomic_fetch_sub(&wakeup->num_sleeping, 1);
}

void wakeup_wait(struct wakeup *wakeup, unsigned seen, double spin_seconds) {
    while (!futex_spin(&wakeup->count, seen, spin_seconds)) sleep_once(wakeup, seen, -1);
}

bool wakeup_wait_for(struct wakeup *wakeup, unsigned seen, double spin_seconds, double seconds) {
    if (futex_spin(&wakeup->count, seen, spin_seconds)) return true;
    sleep_once(wakeup, seen, seconds);
    return wakeup_count(wakeup) != seen;
}
