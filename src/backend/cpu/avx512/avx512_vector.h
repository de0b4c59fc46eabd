/* Vectors of 16 floats, for attention_span.h. */
#ifndef BACKEND_CPU_AVX512_AVX512_VECTOR_H
#define BACKEND_CPU_AVX512_AVX512_VECTOR_H

#include "backend/cpu/avx512/avx512.h"
#include "base/compiler.h"

typedef __m512 vector;

enum {
    VECTOR_LANES = 16,
    VECTORS_MAX = 8,
    VECTOR_REGISTERS = 31, // one is left for the other factor
    VECTOR_ROWS_MAX = 12,
};

// What an array of keys or values holds at a place: numbers, or pairs of bf16 that are neighbours
// along the summed index. Shifted left a pair is the first one's float, with its low half cleared
// the second one's. All conversions are exact.
enum vector_part { PART_F32, PART_INT8, PART_E4M3, PART_BF16_FIRST, PART_BF16_SECOND };

static ALWAYS_INLINE vector vector_part_of(const char *at, enum vector_part part) {
    if (part == PART_F32) return _mm512_loadu_ps((const float *)(const void *)at);
    if (part == PART_INT8) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)));
    }
    if (part == PART_E4M3) { // divided by ATTENTION_E4M3_FACTOR
        __m128i bytes = _mm_loadu_si128((const void *)at);
        __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
        return _mm512_cvtph_ps(_mm256_and_si256(words, _mm256_set1_epi16((short)0xbf80)));
    }
    __m512i pairs = _mm512_loadu_si512((const void *)at);
    if (part == PART_BF16_FIRST) return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000);
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, high));
}

static ALWAYS_INLINE vector vector_zero(void) {
    return _mm512_setzero_ps();
}

static ALWAYS_INLINE vector vector_set(float x) {
    return _mm512_set1_ps(x);
}

static ALWAYS_INLINE vector vector_load(const float *from) {
    return _mm512_loadu_ps(from);
}

static ALWAYS_INLINE void vector_store(float *to, vector x) {
    _mm512_storeu_ps(to, x);
}

static ALWAYS_INLINE vector vector_add(vector a, vector b) {
    return _mm512_add_ps(a, b);
}

static ALWAYS_INLINE vector vector_sub(vector a, vector b) {
    return _mm512_sub_ps(a, b);
}

static ALWAYS_INLINE vector vector_mul(vector a, vector b) {
    return _mm512_mul_ps(a, b);
}

static ALWAYS_INLINE vector vector_div(vector a, vector b) {
    return _mm512_div_ps(a, b);
}

// a * b + c
static ALWAYS_INLINE vector vector_fma(vector a, vector b, vector c) {
    return _mm512_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE vector vector_max(vector a, vector b) {
    return _mm512_max_ps(a, b);
}

static ALWAYS_INLINE vector vector_clamp(vector x, float low, float high) {
    // The second operand is returned when one is NaN.
    return _mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), x));
}

static ALWAYS_INLINE vector vector_exp(vector x) {
    return avx512_exp(x);
}

static ALWAYS_INLINE float vector_reduce_max(vector x) {
    return _mm512_reduce_max_ps(x);
}

static ALWAYS_INLINE vector vector_between(vector x, uint32_t begin, uint32_t end, vector other) {
    __mmask16 mask = (__mmask16)(avx512_first_lanes(end) & ~avx512_first_lanes(begin));
    return _mm512_mask_mov_ps(other, mask, x);
}

// acc[r][i] += x[r * stride] * y[i] at the byte `at`.
static ALWAYS_INLINE void vector_multiply_add(vector acc[VECTOR_ROWS_MAX][VECTORS_MAX],
                                              const float *x, size_t stride,
                                              const char *const y[VECTORS_MAX], size_t at,
                                              uint32_t rows, uint32_t vectors,
                                              enum vector_part part) {
    vector y_of[VECTORS_MAX];
    UNROLL for (uint32_t i = 0; i < vectors; i++) y_of[i] = vector_part_of(y[i] + at, part);
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        vector x_r = _mm512_set1_ps(x[r * stride]);
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            acc[r][i] = _mm512_fmadd_ps(x_r, y_of[i], acc[r][i]);
        }
    }
}

#endif
