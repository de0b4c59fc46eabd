/* 8-bit and 4-bit weights by AVX2. Both factors are widened to 16 bits, because vpmaddubsw's sums
 * of two 8-bit products may saturate; vpmaddwd's sums of two 16-bit products cannot. A 32-bit lane
 * holds four bytes along the depth. One vpmaddwd multiplies its even bytes, another its odd bytes.
 */
#include "backend/cpu/avx2.h"
#include "backend/cpu/linear_dots.h"
#include "base/compiler.h"

enum { NARROW_ROWS_MAX = 4, NARROW_BLOCKS_MAX = 2, PREFETCH_BYTES = 1024 };

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
        for (uint32_t quad = 0; quad < CHUNK_BYTES; quad += 4, w += CHUNK_BYTES, x += 4) {
            __m256i even[2 * NARROW_BLOCKS_MAX], odd[2 * NARROW_BLOCKS_MAX];
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                const unsigned char *from = w + h / 2 * dots->block_bytes + h % 2 * 32;
                __m256i bytes = _mm256_loadu_si256((const void *)from);
                if (h % 2 == 0) _mm_prefetch((const void *)(from + PREFETCH_BYTES), _MM_HINT_T0);
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

static ALWAYS_INLINE void dots_blocks(const struct linear_dots *dots, uint32_t rows) {
    uint32_t block = 0;
    for (; rows <= 2 && dots->num_blocks - block >= 2; block += 2) dots_int8(dots, block, rows, 4);
    for (; block < dots->num_blocks; block++) dots_int8(dots, block, rows, 2);
}

static void int8_dots(const struct linear_dots *dots) {
    switch (dots->rows) {
    case 1:
        dots_blocks(dots, 1);
        break;
    case 2:
        dots_blocks(dots, 2);
        break;
    case 3:
        dots_blocks(dots, 3);
        break;
    case 4:
        dots_blocks(dots, 4);
        break;
    }
}

// (q - 7) * s for two bytes by one 16-bit product: q * s is at most 14 * 18 and stays below 256.
static void unpack_int4(const unsigned char *quads, const unsigned char *scales,
                        unsigned char *out) {
    const __m256i low = _mm256_set1_epi8(15), spread = _mm256_set1_epi32(0x00010001);
    __m256i scale[2][2], seven[2][2];
    UNROLL for (uint32_t g = 0; g < 2; g++) {
        UNROLL for (uint32_t h = 0; h < 2; h++) {
            __m256i s = _mm256_cvtepu8_epi32(
                _mm_loadl_epi64((const void *)(scales + g * LANES + h * HALF)));
            scale[g][h] = _mm256_mullo_epi32(s, spread);
            seven[g][h] = _mm256_mullo_epi32(s, _mm256_set1_epi32(0x07070707));
        }
    }
    for (uint32_t i = 0; i < INT4_TILE_BYTES; i += CHUNK_BYTES) {
        UNROLL for (uint32_t h = 0; h < 2; h++) {
            uint32_t at = i + h * 32;
            __m256i both = _mm256_loadu_si256((const void *)(quads + at));
            __m256i first = _mm256_and_si256(both, low);
            __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            first = _mm256_sub_epi8(_mm256_mullo_epi16(first, scale[0][h]), seven[0][h]);
            second = _mm256_sub_epi8(_mm256_mullo_epi16(second, scale[1][h]), seven[1][h]);
            _mm256_storeu_si256((void *)(out + at), first);
            _mm256_storeu_si256((void *)(out + INT4_TILE_BYTES + at), second);
        }
    }
}

void avx2_linear_narrow(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .unpack_int4 = unpack_int4,
                                                .rows_max = NARROW_ROWS_MAX,
                                                .num_blocks = {1, 2, 2, 1, 1}};
    linear_dots_run(item, &kernels);
}

float avx2_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride) {
    return narrow_row_int8(x, count, out, stride);
}
