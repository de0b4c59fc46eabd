#include "base/os/secret.h"

#include <sys/random.h>
#include <xxhash.h>

#include "base/os/clock.h"

uint64_t secret_make(void) {
    uint64_t secret;
    if (getrandom(&secret, sizeof secret, 0) == (ssize_t)sizeof secret) return secret;
    // An old kernel lacks getrandom, and a seccomp filter may forbid it: use clock and stack
    // address.
    uint64_t guess[2] = {(uint64_t)(clock_seconds() * 1e9), (uintptr_t)&secret};
    return XXH3_64bits(guess, sizeof guess);
}
