/* Packed weights as pairs of bf16, by AVX512_BF16 (AVX512_FLAGS of the including file have it). */
#ifndef BACKEND_CPU_AVX512_PAIRS_H
#define BACKEND_CPU_AVX512_PAIRS_H

#include "backend/cpu/avx512/avx512_unpack.h"

// Of a half, for the two parts of a line.
struct avx512_scales {
    __m512 scale[2], offset[2];
};

static ALWAYS_INLINE struct avx512_scales avx512_scales_of(const struct packed_chunk *chunk,
                                                           uint32_t half, enum unpack_kind kind,
                                                           unpack_table table) {
    return (struct avx512_scales){
        .scale = {unpack_scale(kind, table, chunk->scales[half], 0),
                  unpack_scale(kind, table, chunk->scales[half], 1)},
        .offset = {unpack_spread(chunk->offsets[half], 0), unpack_spread(chunk->offsets[half], 1)},
    };
}

// A line's 16 outputs of two inputs.
static ALWAYS_INLINE __m512i avx512_pairs(enum unpack_kind kind, unpack_table table,
                                          const unsigned char *codes, uint32_t line,
                                          const struct avx512_scales *scales) {
    __m512 low = unpack_value(kind, table, codes, line, 0);
    __m512 high = unpack_value(kind, table, codes, line, 1);
    low = unpack_scaled(low, scales->scale[0], scales->offset[0]);
    high = unpack_scaled(high, scales->scale[1], scales->offset[1]);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

static ALWAYS_INLINE void avx512_pairs_of_chunk(const struct packed_chunk *chunk,
                                                enum unpack_kind kind, unpack_table table,
                                                unsigned char *out) {
    for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *codes = unpack_half(chunk, half, kind);
        struct avx512_scales scales = avx512_scales_of(chunk, half, kind, table);
        UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++, out += 64) {
            _mm512_storeu_si512(out, avx512_pairs(kind, table, codes, line, &scales));
        }
    }
}

// A tile of 32 inputs, [16 pairs][16 outputs][2] of bf16.
static inline void avx512_unpack_pairs(const struct packed_chunk *chunk, enum weight_code code,
                                       unsigned char *out) {
    unpack_table table = unpack_table_of(code);
    switch (unpack_kind_of(code)) {
    case UNPACK_4BIT:
        avx512_pairs_of_chunk(chunk, UNPACK_4BIT, table, out);
        break;
    case UNPACK_INT8:
        avx512_pairs_of_chunk(chunk, UNPACK_INT8, table, out);
        break;
    case UNPACK_E4M3:
        avx512_pairs_of_chunk(chunk, UNPACK_E4M3, table, out);
        break;
    }
}

#endif
