/* Packed weights times x as 16-bit integers (avx2_fixed.h), by AVX-VNNI: VPDPBUSD adds four
 * products of bytes to a 32-bit lane, and VPDPWSSD two of 16 bits. */
#include "backend/cpu/avx2/avx2_fixed.h"

static ALWAYS_INLINE __m256i add_quads(__m256i sums, __m256i codes, __m256i x) {
    return _mm256_dpbusd_avx_epi32(sums, codes, x);
}

static ALWAYS_INLINE __m256i join(__m256i high, __m256i low) {
    return _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
}

static ALWAYS_INLINE __m256i add_pairs(__m256i sums, __m256i weights, __m256i x) {
    return _mm256_dpwssd_avx_epi32(sums, weights, x);
}

static const struct avx2_fixed_products products = {add_quads, NULL, join, add_pairs};

AVX2_FIXED_LOOPS(eight_bits, &products, false, TABLE_NONE)
AVX2_FIXED_LOOPS(plain, &products, true, TABLE_NONE)
AVX2_FIXED_LOOPS(unsigned_table, &products, true, TABLE_UNSIGNED)

void avx_vnni_linear_fixed(const struct linear_item *item) {
    static avx2_fixed_loop *const *const tables[] = {
        [TABLE_NONE] = plain, [TABLE_UNSIGNED] = unsigned_table};
    avx2_fixed_run(&products, eight_bits, tables, item);
}
