/* Packed weights times x as 16-bit integers (avx2_fixed.h), by VPMADDUBSW and VPMADDWD. A lane's
 * sums of quads are two of 16 bits: of codes up to 31 they cannot overflow within a chunk. Larger
 * values of a table have signs, and each of their products becomes 32 bits at once. */
#include "backend/cpu/avx2/avx2_fixed.h"

static ALWAYS_INLINE __m256i add_quads(__m256i sums, __m256i codes, __m256i x) {
    return _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, x));
}

// Two products are at most 2 * 128 * 127, which fits.
static ALWAYS_INLINE __m256i add_signed_quads(__m256i sums, __m256i weights, __m256i x,
                                              __m256i size) {
    __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(weights, x));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static ALWAYS_INLINE __m256i join(__m256i high, __m256i low) {
    return _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(256)),
                            _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
}

static ALWAYS_INLINE __m256i add_pairs(__m256i sums, __m256i weights, __m256i x) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(weights, x));
}

static const struct avx2_fixed_products products = {add_quads, add_signed_quads, join, add_pairs};

AVX2_FIXED_LOOPS(eight_bits, &products, false, TABLE_NONE)
AVX2_FIXED_LOOPS(plain, &products, true, TABLE_NONE)
AVX2_FIXED_LOOPS(unsigned_table, &products, true, TABLE_UNSIGNED)
AVX2_FIXED_LOOPS(signed_table, &products, true, TABLE_SIGNED)

void avx2_linear_fixed(const struct linear_item *item) {
    static avx2_fixed_loop *const *const tables[] = {
        [TABLE_NONE] = plain, [TABLE_UNSIGNED] = unsigned_table, [TABLE_SIGNED] = signed_table};
    avx2_fixed_run(&products, eight_bits, tables, item);
}

// 16 integers, as 16-bit ones or as their high and low bytes.
static ALWAYS_INLINE void store_half(__m256i a, __m256i b, uint32_t bits, unsigned char *out) {
    if (bits == 8) {
        __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        _mm256_storeu_si256((void *)out, words);
        return;
    }
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
    const __m256i half = _mm256_set1_epi32(128);
    __m256i high_a = _mm256_srai_epi32(_mm256_add_epi32(a, half), 8);
    __m256i high_b = _mm256_srai_epi32(_mm256_add_epi32(b, half), 8);
    __m256i low_a = _mm256_sub_epi32(a, _mm256_slli_epi32(high_a, 8));
    __m256i low_b = _mm256_sub_epi32(b, _mm256_slli_epi32(high_b, 8));
    // In each half of the register: four numbers of a and four of b, high bytes and then low ones.
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(high_a, high_b), _mm256_packs_epi32(low_a, low_b));
    bytes = _mm256_permute4x64_epi64(bytes, 0xd8); // all high bytes, then all low ones
    _mm256_storeu_si256((void *)out, _mm256_shuffle_epi8(bytes, order));
}

static ALWAYS_INLINE float largest_of(__m256 x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

static ALWAYS_INLINE float sum_of(__m256 x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static ALWAYS_INLINE void narrow_chunk(const float *x, uint32_t bits, unsigned char *out,
                                       struct fixed_head *head) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 part[4], largest = _mm256_setzero_ps(), nothing = _mm256_setzero_ps();
    UNROLL for (int i = 0; i < 4; i++) {
        part[i] = _mm256_loadu_ps(x + (size_t)i * HALF);
        largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, part[i]));
        // Zero, or NaN if a value is not finite.
        nothing = _mm256_sub_ps(nothing, _mm256_sub_ps(part[i], part[i]));
    }
    float most = largest_of(largest);
    head->scale = most / FIXED_LARGEST + sum_of(nothing);
    float inverse = most > 0 ? FIXED_LARGEST / most : 0;
    // Beyond float's range for the smallest numbers, which are zeros then.
    if (!(inverse < 0x1p120f)) inverse = 0;
    UNROLL for (int half = 0; half < 2; half++) {
        const __m256 factor = _mm256_set1_ps(inverse);
        __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(part[2 * half], factor));
        __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(part[2 * half + 1], factor));
        store_half(a, b, bits, out + (size_t)half * FIXED_CHUNK_BYTES / 2);
        head->totals[half] = sum_of(_mm256_cvtepi32_ps(_mm256_add_epi32(a, b)));
    }
    head->total = head->totals[0] + head->totals[1];
}

void avx2_narrow_fixed(const float *x, uint32_t count, uint32_t bits, unsigned char *out,
                       size_t stride) {
    uint32_t chunks = (count + PACKED_CHUNK - 1) / PACKED_CHUNK;
    for (uint32_t c = 0; c < chunks; c++, x += PACKED_CHUNK, count -= PACKED_CHUNK) {
        float last[PACKED_CHUNK] = {0};
        struct fixed_head head;
        bool is_whole = count >= PACKED_CHUNK;
        if (!is_whole) memcpy(last, x, count * sizeof *last);
        narrow_chunk(is_whole ? x : last, bits, out + c * stride, &head);
        memcpy(out + fixed_head_at(chunks, c, stride), &head, sizeof head);
        if (count <= PACKED_CHUNK) break;
    }
}
