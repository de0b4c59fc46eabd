/* bf16 weights by AVX512_BF16: VDPBF16PS adds two products of bf16 to a 32-bit lane. Packed
 * weights, whose codes are E4M3 here (fixed.h has the others), become bf16 on the way: of many rows
 * once for all of them, of few in registers. */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/avx512_dots.h"
#include "backend/cpu/avx512/avx512_pairs.h"

enum { PACKED_BLOCKS_MAX = 4 };

static ALWAYS_INLINE __m512i add_products(__m512i acc, __m512i x, __m512i weights) {
    __m512 sum = _mm512_dpbf16_ps(_mm512_castsi512_ps(acc), (__m512bh)x, (__m512bh)weights);
    return _mm512_castps_si512(sum);
}

static void bf16_dots(const struct linear_dots *dots) {
    avx512_dots(dots, true, add_products);
}

// Adds the products of half a chunk of block `b`, whose weights become bf16 in registers.
static ALWAYS_INLINE void add_packed_half(const struct packed_chunk *chunk, uint32_t half,
                                          const unsigned char *x, uint32_t rows, uint32_t b,
                                          __m512i acc[DOTS_ROWS_MAX][PACKED_BLOCKS_MAX]) {
    const unsigned char *codes = unpack_half(chunk, half, UNPACK_E4M3);
    struct avx512_scales scales = avx512_scales_of(chunk, half);
    UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
        __m512i pairs = avx512_pairs(codes, line, &scales);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, x + (size_t)r * CHUNK_BYTES + (half * PACKED_LINES + line) * 4,
                   sizeof two);
            acc[r][b] = add_products(acc[r][b], _mm512_set1_epi32(two), pairs);
        }
    }
}

// Some packed blocks.
static ALWAYS_INLINE void packed_group(const struct linear_dots *dots, uint32_t block,
                                       uint32_t rows, uint32_t blocks) {
    __m512i acc[DOTS_ROWS_MAX][PACKED_BLOCKS_MAX];
    const struct packed_shape *shape = dots->packed;
    const unsigned char *w = dots->weights + block * dots->block_bytes, *x = dots->x;
    float *sums = (float *)dots->sums + (size_t)block * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            acc[r][b] = _mm512_loadu_si512(dots->start + (size_t)(block + b) * LANES);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride) {
        struct packed_chunk chunk[PACKED_BLOCKS_MAX];
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            chunk[b] = packed_chunk_of(shape, w + b * dots->block_bytes, c);
            for (uint32_t at = 0; at < shape->chunk_bytes; at += CHUNK_BYTES) {
                const unsigned char *ahead = chunk[b].codes + at + AVX512_DOTS_AHEAD;
                _mm_prefetch((const void *)ahead, _MM_HINT_T0);
            }
        }
        for (uint32_t half = 0; half < 2; half++) {
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                add_packed_half(&chunk[b], half, x, rows, b, acc);
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
static ALWAYS_INLINE void packed_blocks(const struct linear_dots *dots, uint32_t rows,
                                        uint32_t most) {
    uint32_t block = 0;
    for (; dots->num_blocks - block >= most; block += most) packed_group(dots, block, rows, most);
    for (; block < dots->num_blocks; block++) packed_group(dots, block, rows, 1);
}

static void packed_dots(const struct linear_dots *dots) {
    switch (dots->rows) {
    case 1:
        packed_blocks(dots, 1, 4);
        break;
    case 2:
        packed_blocks(dots, 2, 4);
        break;
    case 3:
        packed_blocks(dots, 3, 2);
        break;
    case 4:
        packed_blocks(dots, 4, 2);
        break;
    case 5:
        packed_blocks(dots, 5, 2);
        break;
    case 6:
        packed_blocks(dots, 6, 2);
        break;
    case 7:
        packed_blocks(dots, 7, 1);
        break;
    case 8:
        packed_blocks(dots, 8, 1);
        break;
    }
}

void avx512_bf16_linear_pairs(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.bf16 = bf16_dots,
                                                .packed = packed_dots,
                                                .unpack = avx512_unpack_pairs,
                                                .rows_max = DOTS_ROWS_MAX,
                                                .num_blocks = AVX512_DOTS_BLOCKS};
    linear_dots_run(item, &kernels);
}

void avx512_bf16_narrow(const float *x, float scale, uint32_t count, unsigned char *out,
                        size_t stride) {
    const __m512 factor = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
    for (uint32_t k = 0; k < count; k += 2 * LANES, x += 2 * LANES, out += stride) {
        uint32_t left = count - k;
        __m512 low = _mm512_maskz_loadu_ps(avx512_first_lanes(left), x);
        __m512 high = zero;
        if (left > LANES) high = _mm512_maskz_loadu_ps(avx512_first_lanes(left - LANES), x + LANES);
        // Adding 0 makes every zero +0: the sign of a zero that attention leaves may differ.
        low = _mm512_fmadd_ps(low, factor, zero);
        high = _mm512_fmadd_ps(high, factor, zero);
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}
