#include "backend/cpu/sample/philox.h"

#include <string.h>

enum { NUM_ROUNDS = 10 };

static const uint32_t multipliers[2] = {0xd2511f53u, 0xcd9e8d57u};
static const uint32_t weyl[2] = {0x9e3779b9u, 0xbb67ae85u}; // golden ratio, sqrt(3) - 1

void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t x[4], k[2] = {key[0], key[1]};
    memcpy(x, counter, sizeof x);
    for (int round = 0; round < NUM_ROUNDS; round++) {
        uint64_t a = (uint64_t)multipliers[0] * x[0];
        uint64_t b = (uint64_t)multipliers[1] * x[2];
        uint32_t y0 = (uint32_t)(b >> 32) ^ x[1] ^ k[0];
        uint32_t y2 = (uint32_t)(a >> 32) ^ x[3] ^ k[1];
        x[0] = y0;
        x[1] = (uint32_t)b;
        x[2] = y2;
        x[3] = (uint32_t)a;
        k[0] += weyl[0];
        k[1] += weyl[1];
    }
    memcpy(out, x, sizeof x);
}

double philox_uniform(uint32_t seed_low, uint32_t seed_high, uint32_t draw) {
    const uint32_t counter[4] = {draw, 0, 0, 0}, key[2] = {seed_low, seed_high};
    uint32_t bits[4];
    philox4x32_10(counter, key, bits);
    uint64_t number = ((uint64_t)bits[0] << 32 | bits[1]) >> 12;
    return ((double)number + 0.5) * 0x1p-52; // exact, so neither end of the interval is reached
}
