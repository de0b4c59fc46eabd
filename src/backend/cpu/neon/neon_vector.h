/* Vectors of 4 floats, for attention_span.h. */
#ifndef BACKEND_CPU_NEON_NEON_VECTOR_H
#define BACKEND_CPU_NEON_NEON_VECTOR_H

#include "backend/cpu/neon/neon.h"

typedef float32x4_t vector;

enum {
    VECTOR_LANES = 4,
    VECTORS_MAX = NEON_QUADS_MAX,
    VECTOR_REGISTERS = 32,
    VECTOR_ROWS_MAX = NEON_ROWS_MAX,
};

enum vector_part {
    PART_F32 = NEON_F32,
    PART_INT8 = NEON_INT8,
    PART_E4M3 = NEON_E4M3,
    PART_BF16_FIRST = NEON_BF16_FIRST,
    PART_BF16_SECOND = NEON_BF16_SECOND,
};

static ALWAYS_INLINE vector vector_zero(void) {
    return vdupq_n_f32(0);
}

static ALWAYS_INLINE vector vector_set(float x) {
    return vdupq_n_f32(x);
}

static ALWAYS_INLINE vector vector_load(const float *from) {
    return vld1q_f32(from);
}

static ALWAYS_INLINE void vector_store(float *to, vector x) {
    vst1q_f32(to, x);
}

static ALWAYS_INLINE vector vector_add(vector a, vector b) {
    return vaddq_f32(a, b);
}

static ALWAYS_INLINE vector vector_sub(vector a, vector b) {
    return vsubq_f32(a, b);
}

static ALWAYS_INLINE vector vector_mul(vector a, vector b) {
    return vmulq_f32(a, b);
}

static ALWAYS_INLINE vector vector_div(vector a, vector b) {
    return vdivq_f32(a, b);
}

// a * b + c
static ALWAYS_INLINE vector vector_fma(vector a, vector b, vector c) {
    return vfmaq_f32(c, a, b);
}

static ALWAYS_INLINE vector vector_max(vector a, vector b) {
    return vmaxq_f32(a, b);
}

static ALWAYS_INLINE vector vector_clamp(vector x, float low, float high) {
    return vminq_f32(vmaxq_f32(x, vdupq_n_f32(low)), vdupq_n_f32(high)); // NaN if one is
}

static ALWAYS_INLINE vector vector_exp(vector x) {
    return neon_exp(x);
}

static ALWAYS_INLINE float vector_reduce_max(vector x) {
    return vmaxvq_f32(x);
}

static ALWAYS_INLINE vector vector_between(vector x, uint32_t begin, uint32_t end, vector other) {
    static const uint32_t lanes[VECTOR_LANES] = {0, 1, 2, 3};
    uint32x4_t lane = vld1q_u32(lanes);
    uint32x4_t inside =
        vandq_u32(vcgeq_u32(lane, vdupq_n_u32(begin)), vcltq_u32(lane, vdupq_n_u32(end)));
    return vbslq_f32(inside, x, other);
}

// acc[r][i] += x[r * stride] * y[i] at the byte `at`.
static ALWAYS_INLINE void vector_multiply_add(vector acc[VECTOR_ROWS_MAX][VECTORS_MAX],
                                              const float *x, size_t stride,
                                              const char *const y[VECTORS_MAX], size_t at,
                                              uint32_t rows, uint32_t vectors,
                                              enum vector_part part) {
    const char *from[VECTORS_MAX];
    UNROLL for (uint32_t i = 0; i < vectors; i++) from[i] = y[i] + at;
    neon_multiply_add(acc, x, stride, from, rows, vectors, (enum neon_part)part);
}

#endif
