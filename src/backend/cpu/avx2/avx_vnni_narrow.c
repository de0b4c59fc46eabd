/* 8-bit and 4-bit weights by AVX-VNNI: VPDPBUSD adds four products of bytes to a 32-bit lane, in
 * registers of 32 bytes. Processors without AVX-512 have it too. */
#include "backend/cpu/avx2/avx2_dots.h"

static ALWAYS_INLINE __m256i add_products(__m256i acc, __m256i x, __m256i weights) {
    return _mm256_dpbusd_avx_epi32(acc, x, weights);
}

static ALWAYS_INLINE __m256i scaled(__m256i acc, __m256i scale) {
    return _mm256_mullo_epi32(acc, scale);
}

static const struct avx2_products products = {add_products, add_products, scaled};

static void int8_dots(const struct linear_dots *dots) {
    avx2_dots(dots, avx2_dots_int8, &products);
}

static void int4_dots(const struct linear_dots *dots) {
    avx2_dots(dots, avx2_dots_int4, &products);
}

void avx_vnni_linear_bytes(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .int4 = int4_dots,
                                                .rows_max = AVX2_DOTS_ROWS_MAX,
                                                .num_blocks = {1, 4, 2, 1, 1}};
    linear_dots_run(item, &kernels);
}
