/* Packed weights in registers of 64 bytes (linear/unpack.h). VPERMPS takes the low 4 bits of each
 * lane as an index, so a shift and a lookup decode 16 numbers of 4 bits. E4M3 becomes a half float
 * by a shift, 2^8 times too small. */
#ifndef BACKEND_CPU_AVX512_UNPACK_H
#define BACKEND_CPU_AVX512_UNPACK_H

#include <immintrin.h>

#include "backend/cpu/linear/packed.h"

#define UNPACK_LANES 16
typedef __m512 unpack_vector;
typedef __m512 unpack_table;
typedef uint32_t avx512_words __attribute__((vector_size(64)));

static ALWAYS_INLINE unpack_table unpack_table_of(enum weight_code code) {
    const float *values = weight_code_values(code);
    return values ? _mm512_loadu_ps(values) : _mm512_setzero_ps();
}

static ALWAYS_INLINE unpack_vector unpack_spread(const float *from, uint32_t part) {
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m512i lanes = part ? _mm512_add_epi32(low, _mm512_set1_epi32(8)) : low;
    return _mm512_permutexvar_ps(lanes, _mm512_loadu_ps(from));
}

static ALWAYS_INLINE unpack_vector unpack_value(enum unpack_kind kind, unpack_table table,
                                                const unsigned char *codes, uint32_t line,
                                                uint32_t part) {
    if (kind == UNPACK_4BIT) {
        avx512_words words = (avx512_words)_mm512_loadu_si512(codes + part * 64);
        return _mm512_permutexvar_ps((__m512i)(words >> (line * 4)), table);
    }
    __m128i bytes = _mm_loadu_si128((const void *)(codes + line * 32 + part * 16));
    if (kind == UNPACK_INT8) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(words, _mm256_set1_epi16((short)0xbf80)));
}

static ALWAYS_INLINE unpack_vector unpack_scale(enum unpack_kind kind, unpack_table table,
                                                const float *from, uint32_t part) {
    (void)table;
    unpack_vector scale = unpack_spread(from, part);
    return kind == UNPACK_E4M3 ? _mm512_mul_ps(scale, _mm512_set1_ps(256.0f)) : scale;
}

static ALWAYS_INLINE unpack_vector unpack_scaled(unpack_vector value, unpack_vector scale,
                                                 unpack_vector offset) {
    return _mm512_fmadd_ps(value, scale, offset);
}

static ALWAYS_INLINE void unpack_split(unpack_vector a, unpack_vector b, float *even, float *odd) {
    const __m512i lanes =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i next = _mm512_add_epi32(lanes, _mm512_set1_epi32(1));
    _mm512_storeu_ps(even, _mm512_permutex2var_ps(a, lanes, b));
    _mm512_storeu_ps(odd, _mm512_permutex2var_ps(a, next, b));
}

#include "backend/cpu/linear/unpack.h"

#endif
