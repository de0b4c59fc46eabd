/* All scales are exact: products of d and a small integer. A code of 4 bits stands for -8 to 7, so
 * codes from 0 on get an offset of 8 scales more. That sum is exact unless d is over 16 times dmin;
 * then it is rounded to float32. Five and six bits are kept in eight. */
#include "checkpoint/gguf/weights/gguf_codes.h"

#include <math.h>
#include <stddef.h>

#include "base/compiler.h"
#include "checkpoint/gguf/weights/gguf_block_parts.h"

// Eight bytes at a time: loading is mostly this.
static uint64_t load8(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static void store8(uint8_t *bytes, uint64_t word) {
    memcpy(bytes, &word, sizeof word);
}

static uint64_t each_byte(uint8_t byte) {
    return byte * 0x0101010101010101u;
}

// 4-bit codes of 32 elements: the low halves of 16 bytes, then the high ones.
static void halves(const uint8_t *bytes, uint8_t *codes) {
    for (int i = 0; i < 16; i += 8) {
        uint64_t word = load8(bytes + i);
        store8(codes + i, word & each_byte(15));
        store8(codes + 16 + i, word >> 4 & each_byte(15));
    }
}

static void unpack_q4_0(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    scales[0] = half_at(block);
    halves(block + 2, codes);
}

static void unpack_q4_1(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    scales[0] = half_at(block);
    offsets[0] = half_at(block + 2) + 8 * scales[0];
    halves(block + 4, codes);
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
    float d = half_at(block), dmin = half_at(block + 2);
    for (int group = 0; group < 8; group++) {
        int scale, low, shift = group % 2 * 4;
        scale_min(block + 4, group, &scale, &low);
        scales[group] = d * (float)scale;
        offsets[group] = 8 * scales[group] - dmin * (float)low;
        const uint8_t *bytes = block + 16 + group / 2 * 32;
        for (int i = 0; i < 32; i += 8) {
            store8(codes + group * 32 + i, load8(bytes + i) >> shift & each_byte(15));
        }
    }
}

static void unpack_q5_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    float d = half_at(block), dmin = half_at(block + 2);
    for (int group = 0; group < 8; group++) {
        int scale, low, shift = group % 2 * 4;
        scale_min(block + 4, group, &scale, &low);
        scales[group] = d * (float)scale;
        offsets[group] = -(dmin * (float)low);
        const uint8_t *high = block + 16, *bytes = block + 48 + group / 2 * 32;
        for (int i = 0; i < 32; i++) {
            codes[group * 32 + i] =
                (uint8_t)((bytes[i] >> shift & 15) | (high[i] >> group & 1) << 4);
        }
    }
}

static void unpack_q6_k(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    float d = half_at(block + 208);
    for (int group = 0; group < 16; group++) {
        struct place_q6_k at = place_q6_k(group);
        scales[group] = d * (float)(int8_t)block[192 + group];
        for (int i = 0; i < 16; i += 8) {
            uint64_t code = load8(block + at.low + i) >> at.low_shift & each_byte(15);
            code |= (load8(block + at.high + i) >> at.high_shift & each_byte(3)) << 4;
            // Less 32: below that, bits 5 to 7 are set.
            uint64_t is_negative = ~code & each_byte(32);
            code = (code & each_byte(31)) | is_negative | is_negative << 1 | is_negative << 2;
            store8(codes + group * 16 + i, code);
        }
    }
}

static void unpack_iq4_xs(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    float d = half_at(block);
    for (int group = 0; group < 8; group++) {
        scales[group] = d * (float)scale_iq4_xs(block, group);
        halves(block + 8 + group * 16, codes + group * 32);
    }
}

static void unpack_mxfp4(const uint8_t *block, uint8_t *codes, float *scales, float *offsets) {
    (void)offsets;
    scales[0] = ldexpf(1, (int)block[0] - 127);
    halves(block + 1, codes);
}

static const struct block_codes all_codes[] = {
    {2, {WEIGHT_CODE_INT4, 32, false}, unpack_q4_0},
    {3, {WEIGHT_CODE_INT4, 32, true}, unpack_q4_1},
    {6, {WEIGHT_CODE_INT8, 32, false}, unpack_q5_0},
    {7, {WEIGHT_CODE_INT8, 32, true}, unpack_q5_1},
    {8, {WEIGHT_CODE_INT8, 32, false}, unpack_q8_0},
    {10, {WEIGHT_CODE_INT4, 16, true}, unpack_q2_k},
    {11, {WEIGHT_CODE_INT4, 16, false}, unpack_q3_k},
    {12, {WEIGHT_CODE_INT4, 32, true}, unpack_q4_k},
    {13, {WEIGHT_CODE_INT8, 32, true}, unpack_q5_k},
    {14, {WEIGHT_CODE_INT8, 16, false}, unpack_q6_k},
    {15, {WEIGHT_CODE_INT8, 256, false}, unpack_q8_k},
    {20, {WEIGHT_CODE_IQ4, 32, false}, unpack_q4_0}, // the same block, with other values
    {23, {WEIGHT_CODE_IQ4, 32, false}, unpack_iq4_xs},
    {39, {WEIGHT_CODE_E2M1, 32, false}, unpack_mxfp4},
};

const struct block_codes *block_codes_of(uint32_t number) {
    for (size_t i = 0; i < ARRAY_LEN(all_codes); i++) {
        if (all_codes[i].number == number) return &all_codes[i];
    }
    return NULL;
}
