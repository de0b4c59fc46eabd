/* bf16 weights by AVX512_BF16: VDPBF16PS adds two products of bf16 to a 32-bit lane. */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/avx512_dots.h"

static ALWAYS_INLINE __m512i add_products(__m512i acc, __m512i x, __m512i weights) {
    __m512 sum = _mm512_dpbf16_ps(_mm512_castsi512_ps(acc), (__m512bh)x, (__m512bh)weights);
    return _mm512_castps_si512(sum);
}

static void bf16_dots(const struct linear_dots *dots) {
    avx512_dots(dots, true, add_products);
}

void avx512_bf16_linear_pairs(const struct linear_item *item) {
    static const struct dots_kernels kernels = {
        .bf16 = bf16_dots, .rows_max = DOTS_ROWS_MAX, .num_blocks = AVX512_DOTS_BLOCKS};
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
