/* CPython's random.seed(int) and random.randint, bit for bit (the Mersenne Twister MT19937), so
 * that a workload defined by a Python script is the same here. */
#ifndef CMD_BENCH_PYTHON_RANDOM_H
#define CMD_BENCH_PYTHON_RANDOM_H

#include <stdint.h>

enum { PYTHON_RANDOM_WORDS = 624 };

struct python_random {
    uint32_t state[PYTHON_RANDOM_WORDS];
    uint32_t next; // index of the next word to hand out
};

void python_random_seed(struct python_random *random, uint64_t seed);
// Uniform in [min, max]; the range must be smaller than 2^32.
int32_t python_random_randint(struct python_random *random, int32_t min, int32_t max);

#endif
