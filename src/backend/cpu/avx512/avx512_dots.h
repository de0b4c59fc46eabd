/* Dot products of the pairs or quads of a 32-bit lane in registers of 64 bytes, for any instruction
 * that has them: a lane is an output, a row's two or four numbers are broadcast. At most 24 sums
 * stay in registers. */
#ifndef BACKEND_CPU_AVX512_DOTS_H
#define BACKEND_CPU_AVX512_DOTS_H

#include <immintrin.h>
#include <stdbool.h>

#include "backend/cpu/isa/kernels_x86.h"
#include "backend/cpu/linear/linear_dots.h"
#include "base/compiler.h"

enum { AVX512_DOTS_AHEAD = 1024 }; // bytes that weights are fetched ahead

// The blocks of a group by its number of rows, for struct dots_kernels.
#define AVX512_DOTS_BLOCKS                                                                         \
    { 0, 8, 8, 8, 4, 4, 4, 3, 3 }

// Adds a lane's products. Floats and integers are one type here, which costs nothing: they are the
// same registers.
typedef __m512i avx512_product(__m512i acc, __m512i x, __m512i weights);

static ALWAYS_INLINE void avx512_dots_group(const struct linear_dots *dots, uint32_t block,
                                            uint32_t rows, uint32_t blocks, bool has_start,
                                            avx512_product *product) {
    __m512i acc[DOTS_ROWS_MAX][DOTS_BLOCKS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes;
    const unsigned char *x = dots->x;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            const void *from = sums + r * dots->sums_stride + (size_t)b * LANES;
            if (dots->is_first && has_start) from = dots->start + (size_t)(block + b) * LANES;
            acc[r][b] =
                dots->is_first && !has_start ? _mm512_setzero_si512() : _mm512_loadu_si512(from);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride - CHUNK_BYTES) {
        for (uint32_t quad = 0; quad < CHUNK_BYTES; quad += 4, w += CHUNK_BYTES, x += 4) {
            __m512i weight[DOTS_BLOCKS_MAX];
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                const unsigned char *from = w + b * dots->block_bytes;
                weight[b] = _mm512_loadu_si512(from);
                _mm_prefetch((const void *)(from + AVX512_DOTS_AHEAD), _MM_HINT_T0);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
                __m512i value = _mm512_set1_epi32(four);
                UNROLL for (uint32_t b = 0; b < blocks; b++) {
                    acc[r][b] = product(acc[r][b], value, weight[b]);
                }
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            _mm512_storeu_si512(sums + r * dots->sums_stride + (size_t)b * LANES, acc[r][b]);
        }
    }
}

// All blocks in groups of `most`, the rest one by one.
static ALWAYS_INLINE void avx512_dots_blocks(const struct linear_dots *dots, uint32_t rows,
                                             uint32_t most, bool has_start,
                                             avx512_product *product) {
    uint32_t block = 0;
    for (; dots->num_blocks - block >= most; block += most) {
        avx512_dots_group(dots, block, rows, most, has_start, product);
    }
    for (; block < dots->num_blocks; block++) {
        avx512_dots_group(dots, block, rows, 1, has_start, product);
    }
}

// has_start: sums begin with dots->start; otherwise with 0.
static ALWAYS_INLINE void avx512_dots(const struct linear_dots *dots, bool has_start,
                                      avx512_product *product) {
    switch (dots->rows) {
    case 1:
        avx512_dots_blocks(dots, 1, 8, has_start, product);
        break;
    case 2:
        avx512_dots_blocks(dots, 2, 8, has_start, product);
        break;
    case 3:
        avx512_dots_blocks(dots, 3, 8, has_start, product);
        break;
    case 4:
        avx512_dots_blocks(dots, 4, 4, has_start, product);
        break;
    case 5:
        avx512_dots_blocks(dots, 5, 4, has_start, product);
        break;
    case 6:
        avx512_dots_blocks(dots, 6, 4, has_start, product);
        break;
    case 7:
        avx512_dots_blocks(dots, 7, 3, has_start, product);
        break;
    case 8:
        avx512_dots_blocks(dots, 8, 3, has_start, product);
        break;
    }
}

// One tile of 4-bit weights as bytes (struct linear_item): (q - 7) * s for two bytes by one 16-bit
// product, because q * s is at most 14 * 18 and stays below 256.
static inline void avx512_unpack_int4(const unsigned char *quads, const unsigned char *scales,
                                      unsigned char *out) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i scale[2], seven[2];
    UNROLL for (uint32_t g = 0; g < 2; g++) {
        __m512i s = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(scales + g * LANES)));
        scale[g] = _mm512_mullo_epi32(s, _mm512_set1_epi32(0x00010001));
        seven[g] = _mm512_mullo_epi32(s, _mm512_set1_epi32(0x07070707));
    }
    for (uint32_t i = 0; i < INT4_TILE_BYTES; i += CHUNK_BYTES) {
        __m512i both = _mm512_loadu_si512(quads + i);
        __m512i first = _mm512_and_si512(both, low);
        __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        first = _mm512_sub_epi8(_mm512_mullo_epi16(first, scale[0]), seven[0]);
        second = _mm512_sub_epi8(_mm512_mullo_epi16(second, scale[1]), seven[1]);
        _mm512_storeu_si512(out + i, first);
        _mm512_storeu_si512(out + INT4_TILE_BYTES + i, second);
    }
}

#endif
