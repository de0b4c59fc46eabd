/* Fields of blocks that are read in more than one way: decoded to floats (gguf_blocks.c), and taken
 * apart into codes and scales (gguf_codes.c). */
#ifndef CHECKPOINT_GGUF_GGUF_BLOCK_PARTS_H
#define CHECKPOINT_GGUF_GGUF_BLOCK_PARTS_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"

static inline float half_at(const uint8_t *bytes) {
    uint16_t bits;
    memcpy(&bits, bytes, sizeof bits);
    return f16_to_f32(bits);
}

// The 5-bit codes i and i + 16 of a block: four bits of `low`, the fifth in bit i of `high`.
static inline void codes5(const uint8_t *high, const uint8_t *low, int i, int *first, int *second) {
    uint32_t bits;
    memcpy(&bits, high, sizeof bits);
    *first = (low[i] & 15) | (int)(bits >> i & 1) << 4;
    *second = low[i] >> 4 | (int)(bits >> (i + 16) & 1) << 4;
}

// The scale and the minimum of group 0 to 7, 6 bits each, of Q4_K and Q5_K.
static inline void scale_min(const uint8_t packed[12], int group, int *scale, int *low) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *low = packed[group + 4] & 63;
    } else {
        *scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
        *low = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
}

// The scale of group 0 to 15 of Q3_K.
static inline int scale_q3_k(const uint8_t packed[12], int group) {
    int low = packed[group % 8] >> (group / 8 * 4) & 15;
    return (low | (packed[8 + group % 4] >> (group / 4 * 2) & 3) << 4) - 32;
}

// The scale of group 0 to 7 of IQ4_XS; `block` is all of it.
static inline int scale_iq4_xs(const uint8_t *block, int group) {
    uint16_t high;
    memcpy(&high, block + 2, sizeof high);
    int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    return (low | (high >> (2 * group) & 3) << 4) - 32;
}

// Where the 16 elements of group 0 to 15 are in codes of two bits, 128 to each 32 bytes (Q2_K,
// Q3_K): in bytes [*first, *first + 16), from bit *shift on.
static inline void place_2bit(int group, int *first, int *shift) {
    *first = group / 8 * 32 + group % 2 * 16;
    *shift = group / 2 % 4 * 2;
}

// Where the 16 codes of group 0 to 15 of Q6_K are: four bits of each in a byte from `low` on, two
// in one from `high` on.
struct place_q6_k {
    int low, low_shift, high, high_shift;
};

static inline struct place_q6_k place_q6_k(int group) {
    int half = group / 8, slice = group / 2 % 4, first = group % 2 * 16;
    return (struct place_q6_k){64 * half + 32 * (slice % 2) + first, slice / 2 * 4,
                               128 + 32 * half + first, slice * 2};
}

#endif
