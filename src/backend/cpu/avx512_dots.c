/* Dot products of bf16 pairs (AVX512_BF16) and of 8-bit quads (VNNI): a 32-bit lane is an output, a
 * row's two or four numbers are broadcast. At most 24 sums stay in registers. */
#include "backend/cpu/avx512_dots.h"

#include "backend/cpu/avx512.h"
#include "base/compiler.h"

enum { PREFETCH_BYTES = 1024 };

// Takes floats and integers as one type, which costs nothing: they are the same registers.
static ALWAYS_INLINE __m512i dot(__m512i acc, __m512i x, __m512i w, bool bf16) {
    if (!bf16) return _mm512_dpbusd_epi32(acc, x, w);
    __m512 sum = _mm512_dpbf16_ps(_mm512_castsi512_ps(acc), (__m512bh)x, (__m512bh)w);
    return _mm512_castps_si512(sum);
}

static ALWAYS_INLINE void dots_group(const struct linear_dots *dots, uint32_t block, uint32_t rows,
                                     uint32_t blocks, bool bf16) {
    __m512i acc[DOTS_ROWS_MAX][DOTS_BLOCKS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes;
    const unsigned char *x = dots->x;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            const void *from = sums + r * dots->sums_stride + (size_t)b * LANES;
            if (dots->is_first && bf16) from = dots->start + (size_t)(block + b) * LANES;
            acc[r][b] = dots->is_first && !bf16 ? _mm512_setzero_si512() : _mm512_loadu_si512(from);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride - CHUNK_BYTES) {
        for (uint32_t quad = 0; quad < CHUNK_BYTES; quad += 4, w += CHUNK_BYTES, x += 4) {
            __m512i weight[DOTS_BLOCKS_MAX];
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                const unsigned char *from = w + b * dots->block_bytes;
                weight[b] = _mm512_loadu_si512(from);
                _mm_prefetch((const void *)(from + PREFETCH_BYTES), _MM_HINT_T0);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
                __m512i value = _mm512_set1_epi32(four);
                UNROLL for (uint32_t b = 0; b < blocks; b++) {
                    acc[r][b] = dot(acc[r][b], value, weight[b], bf16);
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
static ALWAYS_INLINE void dots_blocks(const struct linear_dots *dots, uint32_t rows, uint32_t most,
                                      bool bf16) {
    uint32_t block = 0;
    for (; dots->num_blocks - block >= most; block += most) {
        dots_group(dots, block, rows, most, bf16);
    }
    for (; block < dots->num_blocks; block++) dots_group(dots, block, rows, 1, bf16);
}

static ALWAYS_INLINE void dots_of_rows(const struct linear_dots *dots, bool bf16) {
    switch (dots->rows) {
    case 1:
        dots_blocks(dots, 1, 8, bf16);
        break;
    case 2:
        dots_blocks(dots, 2, 8, bf16);
        break;
    case 3:
        dots_blocks(dots, 3, 8, bf16);
        break;
    case 4:
        dots_blocks(dots, 4, 4, bf16);
        break;
    case 5:
        dots_blocks(dots, 5, 4, bf16);
        break;
    case 6:
        dots_blocks(dots, 6, 4, bf16);
        break;
    case 7:
        dots_blocks(dots, 7, 3, bf16);
        break;
    case 8:
        dots_blocks(dots, 8, 3, bf16);
        break;
    }
}

static void bf16_dots(const struct linear_dots *dots) {
    dots_of_rows(dots, true);
}

static void int8_dots(const struct linear_dots *dots) {
    dots_of_rows(dots, false);
}

// (q - 7) * s for two bytes by one 16-bit product: q * s is at most 14 * 18 and stays below 256.
void avx512_unpack_int4(const unsigned char *quads, const unsigned char *scales,
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

void avx512_dots_linear_narrow(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.bf16 = bf16_dots,
                                                .int8 = int8_dots,
                                                .unpack_int4 = avx512_unpack_int4,
                                                .rows_max = DOTS_ROWS_MAX,
                                                .num_blocks = {0, 8, 8, 8, 4, 4, 4, 3, 3}};
    linear_dots_run(item, &kernels);
}

void avx512_narrow_bf16(const float *x, float scale, uint32_t count, unsigned char *out,
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

float avx512_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride) {
    return narrow_row_int8(x, count, out, stride);
}
