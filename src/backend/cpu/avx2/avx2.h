/* Shared by the AVX2 + FMA kernels (kernels_x86.h). A group of 16 lanes is two registers. */
#ifndef BACKEND_CPU_AVX2_H
#define BACKEND_CPU_AVX2_H

#include <immintrin.h>

#include "backend/cpu/isa/kernels_x86.h"
#include "base/compiler.h"

enum { HALF = 8 }; // floats of a register

// A mask of the first `left` of 8 lanes (of all if more), for maskload and maskstore.
static inline __m256i avx2_tail_mask(uint32_t left) {
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const void *)(table + HALF - (left < HALF ? left : HALF)));
}

// Of a pair of bf16 in each lane, the second one's bits. The mask is read from memory each time: in
// a register it would displace a sum, which then goes through memory at every step.
static inline __m256i avx2_odd_bf16(__m256i pairs) {
    static const CACHE_ALIGNED uint32_t mask[HALF] = {0xffff0000, 0xffff0000, 0xffff0000,
                                                      0xffff0000, 0xffff0000, 0xffff0000,
                                                      0xffff0000, 0xffff0000};
    const uint32_t *from = mask;
    __asm__ volatile("" : "+r"(from)); // hides that it is the same in each turn of a loop
    return _mm256_and_si256(pairs, _mm256_load_si256((const void *)from));
}

// e^x within 1 ulp. Below -87.3, where the result would be subnormal, it is 0. Large x gives inf,
// NaN gives NaN.
static inline __m256 avx2_exp(__m256 x) {
    __m256 normal = _mm256_cmp_ps(x, _mm256_set1_ps(-87.3f), _CMP_NLT_UQ);
    // The second operand is returned when one is NaN.
    x = _mm256_max_ps(_mm256_set1_ps(-87.3f), x);
    x = _mm256_min_ps(_mm256_set1_ps(100.0f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // x - n ln 2, with ln 2 in two parts of which the first times n is exact.
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e400p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    // e^r on [-ln2/2, ln2/2]: interpolated at the Chebyshev points, error < 1e-8.
    __m256 p = _mm256_set1_ps(0x1.6d1106p-10f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.120b6cp-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.55551ap-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5554dcp-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    // 2^n as a product of two powers: n goes up to 144, beyond a float's exponent.
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i first = _mm256_srai_epi32(whole, 1);
    __m256i second = _mm256_sub_epi32(whole, first);
    const __m256i bias = _mm256_set1_epi32(127);
    first = _mm256_slli_epi32(_mm256_add_epi32(first, bias), 23);
    second = _mm256_slli_epi32(_mm256_add_epi32(second, bias), 23);
    p = _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
    return _mm256_and_ps(p, normal);
}

static inline float avx2_reduce_add(__m256 v) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

static inline float avx2_reduce_max(__m256 v) {
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
}

#endif
