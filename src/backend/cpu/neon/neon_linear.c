/* y = x W^T in registers of 4 outputs, four of which (quads) are a block of 16. An accumulator is
 * one chain over k with one multiply-add per k. */
#include "backend/cpu/neon/neon.h"

enum { QUAD_BYTES = 16, LINE_BYTES = 64, PREFETCH_BYTES = 1024 };

static ALWAYS_INLINE void group(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                uint32_t blocks, bool is_bf16) {
    uint32_t quads = blocks * (LANES / QUAD);
    float32x4_t acc[NEON_ROWS_MAX][NEON_QUADS_MAX];
    float *out = tile->out + (size_t)block * LANES;
    const float *start = tile->start ? tile->start + (size_t)block * LANES : out;
    size_t start_stride = tile->start ? 0 : tile->out_stride;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t q = 0; q < quads; q++) {
            acc[r][q] = vld1q_f32(start + r * start_stride + (size_t)q * QUAD);
        }
    }
    const char *first[NEON_QUADS_MAX], *second[NEON_QUADS_MAX]; // weights of two k
    UNROLL for (uint32_t q = 0; q < quads; q++) {
        const char *from = (const char *)tile->weights + (block + q / QUAD) * tile->block_bytes;
        first[q] = from + q % QUAD * QUAD_BYTES;
    }
    const float *x = tile->x;
    for (uint32_t k = 0; k < tile->depth; k += 2, x += (size_t)rows * 2) {
        UNROLL for (uint32_t q = 0; q < quads; q++) {
            if (q % QUAD == 0) __builtin_prefetch(first[q] + PREFETCH_BYTES);
            second[q] = is_bf16 ? first[q] : first[q] + LINE_BYTES;
        }
        neon_multiply_add(acc, x, 1, first, rows, quads, is_bf16 ? NEON_BF16_FIRST : NEON_F32);
        neon_multiply_add(acc, x + rows, 1, second, rows, quads,
                          is_bf16 ? NEON_BF16_SECOND : NEON_F32);
        UNROLL for (uint32_t q = 0; q < quads; q++) first[q] = second[q] + LINE_BYTES;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t q = 0; q < quads; q++) {
            vst1q_f32(out + r * tile->out_stride + (size_t)q * QUAD, acc[r][q]);
        }
    }
}

// All blocks of the tile in groups of `most`, the rest one by one.
static ALWAYS_INLINE void run(const struct linear_tile *tile, uint32_t rows, uint32_t most,
                              bool is_bf16) {
    uint32_t block = 0;
    for (; tile->num_blocks - block >= most; block += most) group(tile, block, rows, most, is_bf16);
    for (; most > 1 && block < tile->num_blocks; block++) group(tile, block, rows, 1, is_bf16);
}

static ALWAYS_INLINE void run_rows(const struct linear_tile *tile, bool is_bf16) {
    switch (tile->rows) {
    case 1:
        run(tile, 1, 4, is_bf16);
        break;
    case 2:
        run(tile, 2, 2, is_bf16);
        break;
    case 3:
        run(tile, 3, 2, is_bf16);
        break;
    case 4:
        run(tile, 4, 1, is_bf16);
        break;
    case 5:
        run(tile, 5, 1, is_bf16);
        break;
    case 6:
        run(tile, 6, 1, is_bf16);
        break;
    }
}

void neon_linear_bf16(const struct linear_tile *tile) {
    run_rows(tile, true);
}

void neon_linear_f32(const struct linear_tile *tile) {
    run_rows(tile, false);
}
