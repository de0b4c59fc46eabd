/* A radix selection with adaptive digits. A round counts keys into bins that divide the range they
 * really span, and keeps only the bin where the target falls. Each round narrows the range
 * 2048-fold and 64-bit keys are distinct, so six rounds are enough for any logits; real ones need
 * two. */
#include "backend/cpu/sample/sample_select.h"

enum { BIN_BITS = 11, NUM_BINS = 1 << BIN_BITS, SORT_MAX = 32 };

static double mass_of(uint64_t key, const float *weights) {
    return weights ? (double)weights[sample_key_id(key)] : 1.0;
}

static uint64_t end_by_sorting(uint64_t *keys, uint32_t n, const float *weights, double target) {
    for (uint32_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        uint32_t j = i;
        for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
        keys[j] = key;
    }
    double mass = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        mass += mass_of(keys[i], weights);
        if (mass >= target) return keys[i];
    }
    return keys[n - 1];
}

// Returns the bin in which the running mass reaches *target, or the last one that has keys.
// Subtracts the mass of the bins before it from *target.
static uint32_t find_bin(const double *masses, const uint32_t *counts, double *target) {
    uint32_t last = 0;
    double before = 0, before_last = 0;
    for (uint32_t bin = 0; bin < NUM_BINS; bin++) {
        if (!counts[bin]) continue;
        last = bin;
        before_last = before;
        before += masses[bin];
        if (before >= *target) break;
    }
    *target -= before_last;
    return last;
}

uint64_t sample_prefix_end(const uint64_t *keys, uint64_t *spare, uint32_t n, const float *weights,
                           double target) {
    const uint64_t *from = keys;
    while (n > SORT_MAX) {
        uint64_t low = from[0], high = from[0];
        for (uint32_t i = 1; i < n; i++) {
            if (from[i] < low) low = from[i];
            if (from[i] > high) high = from[i];
        }
        int width = 64 - __builtin_clzll(high - low); // n > 1 distinct keys: not 0
        int shift = width > BIN_BITS ? width - BIN_BITS : 0;
        double masses[NUM_BINS] = {0};
        uint32_t counts[NUM_BINS] = {0};
        for (uint32_t i = 0; i < n; i++) {
            uint64_t bin = (from[i] - low) >> shift;
            masses[bin] += mass_of(from[i], weights);
            counts[bin]++;
        }
        uint32_t bin = find_bin(masses, counts, &target);
        uint32_t num_kept = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t key = from[i]; // read before spare is written: both may be the same array
            if ((key - low) >> shift == bin) spare[num_kept++] = key;
        }
        from = spare;
        n = num_kept;
    }
    if (from == keys) memcpy(spare, keys, n * sizeof *keys);
    return end_by_sorting(spare, n, weights, target);
}
