/* 8-bit and 4-bit weights in registers of 32 bytes, for any instruction that multiplies bytes. A
 * 32-bit lane holds four bytes along the depth. */
#ifndef BACKEND_CPU_AVX2_DOTS_H
#define BACKEND_CPU_AVX2_DOTS_H

#include <stdbool.h>

#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/linear/linear_dots.h"
#include "base/compiler.h"

enum {
    AVX2_DOTS_ROWS_MAX = 4,
    AVX2_DOTS_BLOCKS_MAX = 4,
    SCALES_AHEAD = 4 * INT4_SCALE_BYTES,
};

// The products of an instruction set. Bytes of x are 0 .. 255.
struct avx2_products {
    // Adds the products with 8-bit weights, -127 .. 127, to each 32-bit lane.
    __m256i (*int8)(__m256i acc, __m256i x, __m256i weights);
    // The same with 4-bit weights, -7 .. 7. `acc` is 0 at first and gets 32 products a lane. It may
    // keep two sums of 16 bits in a lane.
    __m256i (*int4)(__m256i acc, __m256i x, __m256i weights);
    // Those sums times the lane's scale, in 32 bits.
    __m256i (*scaled)(__m256i acc, __m256i scale);
};

static ALWAYS_INLINE void avx2_dots_int8(const struct linear_dots *dots, uint32_t block,
                                         uint32_t rows, uint32_t halves,
                                         const struct avx2_products *products) {
    __m256i acc[AVX2_DOTS_ROWS_MAX][2 * AVX2_DOTS_BLOCKS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes;
    const unsigned char *x = dots->x;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            const void *from = sums + r * dots->sums_stride + (size_t)h * HALF;
            acc[r][h] = dots->is_first ? _mm256_setzero_si256() : _mm256_loadu_si256(from);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride - CHUNK_BYTES) {
        const size_t ahead = linear_dots_ahead(dots, c, halves / 2, TILE_BYTES);
        for (uint32_t quad = 0; quad < CHUNK_BYTES; quad += 4, w += CHUNK_BYTES, x += 4) {
            __m256i weights[2 * AVX2_DOTS_BLOCKS_MAX];
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                const unsigned char *from = w + h / 2 * dots->block_bytes + h % 2 * 32;
                weights[h] = _mm256_loadu_si256((const void *)from);
                if (h % 2 == 0) _mm_prefetch((const void *)(from + ahead), _MM_HINT_T0);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
                __m256i value = _mm256_set1_epi32(four);
                UNROLL for (uint32_t h = 0; h < halves; h++) {
                    acc[r][h] = products->int8(acc[r][h], value, weights[h]);
                }
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            void *to = sums + r * dots->sums_stride + (size_t)h * HALF;
            _mm256_storeu_si256(to, acc[r][h]);
        }
    }
}

// The lower or upper 4 bits of a byte, minus 7.
static ALWAYS_INLINE __m256i int4_weights(const unsigned char *from, bool is_upper) {
    __m256i both = _mm256_loadu_si256((const void *)from);
    __m256i quads = is_upper ? _mm256_srli_epi16(both, 4) : both;
    return _mm256_sub_epi8(_mm256_and_si256(quads, _mm256_set1_epi8(15)), _mm256_set1_epi8(7));
}

// 32 weights of the depth, which have one scale an output.
struct int4_group {
    const unsigned char *w, *scales, *x;
    size_t ahead; // how far ahead weights are fetched
};

// Adds the products of a group to `total`: 4-bit weights times bytes, then times the scale.
static ALWAYS_INLINE void add_int4_group(const struct linear_dots *dots, struct int4_group group,
                                         bool is_upper, uint32_t rows, uint32_t halves,
                                         const struct avx2_products *products,
                                         __m256i total[][2 * AVX2_DOTS_BLOCKS_MAX]) {
    const unsigned char *x = group.x;
    __m256i acc[AVX2_DOTS_ROWS_MAX][2 * AVX2_DOTS_BLOCKS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) acc[r][h] = _mm256_setzero_si256();
    }
    for (uint32_t line = 0; line < INT4_TILE_BYTES; line += CHUNK_BYTES, x += 4) {
        __m256i value[AVX2_DOTS_ROWS_MAX];
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
            value[r] = _mm256_set1_epi32(four);
        }
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            const unsigned char *from = group.w + h / 2 * dots->block_bytes + line + h % 2 * 32;
            if (!is_upper && h % 2 == 0) {
                _mm_prefetch((const void *)(from + group.ahead), _MM_HINT_T0);
            }
            __m256i weights = int4_weights(from, is_upper);
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                acc[r][h] = products->int4(acc[r][h], value[r], weights);
            }
        }
    }
    UNROLL for (uint32_t h = 0; h < halves; h++) {
        const unsigned char *from = group.scales + h / 2 * dots->block_bytes + h % 2 * HALF;
        if (!is_upper && h % 2 == 0) _mm_prefetch((const void *)(from + SCALES_AHEAD), _MM_HINT_T0);
        __m256i scale = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from));
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            total[r][h] = _mm256_add_epi32(total[r][h], products->scaled(acc[r][h], scale));
        }
    }
}

static ALWAYS_INLINE void avx2_dots_int4(const struct linear_dots *dots, uint32_t block,
                                         uint32_t rows, uint32_t halves,
                                         const struct avx2_products *products) {
    __m256i total[AVX2_DOTS_ROWS_MAX][2 * AVX2_DOTS_BLOCKS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes;
    const unsigned char *scales = dots->scales + block * dots->block_bytes;
    const unsigned char *x = dots->x;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            const void *from = sums + r * dots->sums_stride + (size_t)h * HALF;
            total[r][h] = dots->is_first ? _mm256_setzero_si256() : _mm256_loadu_si256(from);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++) {
        const size_t ahead = linear_dots_ahead(dots, c, halves / 2, INT4_TILE_BYTES);
        const struct int4_group lower = {w, scales, x, ahead};
        const struct int4_group upper = {w, scales + LANES, x + INT4_GROUP, ahead};
        add_int4_group(dots, lower, false, rows, halves, products, total);
        add_int4_group(dots, upper, true, rows, halves, products, total);
        w += INT4_TILE_BYTES;
        scales += INT4_SCALE_BYTES;
        x += dots->x_stride;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            void *to = sums + r * dots->sums_stride + (size_t)h * HALF;
            _mm256_storeu_si256(to, total[r][h]);
        }
    }
}

typedef void multiply_blocks(const struct linear_dots *dots, uint32_t block, uint32_t rows,
                             uint32_t halves, const struct avx2_products *products);

// All blocks, as many at a time as registers hold. With one row each block is a stream from memory.
static ALWAYS_INLINE void dots_blocks(const struct linear_dots *dots, uint32_t rows,
                                      multiply_blocks *multiply,
                                      const struct avx2_products *products) {
    uint32_t block = 0, left = dots->num_blocks;
    for (; rows == 1 && left >= 4; block += 4, left -= 4) multiply(dots, block, rows, 8, products);
    for (; rows <= 2 && left >= 2; block += 2, left -= 2) multiply(dots, block, rows, 4, products);
    for (; left > 0; block++, left--) multiply(dots, block, rows, 2, products);
}

static ALWAYS_INLINE void avx2_dots(const struct linear_dots *dots, multiply_blocks *multiply,
                                    const struct avx2_products *products) {
    switch (dots->rows) {
    case 1:
        dots_blocks(dots, 1, multiply, products);
        break;
    case 2:
        dots_blocks(dots, 2, multiply, products);
        break;
    case 3:
        dots_blocks(dots, 3, multiply, products);
        break;
    case 4:
        dots_blocks(dots, 4, multiply, products);
        break;
    }
}

#endif
