/* All scales are exact: products of d and a small integer. Codes of Q4_1 and Q4_K begin with 0, and
 * int4's values with -8, so their offsets are larger by 8 scales. That sum is exact unless d is
 * over 16 times dmin; then it is rounded to float32. Codes of five and six bits become eight.
 * K-quants and IQ4_XS have units, d and -dmin, and multiples of them. */
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

// The scales and the minima of the 8 groups of Q4_K and Q5_K, 6 bits each (scale_min).
static ALWAYS_INLINE void scales_mins(const uint8_t packed[12], int8_t *scales, int8_t *mins) {
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303, six = 0x3f3f3f3f;
    uint32_t words[3];
    memcpy(words, packed, sizeof words);
    const uint32_t all[2] = {words[0] & six, (words[2] & low) | (words[0] >> 6 & two) << 4};
    const uint32_t all_mins[2] = {words[1] & six, (words[2] >> 4 & low) | (words[1] >> 6 & two)
                                                                              << 4};
    memcpy(scales, all, sizeof all);
    memcpy(mins, all_mins, sizeof all_mins);
}

// The next block of a type with units, which has `groups` groups.
static ALWAYS_INLINE void next_unit(struct matrix_codes *out, int groups) {
    out->codes += BLOCK_ELEMENTS_MAX;
    out->scales++;
    out->scale_multiples += groups;
    if (!out->offset_multiples) return;
    out->offsets++;
    out->offset_multiples += groups;
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

static void unpack_q2_k(const uint8_t *block, size_t num_blocks, struct matrix_codes out) {
    for (; num_blocks; num_blocks--, block += 84, next_unit(&out, 16)) {
        out.scales[0] = half_at(block + 80);
        out.offsets[0] = -half_at(block + 82);
        for (int group = 0; group < 16; group++) {
            int first, shift;
            place_2bit(group, &first, &shift);
            out.scale_multiples[group] = block[group] & 15;
            out.offset_multiples[group] = (int8_t)(block[group] >> 4);
            for (int i = 0; i < 16; i++) {
                out.codes[group * 16 + i] = (uint8_t)((block[16 + first + i] >> shift & 3) + 8);
            }
        }
    }
}

static void unpack_q3_k(const uint8_t *block, size_t num_blocks, struct matrix_codes out) {
    for (; num_blocks; num_blocks--, block += 110, next_unit(&out, 16)) {
        out.scales[0] = half_at(block + 108);
        for (int group = 0; group < 16; group++) {
            int first, shift, bit = group / 2;
            place_2bit(group, &first, &shift);
            out.scale_multiples[group] = (int8_t)scale_q3_k(block + 96, group);
            const uint8_t *low = block + 32 + first, *high = block + group % 2 * 16;
            for (int i = 0; i < 16; i++) {
                int code = (low[i] >> shift & 3) - (high[i] >> bit & 1 ? 0 : 4);
                out.codes[group * 16 + i] = (uint8_t)(code + 8);
            }
        }
    }
}

static void unpack_q4_k(const uint8_t *block, size_t num_blocks, struct matrix_codes out) {
    for (; num_blocks; num_blocks--, block += 144, next_unit(&out, 8)) {
        out.scales[0] = half_at(block);
        out.offsets[0] = -half_at(block + 2);
        scales_mins(block + 4, out.scale_multiples, out.offset_multiples);
        for (int pair = 0; pair < 4; pair++) {
            uint8_t *first = out.codes + pair * 64;
            halves(block + 16 + pair * 32, 32, first, first + 32);
        }
    }
}

static void unpack_q5_k(const uint8_t *block, size_t num_blocks, struct matrix_codes out) {
    for (; num_blocks; num_blocks--, block += 176, next_unit(&out, 8)) {
        out.scales[0] = half_at(block);
        out.offsets[0] = -half_at(block + 2);
        scales_mins(block + 4, out.scale_multiples, out.offset_multiples);
        for (int pair = 0; pair < 4; pair++) {
            uint8_t *first = out.codes + pair * 64, *second = first + 32;
            halves(block + 48 + pair * 32, 32, first, second);
            for (int i = 0; i < 32; i++) {
                unsigned high = block[16 + i] >> (2 * pair);
                first[i] |= (uint8_t)((high & 1) << 4);
                second[i] |= (uint8_t)((high >> 1 & 1) << 4);
            }
        }
    }
}

static void unpack_q6_k(const uint8_t *block, size_t num_blocks, struct matrix_codes out) {
    for (; num_blocks; num_blocks--, block += 210, next_unit(&out, 16)) {
        out.scales[0] = half_at(block + 208);
        memcpy(out.scale_multiples, block + 192, 16);
        for (int half = 0; half < 2; half++) {
            const uint8_t *low = block + 64 * half, *high = block + 128 + 32 * half;
            uint8_t *codes = out.codes + 128 * half;
            for (int i = 0; i < 32; i += 16) {
                bytes16 first = load16(low + i), second = load16(low + 32 + i);
                bytes16 two = load16(high + i); // bits of the four slices
                pairs8 pairs = (pairs8)two;
                store16((low_halves(first) | ((bytes16)(pairs << 4) & 48)) - 32, codes + i);
                store16((low_halves(second) | ((bytes16)(pairs << 2) & 48)) - 32, codes + 32 + i);
                store16((high_halves(first) | (two & 48)) - 32, codes + 64 + i);
                store16((high_halves(second) | ((bytes16)(pairs >> 2) & 48)) - 32, codes + 96 + i);
            }
        }
    }
}

static void unpack_iq4_xs(const uint8_t *block, size_t num_blocks, struct matrix_codes out) {
    for (; num_blocks; num_blocks--, block += 136, next_unit(&out, 8)) {
        out.scales[0] = half_at(block);
        for (int group = 0; group < 8; group++) {
            out.scale_multiples[group] = (int8_t)scale_iq4_xs(block, group);
            const uint8_t *bytes = block + 8 + group * 16;
            halves(bytes, 16, out.codes + group * 32, out.codes + group * 32 + 16);
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
    {2, {WEIGHT_CODE_INT4, 32, false, false, 0, 0}, unpack_q4_0, NULL},
    {3, {WEIGHT_CODE_INT4, 32, true, false, 0, 0}, unpack_q4_1, NULL},
    {6, {WEIGHT_CODE_INT8, 32, false, false, 0, 0}, unpack_q5_0, NULL},
    {7, {WEIGHT_CODE_INT8, 32, true, false, 0, 0}, unpack_q5_1, NULL},
    {8, {WEIGHT_CODE_INT8, 32, false, false, 0, 0}, unpack_q8_0, NULL},
    {10, {WEIGHT_CODE_INT4, 16, true, false, 256, 0}, NULL, unpack_q2_k},
    {11, {WEIGHT_CODE_INT4, 16, false, false, 256, 0}, NULL, unpack_q3_k},
    {12, {WEIGHT_CODE_INT4, 32, true, false, 256, 8}, NULL, unpack_q4_k},
    {13, {WEIGHT_CODE_INT8, 32, true, false, 256, 0}, NULL, unpack_q5_k},
    {14, {WEIGHT_CODE_INT8, 16, false, false, 256, 0}, NULL, unpack_q6_k},
    {15, {WEIGHT_CODE_INT8, 256, false, false, 0, 0}, unpack_q8_k, NULL},
    {16, {WEIGHT_CODE_IQ2, 32, false, false, 0, 0}, unpack_iq2_xxs, NULL},
    {17, {WEIGHT_CODE_IQ2, 16, false, false, 0, 0}, unpack_iq2_xs, NULL},
    {18, {WEIGHT_CODE_IQ3, 32, false, false, 0, 0}, unpack_iq3_xxs, NULL},
    {19, {WEIGHT_CODE_ODD, 32, false, false, 0, 0}, unpack_iq1_s, NULL},
    // The same block as Q4_0's, with other values.
    {20, {WEIGHT_CODE_IQ4, 32, false, false, 0, 0}, unpack_q4_0, NULL},
    {21, {WEIGHT_CODE_ODD, 32, false, false, 0, 0}, unpack_iq3_s, NULL},
    {22, {WEIGHT_CODE_IQ2, 16, false, false, 0, 0}, unpack_iq2_s, NULL},
    {23, {WEIGHT_CODE_IQ4, 32, false, false, 256, 0}, NULL, unpack_iq4_xs},
    {29, {WEIGHT_CODE_ODD, 16, false, false, 0, 0}, unpack_iq1_m, NULL},
    {34, {WEIGHT_CODE_INT4, 256, false, false, 0, 0}, unpack_tq1_0, NULL},
    {35, {WEIGHT_CODE_INT4, 256, false, false, 0, 0}, unpack_tq2_0, NULL},
    {39, {WEIGHT_CODE_E2M1, 32, false, false, 0, 0}, unpack_mxfp4, NULL},
    {40, {WEIGHT_CODE_E2M1, 16, false, false, 0, 0}, unpack_nvfp4, NULL},
    {41, {WEIGHT_CODE_INT4, 128, false, false, 0, 0}, unpack_q1_0, NULL},
    {42, {WEIGHT_CODE_INT4, 64, false, false, 0, 0}, unpack_q2_0, NULL},
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

void block_codes_floats(const struct block_codes *codes, const uint8_t *block, size_t num_blocks,
                        uint32_t block_bytes, const struct matrix_codes *out) {
    const struct matrix_form *form = &codes->form;
    const uint32_t num_groups = form->unit ? form->unit / form->group : 0;
    if (!form->unit) codes->unpack(block, num_blocks, out->codes, out->scales, out->offsets);
    for (size_t i = 0; form->unit && i < num_blocks; i++, block += block_bytes) {
        float unit, offset_unit, *scales = out->scales + i * num_groups;
        int8_t multiples[BLOCK_GROUPS_MAX], offset_multiples[BLOCK_GROUPS_MAX];
        codes->unpack_units(block, 1,
                            (struct matrix_codes){.codes = out->codes + i * form->unit,
                                                  .scales = &unit,
                                                  .offsets = &offset_unit,
                                                  .scale_multiples = multiples,
                                                  .offset_multiples = offset_multiples});
        for (uint32_t g = 0; g < num_groups; g++) scales[g] = unit * (float)multiples[g];
        for (uint32_t g = 0; form->has_offsets && g < num_groups; g++) {
            float offset = offset_unit * (float)offset_multiples[g];
            if (form->shift) offset += (float)form->shift * scales[g];
            out->offsets[i * num_groups + g] = offset;
        }
    }
}
