/* All scales are exact: products of d and a small integer. A code of 4 bits stands for -8 to 7, so
 * codes from 0 on get an offset of 8 scales more. That sum is exact unless d is over 16 times dmin;
 * then it is rounded to float32. Five and six bits are kept in eight. */
#include "checkpoint/gguf/weights/gguf_codes.h"

#include <math.h>
#include <stddef.h>

#include "base/compiler.h"
#include "checkpoint/gguf/weights/gguf_block_parts.h"

// Loading is mostly these loops. Compilers vectorize them.
//
// The low halves of `count` bytes, and the high ones.
static ALWAYS_INLINE void halves(const uint8_t *restrict bytes, int count, uint8_t *restrict low,
                                 uint8_t *restrict high) {
    for (int i = 0; i < count; i++) {
        low[i] = bytes[i] & 15;
        high[i] = bytes[i] >> 4;
    }
}

// Multiples of d, of groups' small integers.
static ALWAYS_INLINE void multiples(float d, const int8_t *restrict factors, int count,
                                    float *restrict out) {
    for (int i = 0; i < count; i++) out[i] = d * (float)factors[i];
}

// The scales and the minima of the 8 groups of Q4_K and Q5_K, 6 bits each (scale_min), four at a
// time.
static void scales_mins(const uint8_t packed[12], int8_t scales[8], int8_t mins[8]) {
    uint32_t words[3];
    memcpy(words, packed, sizeof words);
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303, six = 0x3f3f3f3f;
    const uint32_t scale_words[2] = {words[0] & six, (words[2] & low) | (words[0] >> 6 & two) << 4};
    const uint32_t min_words[2] = {words[1] & six, (words[2] >> 4 & low) | (words[1] >> 6 & two)
                                                                               << 4};
    memcpy(scales, scale_words, sizeof scale_words);
    memcpy(mins, min_words, sizeof min_words);
}

static void unpack_q4_0(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    scales[0] = half_at(block);
    halves(block + 2, 16, codes, codes + 16);
}

static void unpack_q4_1(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    scales[0] = half_at(block);
    offsets[0] = half_at(block + 2) + 8 * scales[0];
    halves(block + 4, 16, codes, codes + 16);
}

static void unpack_q5_0(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    scales[0] = half_at(block);
    for (int i = 0; i < 16; i++) {
        int first, second;
        codes5(block + 2, block + 6, i, &first, &second);
        codes[i] = (uint8_t)(first - 16);
        codes[i + 16] = (uint8_t)(second - 16);
    }
}

static void unpack_q5_1(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    scales[0] = half_at(block);
    offsets[0] = half_at(block + 2);
    for (int i = 0; i < 16; i++) {
        int first, second;
        codes5(block + 4, block + 8, i, &first, &second);
        codes[i] = (uint8_t)first;
        codes[i + 16] = (uint8_t)second;
    }
}

static void unpack_q8_0(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    scales[0] = half_at(block);
    memcpy(codes, block + 2, 32);
}

static void unpack_q8_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    memcpy(scales, block, sizeof *scales);
    memcpy(codes, block + 4, 256);
}

static void unpack_q2_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
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

static void unpack_q3_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
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

static void unpack_q4_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    float d = half_at(block), dmin = half_at(block + 2), lows[8];
    int8_t factors[8], mins[8];
    scales_mins(block + 4, factors, mins);
    multiples(d, factors, 8, scales);
    multiples(dmin, mins, 8, lows);
    for (int group = 0; group < 8; group++) offsets[group] = 8 * scales[group] - lows[group];
    for (int pair = 0; pair < 4; pair++) {
        halves(block + 16 + pair * 32, 32, codes + pair * 64, codes + pair * 64 + 32);
    }
}

static void unpack_q5_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    float d = half_at(block), dmin = half_at(block + 2);
    int8_t factors[8], mins[8];
    scales_mins(block + 4, factors, mins);
    multiples(d, factors, 8, scales);
    multiples(-dmin, mins, 8, offsets);
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

static void unpack_q6_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    int8_t factors[16];
    memcpy(factors, block + 192, sizeof factors);
    multiples(half_at(block + 208), factors, 16, scales);
    for (int half = 0; half < 2; half++, codes += 128) {
        const uint8_t *low = block + 64 * half, *high = block + 128 + 32 * half;
        halves(low, 32, codes, codes + 64);
        halves(low + 32, 32, codes + 32, codes + 96);
        for (int slice = 0; slice < 4; slice++) {
            uint8_t *restrict out = codes + 32 * slice;
            for (int i = 0; i < 32; i++) {
                unsigned bits = high[i] >> (2 * slice) & 3;
                out[i] = (uint8_t)((out[i] | bits << 4) - 32);
            }
        }
    }
}

static void unpack_iq4_xs(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    float d = half_at(block);
    for (int group = 0; group < 8; group++) {
        scales[group] = d * (float)scale_iq4_xs(block, group);
        const uint8_t *bytes = block + 8 + group * 16;
        halves(bytes, 16, codes + group * 32, codes + group * 32 + 16);
    }
}

static void unpack_mxfp4(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    scales[0] = ldexpf(1, (int)block[0] - 127);
    halves(block + 1, 16, codes, codes + 16);
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
    {20, {WEIGHT_CODE_IQ4, 32, false, false}, unpack_q4_0}, // the same block, with other values
    {23, {WEIGHT_CODE_IQ4, 32, false, false}, unpack_iq4_xs},
    {39, {WEIGHT_CODE_E2M1, 32, false, false}, unpack_mxfp4},
};

const struct block_codes *block_codes_of(uint32_t number) {
    for (size_t i = 0; i < ARRAY_LEN(all_codes); i++) {
        if (all_codes[i].number == number) return &all_codes[i];
    }
    return NULL;
}
