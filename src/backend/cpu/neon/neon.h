/* Shared by the NEON kernels (kernels_arm.h). A group of 16 lanes is four registers, here called
 * quads. */
#ifndef BACKEND_CPU_NEON_H
#define BACKEND_CPU_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/isa/kernels_arm.h"
#include "base/compiler.h"

enum {
    QUAD = 4, // floats of a register
    NEON_ROWS_MAX = 6, // `rows` x `quads` accumulators take at most 24 of the 32 registers
    NEON_QUADS_MAX = 16,
};

// Which number an array of weights, keys or values holds at a place: its own, or one of a pair of
// bf16 that are neighbours along the summed index. Shifted left a pair is the first one's float,
// with its low half cleared the second one's. All conversions are exact.
enum neon_part { NEON_F32, NEON_INT8, NEON_E4M3, NEON_BF16_FIRST, NEON_BF16_SECOND };

static ALWAYS_INLINE float32x4_t neon_part_of(const char *at, enum neon_part part) {
    if (part == NEON_INT8 || part == NEON_E4M3) {
        int32_t four;
        memcpy(&four, at, sizeof four);
        int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(four));
        if (part == NEON_E4M3) { // divided by ATTENTION_E4M3_FACTOR
            uint16x4_t words = vreinterpret_u16_s16(vget_low_s16(vshll_n_s8(bytes, 7)));
            words = vand_u16(words, vdup_n_u16(0xbf80));
            return vcvt_f32_f16(vreinterpret_f16_u16(words));
        }
        return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
    }
    uint32x4_t bits = vreinterpretq_u32_u8(vld1q_u8((const unsigned char *)at));
    if (part == NEON_BF16_FIRST) bits = vshlq_n_u32(bits, 16);
    if (part == NEON_BF16_SECOND) bits = vandq_u32(bits, vdupq_n_u32(0xffff0000));
    return vreinterpretq_f32_u32(bits);
}

// acc[r][q] += x[r * stride] * y[q], the step of all float32 sums. y is loaded when all rows are
// ready for it, because the accumulators leave room for one or two registers only.
static ALWAYS_INLINE void neon_multiply_add(float32x4_t acc[NEON_ROWS_MAX][NEON_QUADS_MAX],
                                            const float *x, size_t stride,
                                            const char *const y[NEON_QUADS_MAX], uint32_t rows,
                                            uint32_t quads, enum neon_part part) {
    float32x4_t x_of[NEON_ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) x_of[r] = vdupq_n_f32(x[r * stride]);
    UNROLL for (uint32_t q = 0; q < quads; q++) {
        float32x4_t y_q = neon_part_of(y[q], part);
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][q] = vfmaq_f32(acc[r][q], y_q, x_of[r]);
    }
}

// The first `left` of 4 floats (all if more), the others 0.
static inline float32x4_t neon_load(const float *from, uint32_t left) {
    if (left >= QUAD) return vld1q_f32(from);
    float value[QUAD] = {0};
    memcpy(value, from, left * sizeof *value);
    return vld1q_f32(value);
}

static inline void neon_store(float *to, float32x4_t from, uint32_t left) {
    float value[QUAD];
    vst1q_f32(value, from);
    memcpy(to, value, (left < QUAD ? left : QUAD) * sizeof *value);
}

// e^x within 1 ulp, as avx2_exp. Below -87.3, where the result would be subnormal, it is 0. Large x
// gives inf, NaN gives NaN.
static inline float32x4_t neon_exp(float32x4_t x) {
    const float32x4_t lowest = vdupq_n_f32(-87.3f);
    uint32x4_t tiny = vcltq_f32(x, lowest);
    x = vminq_f32(vmaxq_f32(x, lowest), vdupq_n_f32(100.0f));
    float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0f)));
    // x - n ln 2, with ln 2 in two parts of which the first times n is exact.
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e400p-1f));
    r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20f));
    float32x4_t p = vdupq_n_f32(0x1.6d1106p-10f);
    p = vfmaq_f32(vdupq_n_f32(0x1.120b6cp-7f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.55551ap-5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0x1.5554dcp-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    // 2^n as a product of two powers: n goes up to 144, beyond a float's exponent.
    int32x4_t whole = vcvtq_s32_f32(n);
    int32x4_t first = vshrq_n_s32(whole, 1);
    int32x4_t second = vsubq_s32(whole, first);
    const int32x4_t bias = vdupq_n_s32(127);
    float32x4_t first_power = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(first, bias), 23));
    float32x4_t second_power = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(second, bias), 23));
    p = vmulq_f32(vmulq_f32(p, first_power), second_power);
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), tiny));
}

#endif
