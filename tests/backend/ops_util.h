/* Shared by the op tests: backends by name, repeatable numbers, buffers between guard bytes, the
 * error measure, and test lists that run one function per instruction set. */
#ifndef OPS_UTIL_H
#define OPS_UTIL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "support/cmocka_all.h"
#include "support/isa_repeats.h"

// The CPU backend for an ISA. Fails the running test where it cannot be made.
struct backend *ops_backend(const char *isa, int threads, enum dtype weight_dtype);

// Random numbers that depend only on the seed: xorshift*.
struct ops_rng {
    uint64_t state;
};
struct ops_rng ops_rng_of(uint64_t seed);
uint32_t ops_rng_below(struct ops_rng *rng, uint32_t limit);
float ops_rng_float(struct ops_rng *rng); // uniform in [-1, 1)
void ops_rng_fill(struct ops_rng *rng, float *out, size_t count);

// `count` floats between guard bytes, NaN at first. ops_guard_free fails the test if a guard byte
// has changed. Aborts when out of memory.
float *ops_guard_alloc(size_t count);
void ops_guard_free(float *data, size_t count);

// sum of squared differences / sum of squares of `want`; inf if either has a value that is not
// finite.
double ops_nmse(const float *got, const double *want, size_t count);
double ops_nmse_f32(const float *got, const float *want, size_t count);

#define assert_nmse(got, want, count, bound)                                                       \
    do {                                                                                           \
        double nmse_ = ops_nmse(got, want, count);                                                 \
        if (!(nmse_ <= (bound))) fail_msg("nmse %g, want <= %g", nmse_, (double)(bound));          \
    } while (0)

// Fails the test if a float of [rows][cols] has other bits, and names the first one.
void ops_assert_same_bits(const float *got, const float *want, size_t rows, size_t cols,
                          const char *what);

struct ops_case {
    const char *name;
    CMUnitTestFunction function; // *state is the ISA's name
    unsigned ops; // enum isa_ops: all that it runs; an ISA that only repeats them is left out
};

// Runs every case once per ISA, as "name/isa". Names the ISAs that the machine lacks and skips
// them. Also skips the names that match NANOVLLM_TEST_SKIP of the environment, a pattern of fnmatch
// with its extended forms: @(this|that), !(all but this). An emulated ISA has no cases "same bits
// ...", unless NANOVLLM_TEST_ALL is set.
int ops_run(const char *group, const struct ops_case *cases, size_t num_cases);

#endif
