/* Element types, by safetensors' names, and the conversions between the three float types that
 * weights come in. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype {
    DTYPE_NONE = 0,
    DTYPE_BOOL,
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_F8_E5M2,
    DTYPE_F8_E4M3,
    DTYPE_F8_E8M0,
    DTYPE_I16,
    DTYPE_U16,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I32,
    DTYPE_U32,
    DTYPE_F32,
    DTYPE_I64,
    DTYPE_U64,
    DTYPE_F64,
    DTYPE_C64,
};

size_t dtype_size(enum dtype dtype); // bytes of one element; 0 for DTYPE_NONE
const char *dtype_name(enum dtype dtype); // "BF16", ...
enum dtype dtype_from_name(const char *name); // DTYPE_NONE when unknown

static inline float bf16_to_f32(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

// Round to nearest even; NaN stays NaN.
static inline uint16_t f32_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    uint32_t wide;
    if (exponent == 31) {
        wide = sign | 0x7f800000u | (mantissa << 13);
    } else if (exponent) {
        wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else {
        float tiny = (float)mantissa * 0x1p-24f; // zero and subnormals are exact
        memcpy(&wide, &tiny, sizeof wide);
        wide |= sign;
    }
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#endif
