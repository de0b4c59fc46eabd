/* y = x W^T in registers of 8 outputs: `rows` x `halves` accumulators (two halves are a block of
 * 16), at most 12 of the 16 registers, each one chain over k with one multiply-add per k. A pair of
 * bf16 is one 32-bit lane: shifted left it is the even k's float, with its low half cleared the odd
 * k's. */
#include "backend/cpu/avx2.h"
#include "base/compiler.h"

enum { AVX2_ROWS_MAX = 6, HALVES_MAX = 8 };

static ALWAYS_INLINE void load_start(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t halves, __m256 acc[AVX2_ROWS_MAX][HALVES_MAX]) {
    UNROLL for (uint32_t h = 0; h < halves; h++) {
        uint32_t col = block * LANES + h * HALF;
        uint32_t left = tile->cols > col ? tile->cols - col : 0;
        __m256i mask = avx2_tail_mask(left);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            const float *from = tile->start ? tile->start : tile->out + r * tile->out_stride;
            acc[r][h] =
                left >= HALF ? _mm256_loadu_ps(from + col) : _mm256_maskload_ps(from + col, mask);
        }
    }
}

static ALWAYS_INLINE void store_out(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                    uint32_t halves, __m256 acc[AVX2_ROWS_MAX][HALVES_MAX]) {
    UNROLL for (uint32_t h = 0; h < halves; h++) {
        uint32_t col = block * LANES + h * HALF;
        uint32_t left = tile->cols > col ? tile->cols - col : 0;
        __m256i mask = avx2_tail_mask(left);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            float *out = tile->out + r * tile->out_stride + col;
            if (left >= HALF) {
                _mm256_storeu_ps(out, acc[r][h]);
            } else {
                _mm256_maskstore_ps(out, mask, acc[r][h]);
            }
        }
    }
}

static ALWAYS_INLINE void group_bf16(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t halves) {
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    load_start(tile, block, rows, halves, acc);
    const __m256i odd = _mm256_set1_epi32((int)0xffff0000);
    const char *w = (const char *)tile->weights + block * tile->block_bytes;
    const float *x = tile->x;
    for (uint32_t k = 0; k < tile->depth; k += 2, w += 64, x += (size_t)rows * 2) {
        __m256 weight[HALVES_MAX];
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            __m256i pair =
                _mm256_loadu_si256((const void *)(w + (h / 2) * tile->block_bytes + (h % 2) * 32));
            weight[h] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m256 x0 = _mm256_set1_ps(x[r]);
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                acc[r][h] = _mm256_fmadd_ps(weight[h], x0, acc[r][h]);
            }
        }
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            __m256i pair =
                _mm256_loadu_si256((const void *)(w + (h / 2) * tile->block_bytes + (h % 2) * 32));
            weight[h] = _mm256_castsi256_ps(_mm256_and_si256(pair, odd));
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m256 x1 = _mm256_set1_ps(x[rows + r]);
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                acc[r][h] = _mm256_fmadd_ps(weight[h], x1, acc[r][h]);
            }
        }
    }
    store_out(tile, block, rows, halves, acc);
}

static ALWAYS_INLINE void group_f32(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                    uint32_t halves) {
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    load_start(tile, block, rows, halves, acc);
    const char *w = (const char *)tile->weights + block * tile->block_bytes;
    const float *x = tile->x;
    for (uint32_t k = 0; k < tile->depth; k++, w += 64, x += rows) {
        __m256 weight[HALVES_MAX];
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            weight[h] =
                _mm256_loadu_ps((const void *)(w + (h / 2) * tile->block_bytes + (h % 2) * 32));
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m256 x0 = _mm256_set1_ps(x[r]);
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                acc[r][h] = _mm256_fmadd_ps(weight[h], x0, acc[r][h]);
            }
        }
    }
    store_out(tile, block, rows, halves, acc);
}

// All blocks of the tile in groups of `most`, the rest in groups of 2 and 1.
static ALWAYS_INLINE void run(const struct linear_tile *tile, uint32_t rows, uint32_t most,
                              int bf16) {
    uint32_t block = 0, count = tile->num_blocks;
    if (bf16) {
        for (; count - block >= most; block += most) group_bf16(tile, block, rows, most * 2);
        if (most > 2 && count - block >= 2) group_bf16(tile, block, rows, 4), block += 2;
        if (block < count) group_bf16(tile, block, rows, 2);
    } else {
        for (; count - block >= most; block += most) group_f32(tile, block, rows, most * 2);
        if (most > 2 && count - block >= 2) group_f32(tile, block, rows, 4), block += 2;
        if (block < count) group_f32(tile, block, rows, 2);
    }
}

static ALWAYS_INLINE void run_rows(const struct linear_tile *tile, int bf16) {
    switch (tile->rows) {
    case 1:
        run(tile, 1, 4, bf16);
        break;
    case 2:
        run(tile, 2, 2, bf16);
        break;
    case 3:
        run(tile, 3, 2, bf16);
        break;
    case 4:
        run(tile, 4, 1, bf16);
        break;
    case 5:
        run(tile, 5, 1, bf16);
        break;
    case 6:
        run(tile, 6, 1, bf16);
        break;
    }
}

void avx2_linear_bf16(const struct linear_tile *tile) {
    run_rows(tile, 1);
}

void avx2_linear_f32(const struct linear_tile *tile) {
    run_rows(tile, 0);
}
