/* 8-bit and 4-bit weights by AVX2. 8-bit: both factors are widened to 16 bits, because vpmaddubsw's
 * sums of two 8-bit products may saturate; vpmaddwd's sums of two 16-bit products cannot. One
 * vpmaddwd multiplies a lane's even bytes, another its odd bytes. 4-bit: products with q - 7 are so
 * small that vpmaddubsw is exact, and even the sum of a group fits 16 bits. */
#include "backend/cpu/avx2/avx2_dots.h"

static ALWAYS_INLINE __m256i add_int8(__m256i acc, __m256i x, __m256i weights) {
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8);
    __m256i odd = _mm256_srai_epi16(weights, 8);
    __m256i x_even = _mm256_and_si256(x, _mm256_set1_epi16(0xff)), x_odd = _mm256_srli_epi16(x, 8);
    __m256i two = _mm256_add_epi32(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd));
    return _mm256_add_epi32(acc, two);
}

// A product is at most 7 * 255, and a 16-bit lane adds 16 of them.
static ALWAYS_INLINE __m256i add_int4(__m256i acc, __m256i x, __m256i weights) {
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(x, weights));
}

static ALWAYS_INLINE __m256i scaled(__m256i acc, __m256i scale) {
    return _mm256_madd_epi16(acc, _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16)));
}

static const struct avx2_products products = {add_int8, add_int4, scaled};

static void int8_dots(const struct linear_dots *dots) {
    avx2_dots(dots, avx2_dots_int8, &products);
}

static void int4_dots(const struct linear_dots *dots) {
    avx2_dots(dots, avx2_dots_int4, &products);
}

void avx2_linear_bytes(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .int4 = int4_dots,
                                                .rows_max = AVX2_DOTS_ROWS_MAX,
                                                .num_blocks = {1, 4, 2, 1, 1}};
    linear_dots_run(item, &kernels);
}

float avx2_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride) {
    return narrow_row_int8(x, count, out, stride);
}
