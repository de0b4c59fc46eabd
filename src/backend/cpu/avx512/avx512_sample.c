#include <immintrin.h>
#include <math.h>

#include "backend/cpu/sample/sample_weigh.h"

// Polynomial step p * r + c, rounded twice as in the other versions.
static inline __m512 step(__m512 p, __m512 r, float c) {
    return _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(c));
}

static inline __m512 exp_negative(__m512 x) {
    const __m512 magic = _mm512_set1_ps(EXP_ROUND);
    x = _mm512_max_ps(x, _mm512_set1_ps(EXP_LOWEST)); // NaN gives the second operand
    x = _mm512_min_ps(x, _mm512_setzero_ps());
    __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(EXP_LOG2E)), magic);
    __m512 n = _mm512_sub_ps(shifted, magic);
    __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(EXP_LN2_HIGH)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(EXP_LN2_LOW)));
    __m512 p = step(_mm512_set1_ps(EXP_P0), r, EXP_P1);
    p = step(p, r, EXP_P2);
    p = step(p, r, EXP_P3);
    p = step(p, r, EXP_P4);
    p = step(p, r, EXP_P5);
    p = _mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23)));
}

double sample_weigh_avx512(const float *logits, float *weights, uint32_t count,
                           const struct sample_weigh *how) {
    const __m512 max = _mm512_set1_ps(how->max);
    const __m512 scale = _mm512_set1_ps(how->inverse_temperature);
    const __m512 least = _mm512_set1_ps(how->weight_min);
    __m512 sum = _mm512_setzero_ps();
    uint32_t i = 0;
    for (; i + SAMPLE_WEIGH_LANES <= count; i += SAMPLE_WEIGH_LANES) {
        __m512 x = _mm512_loadu_ps(logits + i);
        __m512 weight = exp_negative(_mm512_mul_ps(_mm512_sub_ps(x, max), scale));
        weight = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(weight, least, _CMP_GE_OQ), weight);
        _mm512_storeu_ps(weights + i, weight);
        sum = _mm512_add_ps(sum, weight);
    }
    float lanes[SAMPLE_WEIGH_LANES];
    _mm512_storeu_ps(lanes, sum);
    return sample_weigh_rest(lanes, logits + i, weights + i, count - i, how);
}

// Two maxima, so that a step does not wait for the one before.
float sample_max_avx512(const float *logits, uint32_t count) {
    __m512 max[2] = {_mm512_set1_ps(-INFINITY), _mm512_set1_ps(-INFINITY)};
    uint32_t i = 0;
    for (; i + 2 * SAMPLE_WEIGH_LANES <= count; i += 2 * SAMPLE_WEIGH_LANES) {
        // NaN gives the second operand.
        max[0] = _mm512_max_ps(_mm512_loadu_ps(logits + i), max[0]);
        max[1] = _mm512_max_ps(_mm512_loadu_ps(logits + i + SAMPLE_WEIGH_LANES), max[1]);
    }
    float lanes[SAMPLE_WEIGH_LANES];
    _mm512_storeu_ps(lanes, _mm512_max_ps(max[0], max[1]));
    return sample_max_rest(lanes, logits + i, count - i);
}
