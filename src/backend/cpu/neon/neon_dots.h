/* 8-bit and 4-bit weights by NEON, for any instruction that multiplies signed bytes. x is stored as
 * value + 128, so its highest bit is flipped. The sums begin with 128 times the sum of the weights,
 * which makes up for it: they are the same integers as those of other instruction sets. */
#ifndef BACKEND_CPU_NEON_DOTS_H
#define BACKEND_CPU_NEON_DOTS_H

#include "backend/cpu/linear/linear_dots.h"
#include "backend/cpu/neon/neon.h"

enum {
    NEON_DOTS_ROWS_MAX = 4,
    NEON_DOTS_QUADS_MAX = 8,
    NEON_DOTS_PREFETCH_BYTES = 1024,
    NEON_BYTES = 16, // of a register: four lines' bytes of a row of x, or 4 outputs of a line
};

// Adds the four products of each lane to it. Weights and x are -127 .. 127.
typedef int32x4_t neon_multiply(int32x4_t acc, int8x16_t weights, int8x16_t x);

// The bytes of x for line `line` (0 .. 3), in all lanes.
static ALWAYS_INLINE int8x16_t neon_line_of(int8x16_t x, uint32_t line) {
    int32x4_t lines = vreinterpretq_s32_s8(x);
    switch (line) {
    case 0:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(lines, 0));
    case 1:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(lines, 1));
    case 2:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(lines, 2));
    default:
        return vreinterpretq_s8_s32(vdupq_laneq_s32(lines, 3));
    }
}

static ALWAYS_INLINE void neon_dots_group(const struct linear_dots *dots, uint32_t block,
                                          uint32_t rows, uint32_t quads, neon_multiply *multiply) {
    int32x4_t acc[NEON_DOTS_ROWS_MAX][NEON_DOTS_QUADS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const int32_t *start = dots->is_first ? dots->sum128 + (size_t)block * LANES : sums;
    size_t start_stride = dots->is_first ? 0 : dots->sums_stride;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t q = 0; q < quads; q++) {
            acc[r][q] = vld1q_s32(start + r * start_stride + (size_t)q * QUAD);
        }
    }
    const uint8x16_t sign = vdupq_n_u8(0x80);
    const unsigned char *w = dots->weights + block * dots->block_bytes, *x = dots->x;
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride - CHUNK_BYTES) {
        for (uint32_t at = 0; at < CHUNK_BYTES; at += NEON_BYTES, x += NEON_BYTES) {
            int8x16_t x_of[NEON_DOTS_ROWS_MAX];
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                uint8x16_t bytes = vld1q_u8(x + (size_t)r * CHUNK_BYTES);
                x_of[r] = vreinterpretq_s8_u8(veorq_u8(bytes, sign));
            }
            UNROLL for (uint32_t line = 0; line < 4; line++, w += CHUNK_BYTES) {
                int8x16_t weights[NEON_DOTS_QUADS_MAX];
                UNROLL for (uint32_t q = 0; q < quads; q++) {
                    const unsigned char *from =
                        w + q / QUAD * dots->block_bytes + (size_t)(q % QUAD) * NEON_BYTES;
                    weights[q] = vreinterpretq_s8_u8(vld1q_u8(from));
                    if (q % QUAD == 0) __builtin_prefetch(from + NEON_DOTS_PREFETCH_BYTES);
                }
                UNROLL for (uint32_t r = 0; r < rows; r++) {
                    int8x16_t x_line = neon_line_of(x_of[r], line);
                    UNROLL for (uint32_t q = 0; q < quads; q++) {
                        acc[r][q] = multiply(acc[r][q], weights[q], x_line);
                    }
                }
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t q = 0; q < quads; q++) {
            vst1q_s32(sums + r * dots->sums_stride + (size_t)q * QUAD, acc[r][q]);
        }
    }
}

static ALWAYS_INLINE void neon_dots_blocks(const struct linear_dots *dots, uint32_t rows,
                                           neon_multiply *multiply) {
    uint32_t block = 0;
    for (; rows <= 2 && dots->num_blocks - block >= 2; block += 2) {
        neon_dots_group(dots, block, rows, 8, multiply);
    }
    for (; block < dots->num_blocks; block++) neon_dots_group(dots, block, rows, 4, multiply);
}

static ALWAYS_INLINE void neon_dots(const struct linear_dots *dots, neon_multiply *multiply) {
    switch (dots->rows) {
    case 1:
        neon_dots_blocks(dots, 1, multiply);
        break;
    case 2:
        neon_dots_blocks(dots, 2, multiply);
        break;
    case 3:
        neon_dots_blocks(dots, 3, multiply);
        break;
    case 4:
        neon_dots_blocks(dots, 4, multiply);
        break;
    }
}

// (q - 7) * s in bytes: at most 7 * 18.
static inline void neon_unpack_int4(const unsigned char *quads, const unsigned char *scales,
                                    unsigned char *out) {
    static const unsigned char lanes[NEON_BYTES] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const uint8x16_t low = vdupq_n_u8(15), seven = vdupq_n_u8(7);
    uint8x16_t scale[2][QUAD];
    UNROLL for (uint32_t g = 0; g < 2; g++) {
        UNROLL for (uint32_t q = 0; q < QUAD; q++) {
            uint8x16_t of = vaddq_u8(vld1q_u8(lanes), vdupq_n_u8((unsigned char)(q * QUAD)));
            scale[g][q] = vqtbl1q_u8(vld1q_u8(scales + (size_t)g * LANES), of);
        }
    }
    for (uint32_t i = 0; i < INT4_TILE_BYTES; i += CHUNK_BYTES) {
        UNROLL for (uint32_t q = 0; q < QUAD; q++) {
            size_t at = i + q * NEON_BYTES;
            uint8x16_t both = vld1q_u8(quads + at);
            uint8x16_t first = vsubq_u8(vandq_u8(both, low), seven);
            uint8x16_t second = vsubq_u8(vshrq_n_u8(both, 4), seven);
            vst1q_u8(out + at, vmulq_u8(first, scale[0][q]));
            vst1q_u8(out + INT4_TILE_BYTES + at, vmulq_u8(second, scale[1][q]));
        }
    }
}

#endif
