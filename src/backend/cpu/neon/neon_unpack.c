/* Packed weights in registers of 16 bytes (linear/unpack.h), as AVX2 does it. */
#include <arm_neon.h>
#include <string.h>

#include "backend/cpu/isa/kernels_arm.h"
#include "backend/cpu/linear/packed.h"

#define UNPACK_LANES 4
typedef float32x4_t unpack_vector;

typedef struct {
    int8x16_t values; // whole numbers; those of E2M1 are doubled
    float32x4_t factor; // of scales
} unpack_table;

static ALWAYS_INLINE unpack_table unpack_table_of(enum weight_code code) {
    const float *values = weight_code_values(code);
    float unit = code == WEIGHT_CODE_E2M1 ? 0.5f : 1.0f;
    int8_t bytes[16] = {0};
    for (int i = 0; values && i < 16; i++) bytes[i] = (int8_t)(values[i] / unit);
    return (unpack_table){vld1q_s8(bytes), vdupq_n_f32(unit)};
}

static ALWAYS_INLINE unpack_vector unpack_spread(const float *from, uint32_t part) {
    float32x2_t two = vld1_f32(from + (size_t)part * 2);
    return vcombine_f32(vdup_lane_f32(two, 0), vdup_lane_f32(two, 1));
}

static ALWAYS_INLINE unpack_vector unpack_value(enum unpack_kind kind, unpack_table table,
                                                const unsigned char *codes, uint32_t line,
                                                uint32_t part) {
    if (kind == UNPACK_4BIT) {
        uint8x16_t words = vld1q_u8(codes + (size_t)part * 16);
        words = line % 2 ? vshrq_n_u8(words, 4) : vandq_u8(words, vdupq_n_u8(15));
        int32x4_t bytes = vreinterpretq_s32_s8(vqtbl1q_s8(table.values, words));
        int32x4_t left = vdupq_n_s32((int32_t)(24 - line / 2 * 8));
        int32x4_t number = vshrq_n_s32(vshlq_s32(bytes, left), 24);
        return vcvtq_f32_s32(number);
    }
    int32_t four;
    memcpy(&four, codes + (size_t)line * 32 + (size_t)part * 4, sizeof four);
    int8x8_t bytes = vreinterpret_s8_s32(vdup_n_s32(four));
    int32x4_t number = vmovl_s16(vget_low_s16(vmovl_s8(bytes)));
    if (kind == UNPACK_INT8) return vcvtq_f32_s32(number);
    // The bits of a float, 2^120 times too small.
    int32x4_t magnitude = vshlq_n_s32(vandq_s32(number, vdupq_n_s32(0x7f)), 20);
    int32x4_t sign = vandq_s32(number, vdupq_n_s32(INT32_MIN));
    float32x4_t value = vreinterpretq_f32_s32(vorrq_s32(magnitude, sign));
    return vmulq_f32(value, vdupq_n_f32(0x1p120f));
}

static ALWAYS_INLINE unpack_vector unpack_scale(enum unpack_kind kind, unpack_table table,
                                                const float *from, uint32_t part) {
    unpack_vector scale = unpack_spread(from, part);
    return kind == UNPACK_4BIT ? vmulq_f32(scale, table.factor) : scale;
}

static ALWAYS_INLINE unpack_vector unpack_scaled(unpack_vector value, unpack_vector scale,
                                                 unpack_vector offset) {
    return vfmaq_f32(offset, value, scale);
}

static ALWAYS_INLINE void unpack_split(unpack_vector a, unpack_vector b, float *even, float *odd) {
    vst1q_f32(even, vuzp1q_f32(a, b));
    vst1q_f32(odd, vuzp2q_f32(a, b));
}

#include "backend/cpu/linear/unpack.h"

void neon_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out) {
    unpack_floats(chunk, code, out);
}
