/* Packed weights in registers of 32 bytes (linear/unpack.h). VPSHUFB looks up whole numbers of 4
 * bits; those of E2M1 are doubled. E4M3 becomes a half float by a shift, 2^8 times too small. */
#include <immintrin.h>

#include "backend/cpu/isa/kernels_x86.h"
#include "backend/cpu/linear/packed.h"

#define UNPACK_LANES 8
typedef __m256 unpack_vector;

typedef struct {
    __m256i values; // twice 16 bytes
    __m256 factor; // of scales
} unpack_table;

static ALWAYS_INLINE unpack_table unpack_table_of(enum weight_code code) {
    const float *values = weight_code_values(code);
    float unit = code == WEIGHT_CODE_E2M1 ? 0.5f : 1.0f;
    int8_t bytes[16] = {0};
    for (int i = 0; values && i < 16; i++) bytes[i] = (int8_t)(values[i] / unit);
    __m128i half = _mm_loadu_si128((const void *)bytes);
    return (unpack_table){_mm256_broadcastsi128_si256(half), _mm256_set1_ps(unit)};
}

static ALWAYS_INLINE unpack_vector unpack_spread(const float *from, uint32_t part) {
    __m256 four = _mm256_castps128_ps256(_mm_loadu_ps(from + (size_t)part * 4));
    return _mm256_permutevar8x32_ps(four, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

static ALWAYS_INLINE unpack_vector unpack_value(enum unpack_kind kind, unpack_table table,
                                                const unsigned char *codes, uint32_t line,
                                                uint32_t part) {
    if (kind == UNPACK_4BIT) {
        __m256i words = _mm256_loadu_si256((const void *)(codes + (size_t)part * 32));
        if (line % 2) words = _mm256_srli_epi16(words, 4);
        __m256i bytes =
            _mm256_shuffle_epi8(table.values, _mm256_and_si256(words, _mm256_set1_epi8(15)));
        const __m128i left = _mm_cvtsi32_si128((int)(24 - line / 2 * 8));
        __m256i number = _mm256_srai_epi32(_mm256_sll_epi32(bytes, left), 24);
        return _mm256_cvtepi32_ps(number);
    }
    __m128i bytes = _mm_loadl_epi64((const void *)(codes + (size_t)line * 32 + (size_t)part * 8));
    if (kind == UNPACK_INT8) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    __m128i words = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
    return _mm256_cvtph_ps(_mm_and_si128(words, _mm_set1_epi16((short)0xbf80)));
}

static ALWAYS_INLINE unpack_vector unpack_scale(enum unpack_kind kind, unpack_table table,
                                                const float *from, uint32_t part) {
    unpack_vector scale = unpack_spread(from, part);
    if (kind == UNPACK_4BIT) return _mm256_mul_ps(scale, table.factor);
    return kind == UNPACK_E4M3 ? _mm256_mul_ps(scale, _mm256_set1_ps(256.0f)) : scale;
}

static ALWAYS_INLINE unpack_vector unpack_scaled(unpack_vector value, unpack_vector scale,
                                                 unpack_vector offset) {
    return _mm256_fmadd_ps(value, scale, offset);
}

static ALWAYS_INLINE __m256 in_order(__m256 pairs) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), 0xd8));
}

static ALWAYS_INLINE void unpack_split(unpack_vector a, unpack_vector b, float *even, float *odd) {
    _mm256_storeu_ps(even, in_order(_mm256_shuffle_ps(a, b, 0x88)));
    _mm256_storeu_ps(odd, in_order(_mm256_shuffle_ps(a, b, 0xdd)));
}

#include "backend/cpu/linear/unpack.h"

void avx2_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out) {
    unpack_floats(chunk, code, out);
}

static ALWAYS_INLINE __m256i load_two(const unsigned char *low, const unsigned char *high) {
    __m128i first = _mm_loadu_si128((const void *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                   _mm_loadu_si128((const void *)high), 1);
}

// Of each half, codes 0, 2 .. 14 and then 1, 3 .. 15 of a row, two in a byte.
static ALWAYS_INLINE void pack_4bit(const unsigned char *const rows[LANES], size_t first,
                                    unsigned char *out) {
    enum { HALF_BYTES = PACKED_HALF * PACKED_LANES / 2, ROW_BYTES = PACKED_HALF / 2 };
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m256i low = _mm256_set1_epi8(15), weights = _mm256_set1_epi16(0x1001);
    UNROLL for (uint32_t lane = 0; lane < LANES; lane += 2) {
        __m256i a = _mm256_loadu_si256((const void *)(rows[lane] + first));
        __m256i b = _mm256_loadu_si256((const void *)(rows[lane + 1] + first));
        a = _mm256_maddubs_epi16(_mm256_shuffle_epi8(_mm256_and_si256(a, low), order), weights);
        b = _mm256_maddubs_epi16(_mm256_shuffle_epi8(_mm256_and_si256(b, low), order), weights);
        __m256i both = _mm256_packus_epi16(a, b);
        unsigned char *to = out + (size_t)lane * ROW_BYTES;
        _mm_storeu_si128((void *)to, _mm256_castsi256_si128(both));
        _mm_storeu_si128((void *)(to + HALF_BYTES), _mm256_extracti128_si256(both, 1));
    }
}

// Transposes the pairs of a half: 8 lines of 16 outputs.
static ALWAYS_INLINE void pack_8bit(const unsigned char *const rows[LANES], size_t first,
                                    unsigned char *out) {
    __m256i line[8], t[8];
    UNROLL for (int i = 0; i < 8; i++) line[i] = load_two(rows[i] + first, rows[i + 8] + first);
    UNROLL for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi16(line[2 * i], line[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi16(line[2 * i], line[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) {
        line[i] = _mm256_unpacklo_epi32(t[i], t[i + 2]);
        line[i + 1] = _mm256_unpackhi_epi32(t[i], t[i + 2]);
        line[i + 2] = _mm256_unpacklo_epi32(t[i + 1], t[i + 3]);
        line[i + 3] = _mm256_unpackhi_epi32(t[i + 1], t[i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        unsigned char *to = out + (size_t)i * 2 * PACKED_CHUNK;
        __m256i even = _mm256_unpacklo_epi64(line[i], line[i + 4]);
        __m256i odd = _mm256_unpackhi_epi64(line[i], line[i + 4]);
        _mm256_storeu_si256((void *)to, even);
        _mm256_storeu_si256((void *)(to + PACKED_CHUNK), odd);
    }
}

void avx2_pack_codes(const unsigned char *const rows[LANES], size_t first, uint32_t bits,
                     unsigned char *out) {
    if (bits == 4) {
        pack_4bit(rows, first, out);
        return;
    }
    pack_8bit(rows, first, out);
    pack_8bit(rows, first + PACKED_HALF, out + PACKED_HALF * PACKED_LANES);
}

// Transposes 8 numbers of rows `row` to row + 7.
static ALWAYS_INLINE void pack_8_rows(const float *const rows[LANES], uint32_t row, size_t first,
                                      float *out) {
    __m256 line[8], t[8];
    // Numbers 0 to 3 of rows i and i + 4, and numbers 4 to 7.
    UNROLL for (uint32_t i = 0; i < 4; i++) {
        const float *low = rows[row + i] + first, *high = rows[row + i + 4] + first;
        line[i] = _mm256_set_m128(_mm_loadu_ps(high), _mm_loadu_ps(low));
        line[i + 4] = _mm256_set_m128(_mm_loadu_ps(high + 4), _mm_loadu_ps(low + 4));
    }
    UNROLL for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(line[i], line[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(line[i], line[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i++, out += LANES) {
        int at = i / 4 * 4 + i / 2 % 2;
        __m256d low = _mm256_castps_pd(t[at]), high = _mm256_castps_pd(t[at + 2]);
        __m256d number = i % 2 ? _mm256_unpackhi_pd(low, high) : _mm256_unpacklo_pd(low, high);
        _mm256_storeu_ps(out, _mm256_castpd_ps(number));
    }
}

void avx2_pack_numbers(const float *const rows[LANES], size_t first,
                       float out[PACKED_NUMBERS][LANES]) {
    pack_8_rows(rows, 0, first, out[0]);
    pack_8_rows(rows, 8, first, out[0] + 8);
}
