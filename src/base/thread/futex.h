/* Waiting for a 32-bit word of memory to change: first by spinning, then asleep in the kernel. */
#ifndef BASE_FUTEX_H
#define BASE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Who may wake a waiter: threads of this process, or also processes that map the same memory.
enum futex_scope { FUTEX_IN_PROCESS, FUTEX_BETWEEN_PROCESSES };

// Sleeps while *word is `expected`. Returns when woken, when the word already has another value, on
// a signal, or after `seconds` (below 0: no limit). The caller then reads the word again.
void futex_wait(atomic_uint *word, unsigned expected, double seconds, enum futex_scope scope);
void futex_wake(atomic_uint *word, uint32_t count, enum futex_scope scope);
// Spins until *word differs from `value` or `seconds` have passed. True when it differs.
bool futex_spin(atomic_uint *word, unsigned value, double seconds);

// How long one thread spins. At first all is zero except seconds_max; if that is 0, it never spins.
struct futex_patience {
    double seconds, seconds_max;
};
// Spins as futex_spin. Where that succeeds, the next spin may take twice as long. Where it does
// not, the next one is short.
bool futex_spin_patiently(atomic_uint *word, unsigned value, struct futex_patience *patience);

#endif
