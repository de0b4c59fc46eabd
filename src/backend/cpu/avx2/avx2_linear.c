/* y = x W^T in registers of 8 outputs, two of which (halves) are a block of 16. `rows` x `halves`
 * accumulators take at most 12 of the 16 registers. Each is one chain over k with one multiply-add
 * per k. A pair of bf16 is one 32-bit lane: shifted left it is the even k's float, with its low
 * half cleared the odd k's. */
#include <stdbool.h>

#include "backend/cpu/avx2/avx2.h"
#include "base/compiler.h"

enum { AVX2_ROWS_MAX = 6, HALVES_MAX = 8, PREFETCH_BYTES = 1024, WIDEN_PREFETCH_BYTES = 2048 };

static ALWAYS_INLINE void load_start(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t halves, __m256 acc[AVX2_ROWS_MAX][HALVES_MAX]) {
    const float *start = (tile->start ? tile->start : tile->out) + (size_t)block * LANES;
    size_t stride = tile->start ? 0 : tile->out_stride;
    UNROLL for (uint32_t r = 0; r < rows; r++, start += stride) {
        UNROLL for (uint32_t h = 0; h < halves; h++) acc[r][h] = _mm256_loadu_ps(start + h * HALF);
    }
}

static ALWAYS_INLINE void store_out(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                    uint32_t halves, __m256 acc[AVX2_ROWS_MAX][HALVES_MAX]) {
    float *out = tile->out + (size_t)block * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++, out += tile->out_stride) {
        UNROLL for (uint32_t h = 0; h < halves; h++) _mm256_storeu_ps(out + h * HALF, acc[r][h]);
    }
}

// Of many rows: each group of blocks fetches the sums of the next group, and its share of the
// next x.
static ALWAYS_INLINE void fetch_next(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t blocks) {
    const float *sums = tile->out + (size_t)(block + blocks) * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++, sums += tile->out_stride) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            _mm_prefetch((const void *)(sums + b * LANES), _MM_HINT_T0);
        }
    }
    size_t count = (size_t)rows * tile->depth;
    size_t end = count * (block + blocks) / tile->num_blocks;
    for (size_t i = count * block / tile->num_blocks; i < end; i += LANES) {
        _mm_prefetch((const void *)(tile->next_x + i), _MM_HINT_T1);
    }
}

static ALWAYS_INLINE void group_bf16(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t halves) {
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    load_start(tile, block, rows, halves, acc);
    const char *w = (const char *)tile->weights + block * tile->block_bytes;
    const float *x = tile->x;
    for (uint32_t k = 0; k < tile->depth; k += 2, w += 64, x += (size_t)rows * 2) {
        __m256 weight[HALVES_MAX];
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            __m256i pair =
                _mm256_loadu_si256((const void *)(w + (h / 2) * tile->block_bytes + (h % 2) * 32));
            weight[h] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
            if (h % 2 == 0) {
                _mm_prefetch(w + (h / 2) * tile->block_bytes + PREFETCH_BYTES, _MM_HINT_T0);
            }
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
            weight[h] = _mm256_castsi256_ps(avx2_odd_bf16(pair));
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
            if (h % 2 == 0) {
                _mm_prefetch(w + (h / 2) * tile->block_bytes + PREFETCH_BYTES, _MM_HINT_T0);
            }
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

// All blocks of the tile in groups of `most`, the rest one by one.
static ALWAYS_INLINE void run(const struct linear_tile *tile, uint32_t rows, uint32_t most,
                              bool bf16) {
    uint32_t block = 0;
    for (; tile->num_blocks - block >= most; block += most) {
        if (tile->next_x) fetch_next(tile, block, rows, most);
        if (bf16) {
            group_bf16(tile, block, rows, most * 2);
        } else {
            group_f32(tile, block, rows, most * 2);
        }
    }
    for (; most > 1 && block < tile->num_blocks; block++) {
        if (tile->next_x) fetch_next(tile, block, rows, 1);
        if (bf16) {
            group_bf16(tile, block, rows, 2);
        } else {
            group_f32(tile, block, rows, 2);
        }
    }
}

static ALWAYS_INLINE void run_rows(const struct linear_tile *tile, bool bf16) {
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
    run_rows(tile, true);
}

void avx2_linear_f32(const struct linear_tile *tile) {
    run_rows(tile, false);
}

void avx2_widen_bf16(const void *weights, uint32_t depth, float *out) {
    const char *w = weights;
    for (uint32_t k = 0; k < depth; k += 2, w += 64, out += 2 * LANES) {
        _mm_prefetch(w + WIDEN_PREFETCH_BYTES, _MM_HINT_T0);
        UNROLL for (uint32_t h = 0; h < 2; h++) {
            __m256i pair = _mm256_loadu_si256((const void *)(w + h * 32));
            _mm256_storeu_ps(out + h * HALF, _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)));
            _mm256_storeu_ps(out + LANES + h * HALF, _mm256_castsi256_ps(avx2_odd_bf16(pair)));
        }
    }
}
