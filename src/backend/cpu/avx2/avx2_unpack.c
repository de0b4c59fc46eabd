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
