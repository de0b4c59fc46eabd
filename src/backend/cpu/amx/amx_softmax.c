/* The online softmax between the two tile products of amx_attention.c. Exponentials are rounded to
 * bf16, so a short polynomial is enough.
 *
 * A row's maximum follows its largest score only when that is more than SLACK above it.
 * Exponentials may then be up to e^SLACK, which float and bf16 hold as well as smaller numbers. So
 * sums and acc are seldom scaled. All depends on the row alone. */
#include "backend/cpu/amx/amx_attention.h"

#define SLACK 8.0f
#define LOG2_E 0x1.715476p+0f

// 2^x within 9e-5, a twentieth of what rounding to bf16 adds. Below -100 it is 2^-100: that is as
// good as 0 and never subnormal. NaN gives NaN.
static ALWAYS_INLINE __m512 exp2_short(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-100.0f), x); // the second operand if one is NaN
    __m512 part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF); // x - floor(x)
    __m512 p = _mm512_set1_ps(0x1.3baaa6p-4f);
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0x1.d2378ap-3f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(0x1.63e658p-1f));
    p = _mm512_fmadd_ps(p, part, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, x);
}

// Lane 4 i + j becomes the largest number of rows[4 i + j].
static ALWAYS_INLINE __m512 largest_of(const __m512 rows[LANES]) {
    __m512 quarter[4], half[2];
    UNROLL for (int j = 0; j < 4; j++) {
        __m512 a = rows[j], b = rows[4 + j], c = rows[8 + j], d = rows[12 + j];
        __m512 ab =
            _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
        __m512 cd =
            _mm512_max_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
        quarter[j] =
            _mm512_max_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    }
    UNROLL for (int j = 0; j < 2; j++) {
        __m512 a = quarter[2 * j], b = quarter[2 * j + 1];
        half[j] = _mm512_max_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
    }
    return _mm512_max_ps(_mm512_shuffle_ps(half[0], half[1], 0x88),
                         _mm512_shuffle_ps(half[0], half[1], 0xdd));
}

// How many positions before `count` are not before `position`.
static ALWAYS_INLINE uint32_t count_from(uint32_t position, uint32_t count) {
    return count > position ? count - position : 0;
}

// The largest scores that a row sees, in any lanes.
static ALWAYS_INLINE __m512 row_top(const float *scores, uint32_t chunks, uint32_t hidden,
                                    uint32_t visible) {
    __m512 top = _mm512_set1_ps(-__builtin_inff());
    for (uint32_t c = 0; c < chunks; c++, scores += LANES) {
        __mmask16 mask = avx512_first_lanes(count_from(c * LANES, visible));
        mask &= (__mmask16)~avx512_first_lanes(count_from(c * LANES, hidden));
        top = _mm512_mask_max_ps(top, mask, top, _mm512_loadu_ps(scores));
    }
    return top;
}

static ALWAYS_INLINE __m512 full_row_top(const float *scores) {
    __m512 top = _mm512_loadu_ps(scores);
    UNROLL for (uint32_t c = 1; c < AMX_SPAN / LANES; c++) {
        top = _mm512_max_ps(top, _mm512_loadu_ps(scores + (size_t)c * LANES));
    }
    return top;
}

// Scales a row's sum and acc to the new maximum.
static void shrink_row(const struct attention_tile *tile, uint32_t row, float shrink) {
    avx512_scale(tile->sum + (size_t)row * ATTENTION_SUMS, ATTENTION_SUMS, shrink);
    avx512_scale(tile->acc + (size_t)row * tile->head_dim, tile->head_dim, shrink);
}

// Raises the maxima of 16 rows, whose largest scores are in `top`. Rows from `rows` on are no rows.
static ALWAYS_INLINE void raise_maxima(const struct attention_tile *tile, uint32_t row,
                                       uint32_t rows, __m512 top) {
    __mmask16 mask = avx512_first_lanes(rows);
    __m512 old = _mm512_maskz_loadu_ps(mask, tile->max + row);
    mask &= _mm512_cmp_ps_mask(top, _mm512_add_ps(old, _mm512_set1_ps(SLACK)), _CMP_GT_OQ);
    if (!mask) return;
    float before[LANES], shrink[LANES];
    __m512 log2_e = _mm512_set1_ps(LOG2_E);
    __m512 change = _mm512_mul_ps(_mm512_sub_ps(old, top), log2_e);
    _mm512_storeu_ps(before, old);
    _mm512_storeu_ps(shrink, exp2_short(change));
    _mm512_mask_storeu_ps(tile->max + row, mask, top);
    for (uint32_t i = 0; i < rows; i++) {
        // Before its first span a row's sum and acc are 0.
        if (mask >> i & 1 && before[i] != -__builtin_inff()) shrink_row(tile, row + i, shrink[i]);
    }
}

// The exponentials of a pair of chunks of one row.
static ALWAYS_INLINE __m512i pair_of(const float *scores, __m512 bias) {
    const __m512 log2_e = _mm512_set1_ps(LOG2_E);
    __m512 first = _mm512_fmsub_ps(_mm512_loadu_ps(scores), log2_e, bias);
    __m512 second = _mm512_fmsub_ps(_mm512_loadu_ps(scores + LANES), log2_e, bias);
    return (__m512i)_mm512_cvtne2ps_pbh(exp2_short(second), exp2_short(first));
}

// The sum adds exponentials as rounded, so that the weights of the values add up to 1.
static ALWAYS_INLINE __m512 add_pair(__m512 sum, __m512i pair) {
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    return _mm512_dpbf16_ps(sum, (__m512bh)pair, (__m512bh)ones);
}

// The first `count` of 32 lanes.
static ALWAYS_INLINE __mmask32 first_of_pair(uint32_t count) {
    return count < 32 ? (1u << count) - 1 : ~0u;
}

static ALWAYS_INLINE void finish_row(const struct attention_tile *tile, uint32_t row,
                                     uint32_t chunks, bool is_full) {
    float *scores = tile->scores + (size_t)row * AMX_SPAN;
    float *sums = tile->sum + (size_t)row * ATTENTION_SUMS;
    const __m512 bias = _mm512_mul_ps(_mm512_set1_ps(tile->max[row]), _mm512_set1_ps(LOG2_E));
    __m512 sum = _mm512_loadu_ps(sums);
    if (is_full) {
        UNROLL for (uint32_t c = 0; c < AMX_SPAN / LANES; c += 2) {
            __m512i pair = pair_of(scores + (size_t)c * LANES, bias);
            // Overwrites scores that have been read.
            _mm512_storeu_si512(scores + (size_t)c / 2 * LANES, pair);
            sum = add_pair(sum, pair);
        }
    } else {
        for (uint32_t c = 0; c < chunks; c += 2) {
            __mmask32 mask = first_of_pair(count_from(c * LANES, tile->visible[row])) &
                             ~first_of_pair(count_from(c * LANES, tile->hidden[row]));
            __m512i pair = pair_of(scores + (size_t)c * LANES, bias);
            pair = _mm512_maskz_mov_epi16(mask, pair);
            _mm512_storeu_si512(scores + (size_t)c / 2 * LANES, pair);
            sum = add_pair(sum, pair);
        }
    }
    _mm512_storeu_ps(sums, sum);
}

// The largest scores of 16 rows from `row` on. Lanes of rows that are not there are -inf.
static ALWAYS_INLINE __m512 find_tops(const struct attention_tile *tile, uint32_t row,
                                      uint32_t rows, uint32_t chunks, bool is_full) {
    const float *scores = tile->scores + (size_t)row * AMX_SPAN;
    __m512 tops[LANES];
    if (is_full && rows == LANES) {
        UNROLL for (uint32_t i = 0; i < LANES; i++) tops[i] = full_row_top(scores + i * AMX_SPAN);
        return largest_of(tops);
    }
    for (uint32_t i = 0; i < LANES; i++) tops[i] = _mm512_set1_ps(-__builtin_inff());
    for (uint32_t i = 0; i < rows; i++, scores += AMX_SPAN) {
        tops[i] = is_full ? full_row_top(scores)
                          : row_top(scores, chunks, tile->hidden[row + i], tile->visible[row + i]);
    }
    return largest_of(tops);
}

void amx_softmax(const struct attention_tile *tile, uint32_t chunks) {
    for (uint32_t row = 0; row < tile->rows; row += LANES) {
        uint32_t left = tile->rows - row, rows = left < LANES ? left : LANES;
        // Then every row sees the whole span.
        bool is_full = tile->visible[row] == AMX_SPAN && tile->hidden[row + rows - 1] == 0;
        raise_maxima(tile, row, rows, find_tops(tile, row, rows, chunks, is_full));
        for (uint32_t i = 0; i < rows; i++) {
            if (is_full) {
                finish_row(tile, row + i, chunks, true);
            } else {
                finish_row(tile, row + i, chunks, false);
            }
        }
    }
}
