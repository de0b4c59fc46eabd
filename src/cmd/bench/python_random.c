/* MT19937 as its authors publish it, seeded and cut to a range as CPython does: seed(n) feeds n's
 * 32-bit digits to init_by_array, randint draws as many bits as the range has and rejects what is
 * beyond it. */
#include "cmd/bench/python_random.h"

#include "base/check.h"

enum { WORDS = PYTHON_RANDOM_WORDS, MIDDLE = 397 };

static void seed_by_number(uint32_t *state, uint32_t seed) {
    state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
}

// init_by_array of the generator's authors, which CPython feeds with the integer's 32-bit digits.
void python_random_seed(struct python_random *random, uint64_t seed) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t key_len = key[1] ? 2 : 1;
    uint32_t *state = random->state;
    seed_by_number(state, 19650218u);
    uint32_t i = 1, j = 0;
    for (uint32_t k = 0; k < WORDS; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525u)) + key[j] + j;
        if (++i == WORDS) {
            state[0] = state[WORDS - 1];
            i = 1;
        }
        j = (j + 1) % key_len;
    }
    for (uint32_t k = 1; k < WORDS; k++) {
        state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == WORDS) {
            state[0] = state[WORDS - 1];
            i = 1;
        }
    }
    state[0] = 0x80000000u;
    random->next = WORDS;
}

static void refill(struct python_random *random) {
    uint32_t *state = random->state;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t y = (state[i] & 0x80000000u) | (state[(i + 1) % WORDS] & 0x7fffffffu);
        state[i] = state[(i + MIDDLE) % WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    random->next = 0;
}

static uint32_t next_word(struct python_random *random) {
    if (random->next == WORDS) refill(random);
    uint32_t y = random->state[random->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

int32_t python_random_randint(struct python_random *random, int32_t min, int32_t max) {
    CHECK(min <= max, "min=%d max=%d", min, max);
    uint64_t count = (uint64_t)((int64_t)max - min) + 1;
    CHECK(count <= UINT32_MAX, "count=%llu", (unsigned long long)count);
    int bits = 0;
    while (count >> bits) bits++;
    uint32_t value; // drawn again while out of range, as CPython's _randbelow does
    do {
        value = next_word(random) >> (32 - bits);
    } while (value >= count);
    return (int32_t)(min + (int64_t)value);
}
