#include <immintrin.h>

#include "backend/cpu/sample_weigh.h"

enum { HALF = 8 }; // floats of a register

// Polynomial step p * r + c, rounded twice as in the other versions.
static inline __m256 step(__m256 p, __m256 r, float c) {
    return _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(c));
}

static inline __m256 exp_negative(__m256 x) {
    const __m256 magic = _mm256_set1_ps(EXP_ROUND);
    x = _mm256_max_ps(x, _mm256_set1_ps(EXP_LOWEST)); // NaN gives the second operand
    x = _mm256_min_ps(x, _mm256_setzero_ps());
    __m256 shifted = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(EXP_LOG2E)), magic);
    __m256 n = _mm256_sub_ps(shifted, magic);
    __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(EXP_LN2_HIGH)));
    r = _mm256_sub_ps(r, _mm256_mul_ps(n, _mm256_set1_ps(EXP_LN2_LOW)));
    __m256 p = step(_mm256_set1_ps(EXP_P0), r, EXP_P1);
    p = step(p, r, EXP_P2);
    p = step(p, r, EXP_P3);
    p = step(p, r, EXP_P4);
    p = step(p, r, EXP_P5);
    p = _mm256_add_ps(_mm256_mul_ps(p, _mm256_mul_ps(r, r)), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i bits = _mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}

double sample_weigh_avx2(const float *logits, float *weights, uint32_t count,
                         const struct sample_weigh *how) {
    const __m256 max = _mm256_set1_ps(how->max);
    const __m256 scale = _mm256_set1_ps(how->inverse_temperature);
    const __m256 least = _mm256_set1_ps(how->weight_min);
    __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    uint32_t i = 0;
    for (; i + SAMPLE_WEIGH_LANES <= count; i += SAMPLE_WEIGH_LANES) {
        for (uint32_t half = 0; half < 2; half++) {
            __m256 x = _mm256_loadu_ps(logits + i + half * HALF);
            __m256 weight = exp_negative(_mm256_mul_ps(_mm256_sub_ps(x, max), scale));
            weight = _mm256_and_ps(weight, _mm256_cmp_ps(weight, least, _CMP_GE_OQ));
            _mm256_storeu_ps(weights + i + half * HALF, weight);
            sums[half] = _mm256_add_ps(sums[half], weight);
        }
    }
    float lanes[SAMPLE_WEIGH_LANES];
    _mm256_storeu_ps(lanes, sums[0]);
    _mm256_storeu_ps(lanes + HALF, sums[1]);
    return sample_weigh_rest(lanes, logits + i, weights + i, count - i, how);
}
