/* Shared by the AVX-512 kernels (kernels_x86.h), which need F, BW, DQ and VL. */
#ifndef BACKEND_CPU_AVX512_H
#define BACKEND_CPU_AVX512_H

#include <immintrin.h>

#include "backend/cpu/isa/kernels_x86.h"

// The first `count` of 16 lanes; all from 16 on.
static inline __mmask16 avx512_first_lanes(uint32_t count) {
    return (__mmask16)((1u << (count < LANES ? count : LANES)) - 1);
}

// `count` is a multiple of 16.
static inline void avx512_scale(float *x, uint32_t count, float factor) {
    const __m512 factors = _mm512_set1_ps(factor);
    for (uint32_t i = 0; i < count; i += LANES) {
        _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), factors));
    }
}

// e^x within 1 ulp. Below -87.3, where the result would be subnormal, it is 0. Large x gives inf,
// NaN gives NaN. (A subnormal result of scalef costs 150 cycles, and masked scores are all -inf.)
static inline __m512 avx512_exp(__m512 x) {
    __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    // The second operand is returned when one is NaN.
    x = _mm512_max_ps(_mm512_set1_ps(-87.3f), x);
    x = _mm512_min_ps(_mm512_set1_ps(100.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // x - n ln 2, with ln 2 in two parts of which the first times n is exact.
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e400p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    // e^r on [-ln2/2, ln2/2]: interpolated at the Chebyshev points, error < 1e-8.
    __m512 p = _mm512_set1_ps(0x1.6d1106p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.120b6cp-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55551ap-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5554dcp-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(normal, p, n);
}

#endif
