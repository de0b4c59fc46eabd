#include "base/thread/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/cpu.h"

#define SPIN_SECONDS_MIN 2e-6

static int operation(int op, enum futex_scope scope) {
    return scope == FUTEX_IN_PROCESS ? op | FUTEX_PRIVATE_FLAG : op;
}

void futex_wait(atomic_uint *word, unsigned expected, double seconds, enum futex_scope scope) {
    const struct timespec limit = clock_timespec(seconds > 0 ? seconds : 0);
    syscall(SYS_futex, word, operation(FUTEX_WAIT, scope), expected, seconds < 0 ? NULL : &limit,
            NULL, 0);
}

void futex_wake(atomic_uint *word, uint32_t count, enum futex_scope scope) {
    syscall(SYS_futex, word, operation(FUTEX_WAKE, scope), count, NULL, NULL, 0);
}

bool futex_spin(atomic_uint *word, unsigned value, double seconds) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
    if (seconds <= 0) return false;
    double deadline = clock_seconds() + seconds;
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            cpu_relax();
        }
    } while (clock_seconds() < deadline);
    return false;
}

bool futex_spin_patiently(atomic_uint *word, unsigned value, struct futex_patience *patience) {
    double least =
        SPIN_SECONDS_MIN < patience->seconds_max ? SPIN_SECONDS_MIN : patience->seconds_max;
    if (patience->seconds < least) patience->seconds = least;
    bool changed = futex_spin(word, value, patience->seconds);
    double twice = 2 * patience->seconds;
    if (twice > patience->seconds_max) twice = patience->seconds_max;
    patience->seconds = changed ? twice : least;
    return changed;
}
