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

// Codes of 4 bits of a half, to look up their values a line at a time.
struct avx512_codes {
    __m512i words[2]; // the codes of the first 4 lines, and of the others
    __m512i values; // the 16 values as bf16, twice, as VPERMW reads 5 bits
};

static ALWAYS_INLINE struct avx512_codes avx512_codes_of(unpack_table table,
                                                         const unsigned char *codes) {
    const __m512i first =
        _mm512_setr_epi32(0x00020000, 0x00060004, 0x000a0008, 0x000e000c, 0x00120010, 0x00160014,
                          0x001a0018, 0x001e001c, 0x00220020, 0x00260024, 0x002a0028, 0x002e002c,
                          0x00320030, 0x00360034, 0x003a0038, 0x003e003c);
    __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(1));
    __m512i low = _mm512_loadu_si512(codes), high = _mm512_loadu_si512(codes + 64);
    return (struct avx512_codes){.words = {_mm512_permutex2var_epi16(low, first, high),
                                           _mm512_permutex2var_epi16(low, second, high)},
                                 .values = (__m512i)_mm512_cvtne2ps_pbh(table, table)};
}

// A line's values of 16 outputs of two inputs as bf16, exact.
static ALWAYS_INLINE __m512i avx512_value_pairs(const struct avx512_codes *codes, uint32_t line) {
    __m512i words = _mm512_srli_epi16(codes->words[line / 4], line % 4 * 4);
    return _mm512_permutexvar_epi16(words, codes->values);
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

// Values of bytes, exact; of E4M3 divided by 2^8 (avx512_unpack.h).
static ALWAYS_INLINE void avx512_values_of_bytes(const struct packed_chunk *chunk,
                                                 enum unpack_kind kind, unsigned char *out) {
    unpack_table none = _mm512_setzero_ps();
    for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *codes = unpack_half(chunk, half, kind);
        UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++, out += 64) {
            __m512 low = unpack_value(kind, none, codes, line, 0);
            __m512 high = unpack_value(kind, none, codes, line, 1);
            _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}

// Such a tile of the values of codes.
static inline void avx512_unpack_values(const struct packed_chunk *chunk, enum weight_code code,
                                        unsigned char *out) {
    if (unpack_kind_of(code) == UNPACK_INT8) {
        avx512_values_of_bytes(chunk, UNPACK_INT8, out);
        return;
    }
    if (unpack_kind_of(code) == UNPACK_E4M3) {
        avx512_values_of_bytes(chunk, UNPACK_E4M3, out);
        return;
    }
    unpack_table table = unpack_table_of(code);
    for (uint32_t half = 0; half < 2; half++) {
        struct avx512_codes codes = avx512_codes_of(table, unpack_half(chunk, half, UNPACK_4BIT));
        UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++, out += 64) {
            _mm512_storeu_si512(out, avx512_value_pairs(&codes, line));
        }
    }
}

// A group's scales, for sums of such values.
static ALWAYS_INLINE __m512 avx512_group_scales(enum unpack_kind kind, const float scales[LANES]) {
    __m512 scale = _mm512_loadu_ps(scales);
    return kind == UNPACK_E4M3 ? _mm512_mul_ps(scale, _mm512_set1_ps(256.0f)) : scale;
}

#endif
