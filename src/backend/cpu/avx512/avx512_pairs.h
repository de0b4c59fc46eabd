/* Packed weights whose codes are E4M3 as pairs of bf16, by AVX512_BF16 (AVX512_FLAGS of the
 * including file have it). Other codes are fixed-point weights wherever this instruction set is. */
#ifndef BACKEND_CPU_AVX512_PAIRS_H
#define BACKEND_CPU_AVX512_PAIRS_H

#include "backend/cpu/avx512/avx512_unpack.h"

// Of a half, for the two parts of a line.
struct avx512_scales {
    __m512 scale[2], offset[2];
};

static ALWAYS_INLINE __m512 avx512_value(const unsigned char *codes, uint32_t line, uint32_t part) {
    return unpack_value(UNPACK_E4M3, _mm512_setzero_ps(), codes, line, part);
}

static ALWAYS_INLINE struct avx512_scales avx512_scales_of(const struct packed_chunk *chunk,
                                                           uint32_t half) {
    const float *scales = chunk->scales[half];
    return (struct avx512_scales){
        .scale = {unpack_scale(UNPACK_E4M3, _mm512_setzero_ps(), scales, 0),
                  unpack_scale(UNPACK_E4M3, _mm512_setzero_ps(), scales, 1)},
        .offset = {unpack_spread(chunk->offsets[half], 0), unpack_spread(chunk->offsets[half], 1)},
    };
}

// A line's 16 outputs of two inputs.
static ALWAYS_INLINE __m512i avx512_pairs(const unsigned char *codes, uint32_t line,
                                          const struct avx512_scales *scales) {
    __m512 low = unpack_scaled(avx512_value(codes, line, 0), scales->scale[0], scales->offset[0]);
    __m512 high = unpack_scaled(avx512_value(codes, line, 1), scales->scale[1], scales->offset[1]);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// A tile of 32 inputs, [16 pairs][16 outputs][2] of bf16.
static inline void avx512_unpack_pairs(const struct packed_chunk *chunk, unsigned char *out) {
    for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *codes = unpack_half(chunk, half, UNPACK_E4M3);
        struct avx512_scales scales = avx512_scales_of(chunk, half);
        UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++, out += 64) {
            _mm512_storeu_si512(out, avx512_pairs(codes, line, &scales));
        }
    }
}

// Such a tile of the values of codes, exact, divided by 2^8 (avx512_unpack.h).
static inline void avx512_unpack_values(const struct packed_chunk *chunk, unsigned char *out) {
    for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *codes = unpack_half(chunk, half, UNPACK_E4M3);
        UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++, out += 64) {
            __m512 low = avx512_value(codes, line, 0), high = avx512_value(codes, line, 1);
            _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}

// A group's scales, for sums of such values.
static ALWAYS_INLINE __m512 avx512_group_scales(const float scales[LANES]) {
    return _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_set1_ps(256.0f));
}

#endif
