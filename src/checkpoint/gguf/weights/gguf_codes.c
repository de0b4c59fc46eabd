/* All scales are exact: products of d and a small integer. A code of 4 bits stands for -8 to 7, so
 * codes from 0 on get an offset of 8 scales more. That sum is exact unless d is over 16 times dmin;
 * then it is rounded to float32. Five and six bits are kept in eight. */
#include "checkpoint/gguf/weights/gguf_codes.h"

#include <math.h>
#include <stddef.h>

#include "base/compiler.h"
#include "checkpoint/gguf/weights/gguf_block_parts.h"
#include "checkpoint/gguf/weights/gguf_grid_codes.h"

// Loading is mostly these functions, so they take 16 bytes at a time. Pairs of bytes are shifted
// together; what crosses from one to the other is masked away.
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t pairs8 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));
typedef float floats4 __attribute__((vector_size(16)));

static ALWAYS_INLINE bytes16 load16(const uint8_t *from) {
    bytes16 bytes;
    memcpy(&bytes, from, sizeof bytes);
    return bytes;
}

static ALWAYS_INLINE void store16(bytes16 bytes, uint8_t *to) {
    memcpy(to, &bytes, sizeof bytes);
}

static ALWAYS_INLINE bytes16 low_halves(bytes16 bytes) {
    return bytes & 15;
}

static ALWAYS_INLINE bytes16 high_halves(bytes16 bytes) {
    return (bytes16)((pairs8)bytes >> 4) & 15;
}

// The low halves of `count` bytes, and the high ones.
static ALWAYS_INLINE void halves(const uint8_t *bytes, int count, uint8_t *low, uint8_t *high) {
    for (int i = 0; i < count; i += 16) {
        bytes16 both = load16(bytes + i);
        store16(low_halves(both), low + i);
        store16(high_halves(both), high + i);
    }
}

// Multiples of d, of groups' small integers.
static ALWAYS_INLINE void multiples(float d, const int8_t *restrict factors, int count,
                                    float *restrict out) {
    for (int i = 0; i < count; i++) out[i] = d * (float)factors[i];
}

// Multiples of d, of the four bytes of a word below 128. A byte is left where it is, and d is
// divided by what that multiplies it by, which changes no bit.
static ALWAYS_INLINE floats4 multiples4(float d, uint32_t word) {
    const ints4 masks = {0xff, 0xff00, 0xff0000, 0x7f000000};
    const floats4 divided = d * (floats4){1, 0x1p-8f, 0x1p-16f, 0x1p-24f};
    const ints4 bytes = (int32_t)word & masks;
    return __builtin_convertvector(bytes, floats4) * divided;
}

// Multiples of the scales and the minima of the 8 groups of Q4_K and Q5_K, 6 bits each (scale_min).
static ALWAYS_INLINE void scales_mins(const uint8_t packed[12], float d, float dmin,
                                      floats4 scales[2], floats4 mins[2]) {
    uint32_t words[3];
    memcpy(words, packed, sizeof words);
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303, six = 0x3f3f3f3f;
    scales[0] = multiples4(d, words[0] & six);
    scales[1] = multiples4(d, (words[2] & low) | (words[0] >> 6 & two) << 4);
    mins[0] = multiples4(dmin, words[1] & six);
    mins[1] = multiples4(dmin, (words[2] >> 4 & low) | (words[1] >> 6 & two) << 4);
}

static void unpack_q4_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 18, codes += 32, scales++) {
        scales[0] = half_at(block);
        halves(block + 2, 16, codes, codes + 16);
    }
}

static void unpack_q4_1(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    for (; num_blocks; num_blocks--, block += 20, codes += 32, scales++, offsets++) {
        scales[0] = half_at(block);
        offsets[0] = half_at(block + 2) + 8 * scales[0];
        halves(block + 4, 16, codes, codes + 16);
    }
}

static void unpack_q5_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 22, codes += 32, scales++) {
        scales[0] = half_at(block);
        for (int i = 0; i < 16; i++) {
            int first, second;
            codes5(block + 2, block + 6, i, &first, &second);
            codes[i] = (uint8_t)(first - 16);
            codes[i + 16] = (uint8_t)(second - 16);
        }
    }
}

static void unpack_q5_1(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    for (; num_blocks; num_blocks--, block += 24, codes += 32, scales++, offsets++) {
        scales[0] = half_at(block);
        offsets[0] = half_at(block + 2);
        for (int i = 0; i < 16; i++) {
            int first, second;
            codes5(block + 4, block + 8, i, &first, &second);
            codes[i] = (uint8_t)first;
            codes[i + 16] = (uint8_t)second;
        }
    }
}

static void unpack_q8_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 34, codes += 32, scales++) {
        scales[0] = half_at(block);
        memcpy(codes, block + 2, 32);
    }
}

static void unpack_q8_k(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 292, codes += 256, scales++) {
        memcpy(scales, block, sizeof *scales);
        memcpy(codes, block + 4, 256);
    }
}

static void unpack_q2_k(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    for (; num_blocks; num_blocks--, block += 84, codes += 256, scales += 16, offsets += 16) {
        float d = half_at(block + 80), dmin = half_at(block + 82);
        for (int group = 0; group < 16; group++) {
            int first, shift;
            place_2bit(group, &first, &shift);
            scales[group] = d * (float)(block[group] & 15);
            offsets[group] = -(dmin * (float)(block[group] >> 4));
            for (int i = 0; i < 16; i++) {
                codes[group * 16 + i] = (uint8_t)((block[16 + first + i] >> shift & 3) + 8);
            }
        }
    }
}

static void unpack_q3_k(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 110, codes += 256, scales += 16) {
        float d = half_at(block + 108);
        for (int group = 0; group < 16; group++) {
            int first, shift, bit = group / 2;
            place_2bit(group, &first, &shift);
            scales[group] = d * (float)scale_q3_k(block + 96, group);
            const uint8_t *low = block + 32 + first, *high = block + group % 2 * 16;
            for (int i = 0; i < 16; i++) {
                int code = (low[i] >> shift & 3) - (high[i] >> bit & 1 ? 0 : 4);
                codes[group * 16 + i] = (uint8_t)(code + 8);
            }
        }
    }
}

static void unpack_q4_k(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    for (; num_blocks; num_blocks--, block += 144, codes += 256, scales += 8, offsets += 8) {
        floats4 all[2], mins[2];
        scales_mins(block + 4, half_at(block), half_at(block + 2), all, mins);
        const floats4 all_offsets[2] = {8 * all[0] - mins[0], 8 * all[1] - mins[1]};
        memcpy(scales, all, sizeof all);
        memcpy(offsets, all_offsets, sizeof all_offsets);
        for (int pair = 0; pair < 4; pair++) {
            halves(block + 16 + pair * 32, 32, codes + pair * 64, codes + pair * 64 + 32);
        }
    }
}

static void unpack_q5_k(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    for (; num_blocks; num_blocks--, block += 176, codes += 256, scales += 8, offsets += 8) {
        floats4 all[2], mins[2];
        scales_mins(block + 4, half_at(block), -half_at(block + 2), all, mins);
        memcpy(scales, all, sizeof all);
        memcpy(offsets, mins, sizeof mins);
        for (int pair = 0; pair < 4; pair++) {
            uint8_t *first = codes + pair * 64, *second = first + 32;
            halves(block + 48 + pair * 32, 32, first, second);
            for (int i = 0; i < 32; i++) {
                unsigned high = block[16 + i] >> (2 * pair);
                first[i] |= (uint8_t)((high & 1) << 4);
                second[i] |= (uint8_t)((high >> 1 & 1) << 4);
            }
        }
    }
}

static void unpack_q6_k(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 210, codes += 256, scales += 16) {
        int8_t factors[16];
        memcpy(factors, block + 192, sizeof factors);
        multiples(half_at(block + 208), factors, 16, scales);
        for (int half = 0; half < 2; half++) {
            const uint8_t *low = block + 64 * half, *high = block + 128 + 32 * half;
            uint8_t *out = codes + 128 * half;
            for (int i = 0; i < 32; i += 16) {
                bytes16 first = load16(low + i), second = load16(low + 32 + i);
                bytes16 two = load16(high + i); // bits of the four slices
                pairs8 pairs = (pairs8)two;
                store16((low_halves(first) | ((bytes16)(pairs << 4) & 48)) - 32, out + i);
                store16((low_halves(second) | ((bytes16)(pairs << 2) & 48)) - 32, out + 32 + i);
                store16((high_halves(first) | (two & 48)) - 32, out + 64 + i);
                store16((high_halves(second) | ((bytes16)(pairs >> 2) & 48)) - 32, out + 96 + i);
            }
        }
    }
}

static void unpack_iq4_xs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                          float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 136, codes += 256, scales += 8) {
        float d = half_at(block);
        for (int group = 0; group < 8; group++) {
            scales[group] = d * (float)scale_iq4_xs(block, group);
            const uint8_t *bytes = block + 8 + group * 16;
            halves(bytes, 16, codes + group * 32, codes + group * 32 + 16);
        }
    }
}

static void unpack_mxfp4(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                         float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 17, codes += 32, scales++) {
        scales[0] = ldexpf(1, (int)block[0] - 127);
        halves(block + 1, 16, codes, codes + 16);
    }
}

// Four scales in E4M3, whose sign is not read, and 0x7f is 0; for each 16 elements codes[8].
static void unpack_nvfp4(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                         float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 36, scales += 4) {
        for (int group = 0; group < 4; group++, codes += 16) {
            int byte = block[group], exponent = byte >> 3 & 15, mantissa = byte & 7;
            bool is_small = exponent == 0;
            float scale =
                ldexpf((float)(is_small ? mantissa : 8 + mantissa), (is_small ? 1 : exponent) - 10);
            scales[group] = byte == 0x7f ? 0 : scale;
            for (int i = 0; i < 8; i++) {
                uint8_t both = block[4 + 8 * group + i];
                codes[i] = both & 15;
                codes[i + 8] = both >> 4;
            }
        }
    }
}

// The code of 4 bits that stands for 0. The types below have -1, 0 and 1, and some also 2.
enum { ZERO = 8 };

// d; a bit of each element: -1 or 1
static void unpack_q1_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 18, codes += 128, scales++) {
        scales[0] = half_at(block);
        for (int i = 0; i < 128; i++) {
            codes[i] = (uint8_t)(ZERO - 1 + 2 * (block[2 + i / 8] >> i % 8 & 1));
        }
    }
}

// d; two bits of each element: -1 to 2
static void unpack_q2_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                        float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 18, codes += 64, scales++) {
        scales[0] = half_at(block);
        for (int i = 0; i < 64; i++) {
            codes[i] = (uint8_t)(ZERO - 1 + (block[2 + i / 4] >> i % 4 * 2 & 3));
        }
    }
}

// codes[64] as in Q2_K, d
static void unpack_tq2_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                         float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 66, codes += 256, scales++) {
        scales[0] = half_at(block + 64);
        for (int i = 0; i < 256; i++) {
            codes[i] = (uint8_t)(ZERO - 1 + (block[i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3));
        }
    }
}

// `num_digits` digits of base 3 of each of `count` bytes: the first digits, then the second ones. A
// byte is a fraction of 256: three times it is the next digit, of which the rest is a byte again.
static ALWAYS_INLINE void digits3(const uint8_t *bytes, int count, int num_digits, uint8_t *codes) {
    for (int i = 0; i < count; i++) {
        uint32_t rest = bytes[i];
        for (int k = 0; k < num_digits; k++) {
            codes[k * count + i] = (uint8_t)(ZERO - 1 + (rest * 3 >> 8));
            rest = rest * 3 & 255;
        }
    }
}

// Five digits in each of [32] and [16] bytes, four in each of [4], d
static void unpack_tq1_0(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                         float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 54, codes += 256, scales++) {
        scales[0] = half_at(block + 52);
        digits3(block, 32, 5, codes);
        digits3(block + 32, 16, 5, codes + 160);
        digits3(block + 48, 4, 4, codes + 240);
    }
}

static const struct block_codes all_codes[] = {
    {2, {WEIGHT_CODE_INT4, 32, false, false}, unpack_q4_0},
    {3, {WEIGHT_CODE_INT4, 32, true, false}, unpack_q4_1},
    {6, {WEIGHT_CODE_INT8, 32, false, false}, unpack_q5_0},
    {7, {WEIGHT_CODE_INT8, 32, true, false}, unpack_q5_1},
    {8, {WEIGHT_CODE_INT8, 32, false, false}, unpack_q8_0},
    {10, {WEIGHT_CODE_INT4, 16, true, false}, unpack_q2_k},
    {11, {WEIGHT_CODE_INT4, 16, false, false}, unpack_q3_k},
    {12, {WEIGHT_CODE_INT4, 32, true, false}, unpack_q4_k},
    {13, {WEIGHT_CODE_INT8, 32, true, false}, unpack_q5_k},
    {14, {WEIGHT_CODE_INT8, 16, false, false}, unpack_q6_k},
    {15, {WEIGHT_CODE_INT8, 256, false, false}, unpack_q8_k},
    {16, {WEIGHT_CODE_IQ2, 32, false, false}, unpack_iq2_xxs},
    {17, {WEIGHT_CODE_IQ2, 16, false, false}, unpack_iq2_xs},
    {18, {WEIGHT_CODE_IQ3, 32, false, false}, unpack_iq3_xxs},
    {19, {WEIGHT_CODE_ODD, 32, false, false}, unpack_iq1_s},
    {20, {WEIGHT_CODE_IQ4, 32, false, false}, unpack_q4_0}, // the same block, with other values
    {21, {WEIGHT_CODE_ODD, 32, false, false}, unpack_iq3_s},
    {22, {WEIGHT_CODE_IQ2, 16, false, false}, unpack_iq2_s},
    {23, {WEIGHT_CODE_IQ4, 32, false, false}, unpack_iq4_xs},
    {29, {WEIGHT_CODE_ODD, 16, false, false}, unpack_iq1_m},
    {34, {WEIGHT_CODE_INT4, 256, false, false}, unpack_tq1_0},
    {35, {WEIGHT_CODE_INT4, 256, false, false}, unpack_tq2_0},
    {39, {WEIGHT_CODE_E2M1, 32, false, false}, unpack_mxfp4},
    {40, {WEIGHT_CODE_E2M1, 16, false, false}, unpack_nvfp4},
    {41, {WEIGHT_CODE_INT4, 128, false, false}, unpack_q1_0},
    {42, {WEIGHT_CODE_INT4, 64, false, false}, unpack_q2_0},
};

const struct block_codes *block_codes_of(uint32_t number) {
    for (size_t i = 0; i < ARRAY_LEN(all_codes); i++) {
        if (all_codes[i].number == number) return &all_codes[i];
    }
    return NULL;
}

bool block_type_is_read(const struct block_type *type) {
    return type->decode || block_codes_of(type->number);
}

void block_decode(const struct block_type *type, const uint8_t *blocks, size_t num_blocks,
                  float *out) {
    if (type->decode) {
        type->decode(blocks, num_blocks, out);
        return;
    }
    const struct block_codes *parts = block_codes_of(type->number);
    const float *values = weight_code_values(parts->form.code);
    uint8_t codes[BLOCK_ELEMENTS_MAX];
    float scales[BLOCK_GROUPS_MAX];
    for (; num_blocks; num_blocks--, blocks += type->bytes) {
        parts->unpack(blocks, 1, codes, scales, NULL);
        for (uint32_t i = 0; i < type->elements; i++) {
            *out++ = values[codes[i]] * scales[i / parts->form.group];
        }
    }
}
