/* Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * 2011): random numbers as a function of (key, counter), with no state. The key is a request's
 * seed, the counter the index of its token. So a seed gives the same tokens whatever else runs, in
 * whatever order. */
#ifndef BACKEND_CPU_PHILOX_H
#define BACKEND_CPU_PHILOX_H

#include <stdint.h>

// out = the 128 random bits of `counter` under `key`.
void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// Draw number `draw` of a seed: uniform in the open interval (0, 1), 52 bits.
double philox_uniform(uint32_t seed_low, uint32_t seed_high, uint32_t draw);

#endif
