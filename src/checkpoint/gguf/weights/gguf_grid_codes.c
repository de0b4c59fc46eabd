/* Source: the structs of ggml's ggml-common.h, and dequantize() of the Python package gguf. Eight
 * elements at a time are made in a word of 64 bits, a byte each. Scales are exact: d has 11 bits,
 * and its factors are odd numbers below 32 and powers of 2. */
#include "checkpoint/gguf/weights/gguf_grid_codes.h"

#include <string.h>

#include "base/compiler.h"
#include "checkpoint/gguf/weights/gguf_block_parts.h"
#include "checkpoint/gguf/weights/gguf_grids.h"

enum { NEGATIVE = 8 }; // codes of IQ2 and IQ3_XXS: a level, and this bit

// The levels of an entry of 8.
static ALWAYS_INLINE uint64_t levels8(uint64_t entry) {
    entry = (entry | entry << 24) & 0x000000ff000000ff;
    entry = (entry | entry << 12) & 0x000f000f000f000f;
    return (entry | entry << 6) & 0x0303030303030303;
}

// The levels of two entries of 4.
static ALWAYS_INLINE uint64_t levels4(uint64_t first, uint64_t second) {
    uint64_t entry = first | second << 32;
    entry = (entry | entry << 10) & 0x003f003f003f003f;
    return (entry | entry << 5) & 0x0707070707070707;
}

// 1 in the bytes of the bits that are set.
static ALWAYS_INLINE uint64_t spread(uint64_t bits) {
    bits = (bits | bits << 28) & 0x0000000f0000000f;
    bits = (bits | bits << 14) & 0x0003000300030003;
    return (bits | bits << 7) & 0x0101010101010101;
}

// The signs of 8 elements, of which seven are stored: their number is even.
static ALWAYS_INLINE uint64_t even_signs(uint32_t seven) {
    seven &= 127;
    return spread(seven | (uint32_t)__builtin_parity(seven) << 7);
}

// The scales' last factor, 2 n + 1.
static ALWAYS_INLINE float odd(uint32_t n) {
    return (float)(2 * n + 1);
}

static ALWAYS_INLINE void put(uint64_t eight, uint8_t *codes) {
    memcpy(codes, &eight, sizeof eight);
}

static ALWAYS_INLINE uint32_t word_at(const uint8_t *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static ALWAYS_INLINE uint32_t half_word_at(const uint8_t *bytes) {
    uint16_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

// d; for each 32 elements: indices[4], and a word of four times 7 signs and a scale of 4 bits
void unpack_iq2_xxs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                    float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 66, scales += 8) {
        float d = half_at(block) * 0.125f;
        for (int group = 0; group < 8; group++) {
            const uint8_t *indices = block + 2 + 8 * group;
            uint32_t word = word_at(indices + 4);
            scales[group] = d * odd(word >> 28);
            for (int i = 0; i < 4; i++, codes += 8) {
                uint64_t levels = levels8(gguf_grid_iq2_xxs[indices[i]]);
                put(levels | even_signs(word >> 7 * i) * NEGATIVE, codes);
            }
        }
    }
}

// d; for each 8 elements 9 bits of index and 7 signs; scales[8]: 4 bits for each 16 elements
void unpack_iq2_xs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                   float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 74, scales += 16) {
        float d = half_at(block) * 0.125f;
        for (int group = 0; group < 16; group++) {
            scales[group] = d * odd(block[66 + group / 2] >> group % 2 * 4 & 15);
        }
        for (int i = 0; i < 32; i++, codes += 8) {
            uint32_t word = half_word_at(block + 2 + 2 * i);
            put(levels8(gguf_grid_iq2_xs[word & 511]) | even_signs(word >> 9) * NEGATIVE, codes);
        }
    }
}

// d, indices[32], signs[32], high[8]: two more bits of each index, scales[8] as in IQ2_XS
void unpack_iq2_s(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 82, scales += 16) {
        float d = half_at(block) * 0.125f;
        for (int group = 0; group < 16; group++) {
            scales[group] = d * odd(block[74 + group / 2] >> group % 2 * 4 & 15);
        }
        for (int i = 0; i < 32; i++, codes += 8) {
            uint32_t high = block[66 + i / 4] >> i % 4 * 2 & 3;
            uint64_t levels = levels8(gguf_grid_iq2_s[block[2 + i] | high << 8]);
            put(levels | spread(block[34 + i]) * NEGATIVE, codes);
        }
    }
}

// d, indices[64]; for each 32 elements a word as in IQ2_XXS
void unpack_iq3_xxs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                    float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 98, scales += 8) {
        float d = half_at(block) * 0.25f;
        for (int group = 0; group < 8; group++) {
            const uint8_t *indices = block + 2 + 8 * group;
            uint32_t word = word_at(block + 66 + 4 * group);
            scales[group] = d * odd(word >> 28);
            for (int i = 0; i < 4; i++, codes += 8) {
                uint64_t levels = levels4(gguf_grid_iq3_xxs[indices[2 * i]],
                                          gguf_grid_iq3_xxs[indices[2 * i + 1]]);
                put(levels | even_signs(word >> 7 * i) * NEGATIVE, codes);
            }
        }
    }
}

// d, indices[64], high[8]: a ninth bit of each index, signs[32], scales[4]: 4 bits for each 32
// elements. Level n stands for 2 n + 1: code 8 + n, or 7 - n of a negative one.
void unpack_iq3_s(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 110, scales += 8) {
        float d = half_at(block);
        for (int group = 0; group < 8; group++) {
            scales[group] = d * odd(block[106 + group / 2] >> group % 2 * 4 & 15);
        }
        for (int i = 0; i < 32; i++, codes += 8) {
            const uint8_t *indices = block + 2 + 2 * i;
            uint32_t high = block[66 + i / 4] >> i % 4 * 2;
            uint64_t levels = levels4(gguf_grid_iq3_s[indices[0] | (high & 1) << 8],
                                      gguf_grid_iq3_s[indices[1] | (high >> 1 & 1) << 8]);
            put((levels | 0x0808080808080808) ^ spread(block[74 + i]) * 15, codes);
        }
    }
}

// Eight elements of IQ1. Level n and the sign of 1/8 stand for n - 1 + 1/8, or n - 1 - 1/8. That is
// 8 (n - 1) + 1 or - 1 in eighths, and twice the code less 15: code 4 n + 4 or + 3.
static ALWAYS_INLINE void put_iq1(uint32_t index, uint32_t is_less, uint8_t *codes) {
    uint64_t added = 0x0404040404040404u - 0x0101010101010101u * is_less;
    put((levels8(gguf_grid_iq1[index]) << 2) + added, codes);
}

// d, indices[32], and a word for each 32 elements: four times 3 more bits of an index, a scale of 3
// bits, the sign of 1/8
void unpack_iq1_s(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 50, scales += 8) {
        float d = half_at(block) * 0.125f;
        for (int group = 0; group < 8; group++) {
            uint32_t word = half_word_at(block + 34 + 2 * group);
            scales[group] = d * odd(word >> 12 & 7);
            for (int i = 0; i < 4; i++, codes += 8) {
                uint32_t index = block[2 + 4 * group + i] | (word >> 3 * i & 7) << 8;
                put_iq1(index, word >> 15, codes);
            }
        }
    }
}

// indices[32], high[16]: for each 8 elements 3 more bits of the index and the sign of 1/8, and four
// words: each has four scales of 3 bits, of 16 elements, and 4 bits of d, the lowest first
void unpack_iq1_m(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets) {
    (void)offsets;
    for (; num_blocks; num_blocks--, block += 56, scales += 16) {
        uint32_t bits = 0;
        for (int i = 0; i < 4; i++) bits |= half_word_at(block + 48 + 2 * i) >> 12 << 4 * i;
        float d = f16_to_f32((uint16_t)bits) * 0.125f;
        for (int group = 0; group < 16; group++) {
            uint32_t word = half_word_at(block + 48 + group / 4 * 2);
            scales[group] = d * odd(word >> group % 4 * 3 & 7);
        }
        for (int i = 0; i < 32; i++, codes += 8) {
            uint32_t high = block[32 + i / 2] >> i % 2 * 4 & 15;
            put_iq1(block[i] | (high & 7) << 8, high >> 3, codes);
        }
    }
}
