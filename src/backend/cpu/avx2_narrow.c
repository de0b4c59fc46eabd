/* 8-bit and 4-bit weights by AVX2. 8-bit: both factors are widened to 16 bits, because vpmaddubsw's
 * sums of two 8-bit products may saturate; vpmaddwd's sums of two 16-bit products cannot. A 32-bit
 * lane holds four bytes along the depth. One vpmaddwd multiplies its even bytes, another its odd
 * bytes. 4-bit: products with q - 7 are so small that vpmaddubsw is exact, and even the sum of a
 * group fits 16 bits. */
#include <stdbool.h>

#include "backend/cpu/avx2.h"
#include "backend/cpu/linear_dots.h"
#include "base/compiler.h"

enum {
    NARROW_ROWS_MAX = 4,
    NARROW_BLOCKS_MAX = 4,
    SCALES_AHEAD = 4 * INT4_SCALE_BYTES,
};

// How far ahead weights are fetched. Each block is a stream from memory, and a single stream needs
// more than one of several. At its end a stream continues with the block that is `blocks` later.
static ALWAYS_INLINE size_t bytes_ahead(const struct linear_dots *dots, uint32_t chunk,
                                        uint32_t blocks, size_t tile_bytes) {
    uint32_t tiles = blocks > 1 ? 1 : 4;
    bool is_end = chunk + tiles >= dots->chunks;
    return tiles * tile_bytes + (is_end ? (blocks - 1) * dots->block_bytes : 0);
}

static ALWAYS_INLINE void dots_int8(const struct linear_dots *dots, uint32_t block, uint32_t rows,
                                    uint32_t halves) {
    __m256i acc[NARROW_ROWS_MAX][2 * NARROW_BLOCKS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes;
    const unsigned char *x = dots->x;
    const __m256i low = _mm256_set1_epi16(0xff);
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            const void *from = sums + r * dots->sums_stride + (size_t)h * HALF;
            acc[r][h] = dots->is_first ? _mm256_setzero_si256() : _mm256_loadu_si256(from);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride - CHUNK_BYTES) {
        const size_t ahead = bytes_ahead(dots, c, halves / 2, TILE_BYTES);
        for (uint32_t quad = 0; quad < CHUNK_BYTES; quad += 4, w += CHUNK_BYTES, x += 4) {
            __m256i even[2 * NARROW_BLOCKS_MAX], odd[2 * NARROW_BLOCKS_MAX];
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                const unsigned char *from = w + h / 2 * dots->block_bytes + h % 2 * 32;
                __m256i bytes = _mm256_loadu_si256((const void *)from);
                if (h % 2 == 0) _mm_prefetch((const void *)(from + ahead), _MM_HINT_T0);
                even[h] = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
                odd[h] = _mm256_srai_epi16(bytes, 8);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
                __m256i value = _mm256_set1_epi32(four);
                __m256i x_even = _mm256_and_si256(value, low), x_odd = _mm256_srli_epi16(value, 8);
                UNROLL for (uint32_t h = 0; h < halves; h++) {
                    __m256i two = _mm256_add_epi32(_mm256_madd_epi16(even[h], x_even),
                                                   _mm256_madd_epi16(odd[h], x_odd));
                    acc[r][h] = _mm256_add_epi32(acc[r][h], two);
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

// Adds the products of one group of 32 to `total`: 4-bit weights times bytes, then times the scale.
// A product of the first kind is at most 7 * 255, and a 16-bit lane has 16 of them.
static ALWAYS_INLINE void add_int4_group(const struct linear_dots *dots, const unsigned char *w,
                                         const unsigned char *scales, const unsigned char *x,
                                         bool is_upper, uint32_t rows, uint32_t halves,
                                         size_t ahead, __m256i total[][2 * NARROW_BLOCKS_MAX]) {
    __m256i acc[NARROW_ROWS_MAX][2 * NARROW_BLOCKS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) acc[r][h] = _mm256_setzero_si256();
    }
    for (uint32_t line = 0; line < INT4_TILE_BYTES; line += CHUNK_BYTES, x += 4) {
        __m256i value[NARROW_ROWS_MAX];
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
            value[r] = _mm256_set1_epi32(four);
        }
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            const unsigned char *from = w + h / 2 * dots->block_bytes + line + h % 2 * 32;
            if (!is_upper && h % 2 == 0) {
                _mm_prefetch((const void *)(from + ahead), _MM_HINT_T0);
            }
            __m256i weights = int4_weights(from, is_upper);
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                acc[r][h] = _mm256_add_epi16(acc[r][h], _mm256_maddubs_epi16(value[r], weights));
            }
        }
    }
    UNROLL for (uint32_t h = 0; h < halves; h++) {
        const unsigned char *from = scales + h / 2 * dots->block_bytes + h % 2 * HALF;
        if (!is_upper && h % 2 == 0) _mm_prefetch((const void *)(from + SCALES_AHEAD), _MM_HINT_T0);
        __m256i scale = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from));
        scale = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            total[r][h] = _mm256_add_epi32(total[r][h], _mm256_madd_epi16(acc[r][h], scale));
        }
    }
}

static ALWAYS_INLINE void dots_int4(const struct linear_dots *dots, uint32_t block, uint32_t rows,
                                    uint32_t halves) {
    __m256i total[NARROW_ROWS_MAX][2 * NARROW_BLOCKS_MAX];
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
        const size_t ahead = bytes_ahead(dots, c, halves / 2, INT4_TILE_BYTES);
        add_int4_group(dots, w, scales, x, false, rows, halves, ahead, total);
        add_int4_group(dots, w, scales + LANES, x + INT4_GROUP, true, rows, halves, ahead, total);
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

// All blocks, as many at a time as registers hold. With one row each block is a stream from memory.
static ALWAYS_INLINE void dots_blocks(const struct linear_dots *dots, uint32_t rows,
                                      void (*multiply)(const struct linear_dots *, uint32_t,
                                                       uint32_t, uint32_t)) {
    uint32_t block = 0, left = dots->num_blocks;
    for (; rows == 1 && left >= 4; block += 4, left -= 4) multiply(dots, block, rows, 8);
    for (; rows <= 2 && left >= 2; block += 2, left -= 2) multiply(dots, block, rows, 4);
    for (; left > 0; block++, left--) multiply(dots, block, rows, 2);
}

static ALWAYS_INLINE void dots_rows_blocks(const struct linear_dots *dots,
                                           void (*multiply)(const struct linear_dots *, uint32_t,
                                                            uint32_t, uint32_t)) {
    switch (dots->rows) {
    case 1:
        dots_blocks(dots, 1, multiply);
        break;
    case 2:
        dots_blocks(dots, 2, multiply);
        break;
    case 3:
        dots_blocks(dots, 3, multiply);
        break;
    case 4:
        dots_blocks(dots, 4, multiply);
        break;
    }
}

static void int8_dots(const struct linear_dots *dots) {
    dots_rows_blocks(dots, dots_int8);
}

static void int4_dots(const struct linear_dots *dots) {
    dots_rows_blocks(dots, dots_int4);
}

void avx2_linear_narrow(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .int4 = int4_dots,
                                                .rows_max = NARROW_ROWS_MAX,
                                                .num_blocks = {1, 4, 2, 1, 1}};
    linear_dots_run(item, &kernels);
}

float avx2_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride) {
    return narrow_row_int8(x, count, out, stride);
}
