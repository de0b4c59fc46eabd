#include <immintrin.h>
#include <math.h>

#include "backend/cpu/sample/sample_weigh.h"

enum {
    HALF = 8, // floats of a register
    TOGETHER = 4, // registers whose steps alternate: one alone waits for each of its steps
};

// Polynomial step p * r + c, rounded twice as in the other versions.
static inline __m256 step(__m256 p, __m256 r, float c) {
    return _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(c));
}

// x = exp(x)
static inline void exp_negative(__m256 x[TOGETHER]) {
    const __m256 magic = _mm256_set1_ps(EXP_ROUND);
    __m256 shifted[TOGETHER], p[TOGETHER];
    for (int j = 0; j < TOGETHER; j++) {
        x[j] = _mm256_max_ps(x[j], _mm256_set1_ps(EXP_LOWEST)); // NaN gives the second operand
        x[j] = _mm256_min_ps(x[j], _mm256_setzero_ps());
        shifted[j] = _mm256_add_ps(_mm256_mul_ps(x[j], _mm256_set1_ps(EXP_LOG2E)), magic);
    }
    for (int j = 0; j < TOGETHER; j++) {
        __m256 n = _mm256_sub_ps(shifted[j], magic);
        x[j] = _mm256_sub_ps(x[j], _mm256_mul_ps(n, _mm256_set1_ps(EXP_LN2_HIGH)));
        x[j] = _mm256_sub_ps(x[j], _mm256_mul_ps(n, _mm256_set1_ps(EXP_LN2_LOW)));
        p[j] = step(_mm256_set1_ps(EXP_P0), x[j], EXP_P1);
    }
    for (int j = 0; j < TOGETHER; j++) p[j] = step(step(p[j], x[j], EXP_P2), x[j], EXP_P3);
    for (int j = 0; j < TOGETHER; j++) p[j] = step(step(p[j], x[j], EXP_P4), x[j], EXP_P5);
    for (int j = 0; j < TOGETHER; j++) {
        p[j] = _mm256_add_ps(_mm256_mul_ps(p[j], _mm256_mul_ps(x[j], x[j])), x[j]);
        p[j] = _mm256_add_ps(p[j], _mm256_set1_ps(1.0f));
        __m256i bits = _mm256_add_epi32(_mm256_castps_si256(shifted[j]), _mm256_set1_epi32(127));
        x[j] = _mm256_mul_ps(p[j], _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
    }
}

double sample_weigh_avx2(const float *logits, float *weights, uint32_t count,
                         const struct sample_weigh *how) {
    const __m256 max = _mm256_set1_ps(how->max);
    const __m256 scale = _mm256_set1_ps(how->inverse_temperature);
    const __m256 least = _mm256_set1_ps(how->weight_min);
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    uint32_t i = 0;
    for (; i + TOGETHER * HALF <= count; i += TOGETHER * HALF) {
        __m256 x[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) {
            x[j] = _mm256_sub_ps(_mm256_loadu_ps(logits + i + j * HALF), max);
            x[j] = _mm256_mul_ps(x[j], scale);
        }
        exp_negative(x);
        for (int j = 0; j < TOGETHER; j++) {
            x[j] = _mm256_and_ps(x[j], _mm256_cmp_ps(x[j], least, _CMP_GE_OQ));
            _mm256_storeu_ps(weights + i + j * HALF, x[j]);
            sums[j % 2] = _mm256_add_ps(sums[j % 2], x[j]);
        }
    }
    float lanes[SAMPLE_WEIGH_LANES];
    _mm256_storeu_ps(lanes, sums[0]);
    _mm256_storeu_ps(lanes + HALF, sums[1]);
    return sample_weigh_rest(lanes, logits + i, weights + i, count - i, how);
}

// Four maxima, so that a step does not wait for the one before.
float sample_max_avx2(const float *logits, uint32_t count) {
    __m256 max[4];
    for (int i = 0; i < 4; i++) max[i] = _mm256_set1_ps(-INFINITY);
    uint32_t i = 0;
    for (; i + 4 * HALF <= count; i += 4 * HALF) {
        for (uint32_t part = 0; part < 4; part++) { // NaN gives the second operand
            max[part] = _mm256_max_ps(_mm256_loadu_ps(logits + i + part * HALF), max[part]);
        }
    }
    float lanes[SAMPLE_WEIGH_LANES];
    _mm256_storeu_ps(lanes, _mm256_max_ps(max[0], max[2]));
    _mm256_storeu_ps(lanes + HALF, _mm256_max_ps(max[1], max[3]));
    return sample_max_rest(lanes, logits + i, count - i);
}
