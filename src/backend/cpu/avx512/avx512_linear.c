/* y = x W^T in registers of 16 outputs. Each of the `rows` x `blocks` accumulators is one chain
 * over k with one multiply-add per k. A pair of bf16 is one 32-bit lane: shifted left it is the
 * even k's float, with its low half cleared the odd k's.
 *
 * Few rows need many blocks in flight: memory streams, and 8 chains fill two 4-cycle FMA units.
 * Many rows convert each weight once per 12 rows. Rows and blocks are compile-time numbers in each
 * case of the switches below. */
#include <stdbool.h>

#include "backend/cpu/avx512/avx512.h"
#include "base/compiler.h"

enum { BLOCKS_MAX = 8, PREFETCH_BYTES = 1024 };

static ALWAYS_INLINE void load_start(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t blocks, __m512 acc[PANEL_ROWS_MAX][BLOCKS_MAX]) {
    const float *start = (tile->start ? tile->start : tile->out) + (size_t)block * LANES;
    size_t stride = tile->start ? 0 : tile->out_stride;
    UNROLL for (uint32_t r = 0; r < rows; r++, start += stride) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) acc[r][b] = _mm512_loadu_ps(start + b * LANES);
    }
}

static ALWAYS_INLINE void store_out(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                    uint32_t blocks, __m512 acc[PANEL_ROWS_MAX][BLOCKS_MAX]) {
    float *out = tile->out + (size_t)block * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++, out += tile->out_stride) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) _mm512_storeu_ps(out + b * LANES, acc[r][b]);
    }
}

static ALWAYS_INLINE void group_bf16(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                     uint32_t blocks) {
    __m512 acc[PANEL_ROWS_MAX][BLOCKS_MAX];
    load_start(tile, block, rows, blocks, acc);
    const __m512i odd = _mm512_set1_epi32((int)0xffff0000);
    const char *w = (const char *)tile->weights + block * tile->block_bytes;
    const float *x = tile->x;
    for (uint32_t k = 0; k < tile->depth; k += 2, w += 64, x += (size_t)rows * 2) {
        __m512 even_k[BLOCKS_MAX], odd_k[BLOCKS_MAX];
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            __m512i pair = _mm512_loadu_si512(w + b * tile->block_bytes);
            _mm_prefetch(w + b * tile->block_bytes + PREFETCH_BYTES, _MM_HINT_T0);
            even_k[b] = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
            odd_k[b] = _mm512_castsi512_ps(_mm512_and_si512(pair, odd));
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512 x0 = _mm512_set1_ps(x[r]);
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                acc[r][b] = _mm512_fmadd_ps(even_k[b], x0, acc[r][b]);
            }
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512 x1 = _mm512_set1_ps(x[rows + r]);
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                acc[r][b] = _mm512_fmadd_ps(odd_k[b], x1, acc[r][b]);
            }
        }
    }
    store_out(tile, block, rows, blocks, acc);
}

static ALWAYS_INLINE void group_f32(const struct linear_tile *tile, uint32_t block, uint32_t rows,
                                    uint32_t blocks) {
    __m512 acc[PANEL_ROWS_MAX][BLOCKS_MAX];
    load_start(tile, block, rows, blocks, acc);
    const char *w = (const char *)tile->weights + block * tile->block_bytes;
    const float *x = tile->x;
    for (uint32_t k = 0; k < tile->depth; k++, w += 64, x += rows) {
        __m512 weight[BLOCKS_MAX];
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            weight[b] = _mm512_loadu_ps(w + b * tile->block_bytes);
            _mm_prefetch(w + b * tile->block_bytes + PREFETCH_BYTES, _MM_HINT_T0);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512 x0 = _mm512_set1_ps(x[r]);
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                acc[r][b] = _mm512_fmadd_ps(weight[b], x0, acc[r][b]);
            }
        }
    }
    store_out(tile, block, rows, blocks, acc);
}

// All blocks of the tile in groups of `most`, the rest one by one.
static ALWAYS_INLINE void run(const struct linear_tile *tile, uint32_t rows, uint32_t most,
                              bool bf16) {
    uint32_t block = 0;
    for (; tile->num_blocks - block >= most; block += most) {
        if (bf16) {
            group_bf16(tile, block, rows, most);
        } else {
            group_f32(tile, block, rows, most);
        }
    }
    for (; most > 1 && block < tile->num_blocks; block++) {
        if (bf16) {
            group_bf16(tile, block, rows, 1);
        } else {
            group_f32(tile, block, rows, 1);
        }
    }
}

static ALWAYS_INLINE void run_rows(const struct linear_tile *tile, bool bf16) {
    switch (tile->rows) {
    case 1:
        run(tile, 1, 8, bf16);
        break;
    case 2:
        run(tile, 2, 8, bf16);
        break;
    case 3:
        run(tile, 3, 4, bf16);
        break;
    case 4:
        run(tile, 4, 4, bf16);
        break;
    case 5:
        run(tile, 5, 4, bf16);
        break;
    case 6:
        run(tile, 6, 4, bf16);
        break;
    case 7:
        run(tile, 7, 2, bf16);
        break;
    case 8:
        run(tile, 8, 2, bf16);
        break;
    case 9:
        run(tile, 9, 2, bf16);
        break;
    case 10:
        run(tile, 10, 2, bf16);
        break;
    case 11:
        run(tile, 11, 2, bf16);
        break;
    case 12:
        run(tile, 12, 2, bf16);
        break;
    }
}

void avx512_linear_bf16(const struct linear_tile *tile) {
    run_rows(tile, true);
}

void avx512_linear_f32(const struct linear_tile *tile) {
    run_rows(tile, false);
}
