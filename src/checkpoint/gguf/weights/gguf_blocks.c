/* One function for each type. Source: the structs and dequantize_row functions of ggml's
 * ggml-common.h and ggml-quants.c, and the Python package gguf. In all of them d is a block's scale
 * in F16; of two 4-bit codes in a byte the low one comes first. */
#include "checkpoint/gguf/weights/gguf_blocks.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/weight_code.h"
#include "checkpoint/gguf/weights/gguf_block_parts.h"

static void decode_f32(const uint8_t *block, size_t num_blocks, float *out) {
    memcpy(out, block, num_blocks * sizeof *out);
}

static void decode_f16(const uint8_t *block, size_t num_blocks, float *out) {
    for (size_t i = 0; i < num_blocks; i++) out[i] = half_at(block + 2 * i);
}

static void decode_bf16(const uint8_t *block, size_t num_blocks, float *out) {
    for (size_t i = 0; i < num_blocks; i++) {
        uint16_t bits;
        memcpy(&bits, block + 2 * i, sizeof bits);
        out[i] = bf16_to_f32(bits);
    }
}

// d, codes[16]: (code - 8) * d
static void decode_q4_0(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 18, out += 32) {
        float d = half_at(block);
        for (int i = 0; i < 16; i++) {
            out[i] = (float)((block[2 + i] & 15) - 8) * d;
            out[i + 16] = (float)((block[2 + i] >> 4) - 8) * d;
        }
    }
}

// d, m, codes[16]: code * d + m
static void decode_q4_1(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 20, out += 32) {
        float d = half_at(block), m = half_at(block + 2);
        for (int i = 0; i < 16; i++) {
            out[i] = (float)(block[4 + i] & 15) * d + m;
            out[i + 16] = (float)(block[4 + i] >> 4) * d + m;
        }
    }
}

// d, high[4], low[16]: (code - 16) * d
static void decode_q5_0(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 22, out += 32) {
        float d = half_at(block);
        for (int i = 0; i < 16; i++) {
            int first, second;
            codes5(block + 2, block + 6, i, &first, &second);
            out[i] = (float)(first - 16) * d;
            out[i + 16] = (float)(second - 16) * d;
        }
    }
}

// d, m, high[4], low[16]: code * d + m
static void decode_q5_1(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 24, out += 32) {
        float d = half_at(block), m = half_at(block + 2);
        for (int i = 0; i < 16; i++) {
            int first, second;
            codes5(block + 4, block + 8, i, &first, &second);
            out[i] = (float)first * d + m;
            out[i + 16] = (float)second * d + m;
        }
    }
}

// d, codes[32], two's complement
static void decode_q8_0(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 34, out += 32) {
        float d = half_at(block);
        for (int i = 0; i < 32; i++) out[i] = (float)(int8_t)block[2 + i] * d;
    }
}

// d in F32, codes[256], sums[16] of the codes in I16
static void decode_q8_k(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 292, out += 256) {
        float d;
        memcpy(&d, block, sizeof d);
        for (int i = 0; i < 256; i++) out[i] = d * (float)(int8_t)block[4 + i];
    }
}

// scales[16]: 4 bits of scale, 4 of minimum; codes[64]; d; dmin. Element 128h + 32s + i has its two
// bits in byte 32h + i from bit 2s on.
static void decode_q2_k(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 84, out += 256) {
        float d = half_at(block + 80), dmin = half_at(block + 82);
        for (int group = 0; group < 16; group++) {
            float scale = d * (float)(block[group] & 15), low = dmin * (float)(block[group] >> 4);
            int first, shift;
            place_2bit(group, &first, &shift);
            const uint8_t *codes = block + 16 + first;
            for (int i = 0; i < 16; i++) {
                out[group * 16 + i] = scale * (float)(codes[i] >> shift & 3) - low;
            }
        }
    }
}

// high[32], codes[64], scales[12] of 6 bits each, d. The two low bits lie as in Q2_K. The third of
// element 32k + i is bit k of high[i]; where it is not set, 4 is subtracted.
static void decode_q3_k(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 110, out += 256) {
        float d = half_at(block + 108);
        for (int group = 0; group < 16; group++) {
            int first, shift, bit = group / 2;
            place_2bit(group, &first, &shift);
            float factor = d * (float)scale_q3_k(block + 96, group);
            const uint8_t *codes = block + 32 + first, *high = block + group % 2 * 16;
            for (int i = 0; i < 16; i++) {
                int code = (codes[i] >> shift & 3) - (high[i] >> bit & 1 ? 0 : 4);
                out[group * 16 + i] = factor * (float)code;
            }
        }
    }
}

// d, dmin, scales[12], codes[128]. Groups 2k and 2k + 1 of 32 elements are the low and the high
// halves of bytes 32k and up.
static void decode_q4_k(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 144, out += 256) {
        float d = half_at(block), dmin = half_at(block + 2);
        for (int group = 0; group < 8; group++) {
            int scale, low;
            scale_min(block + 4, group, &scale, &low);
            float factor = d * (float)scale, offset = dmin * (float)low;
            const uint8_t *codes = block + 16 + group / 2 * 32;
            int shift = group % 2 * 4;
            for (int i = 0; i < 32; i++) {
                out[group * 32 + i] = factor * (float)(codes[i] >> shift & 15) - offset;
            }
        }
    }
}

// d, dmin, scales[12], high[32], codes[128]: as Q4_K. The fifth bit of a group's element i is bit
// `group` of high[i].
static void decode_q5_k(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 176, out += 256) {
        float d = half_at(block), dmin = half_at(block + 2);
        for (int group = 0; group < 8; group++) {
            int scale, low;
            scale_min(block + 4, group, &scale, &low);
            float factor = d * (float)scale, offset = dmin * (float)low;
            const uint8_t *high = block + 16, *codes = block + 48 + group / 2 * 32;
            int shift = group % 2 * 4;
            for (int i = 0; i < 32; i++) {
                int code = (codes[i] >> shift & 15) | (high[i] >> group & 1) << 4;
                out[group * 32 + i] = factor * (float)code - offset;
            }
        }
    }
}

// low[128], high[64], scales[16] in two's complement, d. Element 128h + 32s + i has four bits in
// byte 64h + 32 (s % 2) + i of low, and two in byte 32h + i of high from bit 2s on.
static void decode_q6_k(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 210, out += 256) {
        float d = half_at(block + 208);
        for (int group = 0; group < 16; group++) {
            float factor = d * (float)(int8_t)block[192 + group];
            struct place_q6_k at = place_q6_k(group);
            const uint8_t *low = block + at.low, *high = block + at.high;
            for (int i = 0; i < 16; i++) {
                int code = (low[i] >> at.low_shift & 15) | (high[i] >> at.high_shift & 3) << 4;
                out[group * 16 + i] = factor * (float)(code - 32);
            }
        }
    }
}

static void decode_table(const float values[16], float scale, const uint8_t *codes, float *out) {
    for (int i = 0; i < 16; i++) {
        out[i] = scale * values[codes[i] & 15];
        out[i + 16] = scale * values[codes[i] >> 4];
    }
}

// d, codes[16]
static void decode_iq4_nl(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 18, out += 32) {
        decode_table(weight_code_values(WEIGHT_CODE_IQ4), half_at(block), block + 2, out);
    }
}

// d, two high bits of each group's scale in U16, four low bits in [4], codes[128]
static void decode_iq4_xs(const uint8_t *block, size_t num_blocks, float *out) {
    for (; num_blocks; num_blocks--, block += 136, out += 256) {
        float d = half_at(block);
        for (int group = 0; group < 8; group++) {
            decode_table(weight_code_values(WEIGHT_CODE_IQ4), d * (float)scale_iq4_xs(block, group),
                         block + 8 + group * 16, out + group * 32);
        }
    }
}

// scale: 2^(byte - 127); codes[16] in E2M1. The values are doubled and the scale is halved, as in
// ggml: the smallest scale is no normal float.
static void decode_mxfp4(const uint8_t *block, size_t num_blocks, float *out) {
    static const float values[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
    for (; num_blocks; num_blocks--, block += 17, out += 32) {
        decode_table(values, ldexpf(1, (int)block[0] - 128), block + 1, out);
    }
}

static const struct block_type block_types[] = {
    {0, "F32", 1, 4, DTYPE_F32, decode_f32},
    {1, "F16", 1, 2, DTYPE_F16, decode_f16},
    {2, "Q4_0", 32, 18, DTYPE_NONE, decode_q4_0},
    {3, "Q4_1", 32, 20, DTYPE_NONE, decode_q4_1},
    {6, "Q5_0", 32, 22, DTYPE_NONE, decode_q5_0},
    {7, "Q5_1", 32, 24, DTYPE_NONE, decode_q5_1},
    {8, "Q8_0", 32, 34, DTYPE_NONE, decode_q8_0},
    {9, "Q8_1", 32, 36, DTYPE_NONE, NULL},
    {10, "Q2_K", 256, 84, DTYPE_NONE, decode_q2_k},
    {11, "Q3_K", 256, 110, DTYPE_NONE, decode_q3_k},
    {12, "Q4_K", 256, 144, DTYPE_NONE, decode_q4_k},
    {13, "Q5_K", 256, 176, DTYPE_NONE, decode_q5_k},
    {14, "Q6_K", 256, 210, DTYPE_NONE, decode_q6_k},
    {15, "Q8_K", 256, 292, DTYPE_NONE, decode_q8_k},
    {16, "IQ2_XXS", 256, 66, DTYPE_NONE, NULL},
    {17, "IQ2_XS", 256, 74, DTYPE_NONE, NULL},
    {18, "IQ3_XXS", 256, 98, DTYPE_NONE, NULL},
    {19, "IQ1_S", 256, 50, DTYPE_NONE, NULL},
    {20, "IQ4_NL", 32, 18, DTYPE_NONE, decode_iq4_nl},
    {21, "IQ3_S", 256, 110, DTYPE_NONE, NULL},
    {22, "IQ2_S", 256, 82, DTYPE_NONE, NULL},
    {23, "IQ4_XS", 256, 136, DTYPE_NONE, decode_iq4_xs},
    {24, "I8", 1, 1, DTYPE_I8, NULL},
    {25, "I16", 1, 2, DTYPE_I16, NULL},
    {26, "I32", 1, 4, DTYPE_I32, NULL},
    {27, "I64", 1, 8, DTYPE_I64, NULL},
    {28, "F64", 1, 8, DTYPE_F64, NULL},
    {29, "IQ1_M", 256, 56, DTYPE_NONE, NULL},
    {30, "BF16", 1, 2, DTYPE_BF16, decode_bf16},
    {34, "TQ1_0", 256, 54, DTYPE_NONE, NULL},
    {35, "TQ2_0", 256, 66, DTYPE_NONE, NULL},
    {39, "MXFP4", 32, 17, DTYPE_NONE, decode_mxfp4},
    {40, "NVFP4", 64, 36, DTYPE_NONE, NULL},
    {41, "Q1_0", 128, 18, DTYPE_NONE, NULL},
    {42, "Q2_0", 64, 18, DTYPE_NONE, NULL},
};

const struct block_type *block_type_of(uint32_t number) {
    for (size_t i = 0; i < ARRAY_LEN(block_types); i++) {
        if (block_types[i].number == number) return &block_types[i];
    }
    return NULL;
}
