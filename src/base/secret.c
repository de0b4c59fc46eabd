#include "base/secret.h"

#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"

uint64_t secret_make(void) {
    uint64_t secret;
    if (getrandom(&secret, sizeof secret, 0) == (ssize_t)sizeof secret) return secret;
    // A kernel without it, or a filter that forbids it: the clock and where the stack lies.
    uint64_t guess[2] = {(uint64_t)(clock_seconds() * 1e9), (uintptr_t)&secret};
    return XXH3_64bits(guess, sizeof guess);
}
