/* Order among the tokens of a row without sorting them. A token is a 64-bit key whose ascending
 * order is "larger logit first, then smaller id". All keys of a row are distinct. So "the k best"
 * and "the best ones that hold this mass" are exact, ties included, and each is given by one
 * boundary key. */
#ifndef BACKEND_CPU_SAMPLE_SELECT_H
#define BACKEND_CPU_SAMPLE_SELECT_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

// What a logit counts as: NaN as -inf, +inf as the largest finite number, so that differences of
// logits are never NaN; -0 as +0.
static inline float sample_clean(float logit) {
    if (!(logit >= -FLT_MAX)) return -INFINITY;
    return logit > FLT_MAX ? FLT_MAX : logit + 0.0f;
}

// logit: as sample_clean returns it.
static inline uint64_t sample_key(float logit, uint32_t id) {
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    // Without a branch: signs come at random. Larger floats become smaller integers.
    uint32_t descending = bits ^ (0x7fffffffu & ~(0u - (bits >> 31)));
    return (uint64_t)descending << 32 | id;
}

static inline uint32_t sample_key_id(uint64_t key) {
    return (uint32_t)key;
}

static inline float sample_key_logit(uint64_t key) {
    uint32_t descending = (uint32_t)(key >> 32);
    uint32_t bits = descending ^ (0x7fffffffu & ~(0u - (descending >> 31)));
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

// Returns the last key of the smallest set of leading keys whose mass reaches `target`. If no set
// does, returns the last of all n keys. A key's mass is weights[its id], or 1 if weights is NULL.
// keys: [n], n >= 1, any order; spare: [n].
uint64_t sample_prefix_end(const uint64_t *keys, uint64_t *spare, uint32_t n, const float *weights,
                           double target);

#endif
