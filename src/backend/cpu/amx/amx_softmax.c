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

// The scores from position `at` of the span on, times the scales of their keys.
static ALWAYS_INLINE __m512 load_scores(const float *scores, const struct amx_scales *scales,
                                        uint32_t at) {
    __m512 value = _mm512_loadu_ps(scores + at);
    return scales ? _mm512_mul_ps(value, _mm512_loadu_ps(scales->keys + at)) : value;
}

// Which of 16 positions from `at` on are hidden .. visible - 1.
static ALWAYS_INLINE __mmask16 seen_from(uint32_t at, uint32_t hidden, uint32_t visible) {
    return (__mmask16)(avx512_first_lanes(visible > at ? visible - at : 0) &
                       ~avx512_first_lanes(hidden > at ? hidden - at : 0));
}

// The largest scores that a row sees, in any lanes.
static ALWAYS_INLINE __m512 row_top(const float *scores, const struct amx_scales *scales,
                                    uint32_t chunks, uint32_t hidden, uint32_t visible) {
    __m512 top = _mm512_set1_ps(-__builtin_inff());
    for (uint32_t at = 0; at < chunks * LANES; at += LANES) {
        __mmask16 mask = seen_from(at, hidden, visible);
        top = _mm512_mask_max_ps(top, mask, top, load_scores(scores, scales, at));
    }
    return top;
}

static ALWAYS_INLINE __m512 full_row_top(const float *scores, const struct amx_scales *scales) {
    __m512 top = load_scores(scores, scales, 0);
    UNROLL for (uint32_t at = LANES; at < AMX_SPAN; at += LANES) {
        top = _mm512_max_ps(top, load_scores(scores, scales, at));
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

static ALWAYS_INLINE __m512 add_pairs(__m512 sum, __m512i pairs, __m512i factors) {
    return _mm512_dpbf16_ps(sum, (__m512bh)pairs, (__m512bh)factors);
}

// Replaces a row's scores at 32 positions from `at` on by the exponentials of those in the mask,
// and zeros. Returns `sum` with them added as rounded, so that the weights of the values add up to
// 1: the exponentials that are multiplied by scales are divided by them.
static ALWAYS_INLINE __m512 finish_pair(float *scores, const struct amx_scales *scales, uint32_t at,
                                        __mmask32 mask, __m512 bias, __m512 sum) {
    const __m512 log2_e = _mm512_set1_ps(LOG2_E);
    __m512 first = _mm512_fmsub_ps(load_scores(scores, scales, at), log2_e, bias);
    __m512 second = _mm512_fmsub_ps(load_scores(scores, scales, at + LANES), log2_e, bias);
    first = exp2_short(first);
    second = exp2_short(second);
    if (scales) {
        first = _mm512_mul_ps(first, _mm512_loadu_ps(scales->values + at));
        second = _mm512_mul_ps(second, _mm512_loadu_ps(scales->values + at + LANES));
    }
    __m512i pair = _mm512_maskz_mov_epi16(mask, (__m512i)_mm512_cvtne2ps_pbh(second, first));
    _mm512_storeu_si512(scores + at / 2, pair); // over scores that have been read
    if (!scales) return add_pairs(sum, pair, _mm512_set1_epi16(0x3f80)); // ones
    // Scales out of the mask may be NaN.
    __m512i inverse = _mm512_maskz_mov_epi16(mask, _mm512_loadu_si512(scales->inverses + at));
    __m512i rest = _mm512_maskz_mov_epi16(mask, _mm512_loadu_si512(scales->rests + at));
    return add_pairs(add_pairs(sum, pair, inverse), pair, rest);
}

static ALWAYS_INLINE void finish_row(const struct attention_tile *tile, uint32_t row,
                                     uint32_t chunks, const struct amx_scales *scales,
                                     bool is_full) {
    float *scores = tile->scores + (size_t)row * AMX_SPAN;
    float *sums = tile->sum + (size_t)row * ATTENTION_SUMS;
    const __m512 bias = _mm512_mul_ps(_mm512_set1_ps(tile->max[row]), _mm512_set1_ps(LOG2_E));
    __m512 sum = _mm512_loadu_ps(sums);
    if (is_full) {
        UNROLL for (uint32_t at = 0; at < AMX_SPAN; at += 2 * LANES) {
            sum = finish_pair(scores, scales, at, ~0u, bias, sum);
        }
    } else {
        uint32_t hidden = tile->hidden[row], visible = tile->visible[row];
        for (uint32_t at = 0; at < chunks * LANES; at += 2 * LANES) {
            __mmask32 second = seen_from(at + LANES, hidden, visible);
            __mmask32 mask = seen_from(at, hidden, visible) | second << LANES;
            sum = finish_pair(scores, scales, at, mask, bias, sum);
        }
    }
    _mm512_storeu_ps(sums, sum);
}

// The largest scores of 16 rows from `row` on. Lanes of rows that are not there are -inf.
static ALWAYS_INLINE __m512 find_tops(const struct attention_tile *tile, uint32_t row,
                                      uint32_t rows, uint32_t chunks,
                                      const struct amx_scales *scales, bool is_full) {
    const float *scores = tile->scores + (size_t)row * AMX_SPAN;
    __m512 tops[LANES];
    if (is_full && rows == LANES) {
        UNROLL for (uint32_t i = 0; i < LANES; i++) {
            tops[i] = full_row_top(scores + i * AMX_SPAN, scales);
        }
        return largest_of(tops);
    }
    for (uint32_t i = 0; i < LANES; i++) tops[i] = _mm512_set1_ps(-__builtin_inff());
    for (uint32_t i = 0; i < rows; i++, scores += AMX_SPAN) {
        tops[i] = is_full ? full_row_top(scores, scales)
                          : row_top(scores, scales, chunks, tile->hidden[row + i],
                                    tile->visible[row + i]);
    }
    return largest_of(tops);
}

// 16 rows or less from `row` on.
static ALWAYS_INLINE void softmax_rows(const struct attention_tile *tile, uint32_t row,
                                       uint32_t chunks, const struct amx_scales *scales) {
    uint32_t left = tile->rows - row, rows = left < LANES ? left : LANES;
    // Then every row sees the whole span.
    bool is_full = tile->visible[row] == AMX_SPAN && tile->hidden[row + rows - 1] == 0;
    raise_maxima(tile, row, rows, find_tops(tile, row, rows, chunks, scales, is_full));
    for (uint32_t i = row; i < row + rows; i++) {
        if (is_full) {
            finish_row(tile, i, chunks, scales, true);
        } else {
            finish_row(tile, i, chunks, scales, false);
        }
    }
}

void amx_softmax(const struct attention_tile *tile, uint32_t chunks,
                 const struct amx_scales *scales) {
    for (uint32_t row = 0; row < tile->rows; row += LANES) {
        if (scales) {
            softmax_rows(tile, row, chunks, scales);
        } else {
            softmax_rows(tile, row, chunks, NULL);
        }
    }
}
