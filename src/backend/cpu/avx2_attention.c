/* One span of 64 positions for up to 6 query rows: scores with 8 positions in a register, online
 * softmax, values with 8 dimensions in a register. As in avx2_linear.c, rows x halves accumulators
 * stay in registers and every score and every output dimension is one chain in index order. */
#include "backend/cpu/avx2.h"
#include "base/compiler.h"

enum { AVX2_ROWS_MAX = 6, HALVES_MAX = 8, SPAN_HALVES = ATTENTION_SPAN / HALF };

// Scores of all rows against the positions of `halves` registers from `half` on.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t half,
                                      uint32_t rows, uint32_t halves) {
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    const float *k[HALVES_MAX];
    UNROLL for (uint32_t h = 0; h < halves; h++) {
        k[h] = tile->k[(half + h) / 2] + (half + h) % 2 * HALF;
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][h] = _mm256_setzero_ps();
    }
    const float *q = tile->q;
    for (size_t d = 0; d < tile->head_dim; d++, q += rows) {
        __m256 key[HALVES_MAX];
        UNROLL for (uint32_t h = 0; h < halves; h++) key[h] = _mm256_loadu_ps(k[h] + d * LANES);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m256 q_r = _mm256_set1_ps(q[r]);
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                acc[r][h] = _mm256_fmadd_ps(q_r, key[h], acc[r][h]);
            }
        }
    }
    float *scores = tile->scores + (size_t)half * HALF;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            _mm256_storeu_ps(scores + r * ATTENTION_SPAN + h * HALF, acc[r][h]);
        }
    }
}

// `chunks` of 16 positions, `most` halves at a time.
static ALWAYS_INLINE void score_rows(const struct attention_tile *tile, uint32_t chunks,
                                     uint32_t rows, uint32_t most) {
    uint32_t half = 0, count = chunks * 2;
    for (; count - half >= most; half += most) score_group(tile, half, rows, most);
    if (most > 4 && count - half >= 4) score_group(tile, half, rows, 4), half += 4;
    if (most > 2 && count - half >= 2) score_group(tile, half, rows, 2);
}

static void score_span(const struct attention_tile *tile, uint32_t chunks) {
    switch (tile->rows) {
    case 1:
        score_rows(tile, chunks, 1, 8);
        break;
    case 2:
        score_rows(tile, chunks, 2, 4);
        break;
    case 3:
        score_rows(tile, chunks, 3, 4);
        break;
    case 4:
        score_rows(tile, chunks, 4, 2);
        break;
    case 5:
        score_rows(tile, chunks, 5, 2);
        break;
    case 6:
        score_rows(tile, chunks, 6, 2);
        break;
    }
}

// Scores become exponentials; the row's maximum, sum and gathered values move on with them.
static void softmax_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
    __m256 score[SPAN_HALVES];
    __m256 top = lowest;
    UNROLL for (uint32_t h = 0; h < SPAN_HALVES; h++) {
        uint32_t left = visible > h * HALF ? visible - h * HALF : 0;
        __m256 mask = _mm256_castsi256_ps(avx2_tail_mask(left));
        score[h] = _mm256_blendv_ps(lowest, _mm256_loadu_ps(scores + (size_t)h * HALF), mask);
        top = _mm256_max_ps(top, score[h]);
    }
    float before = tile->max[row];
    float span_max = avx2_reduce_max(top);
    float largest = span_max > before ? span_max : before;
    __m256 shrink = avx2_exp(_mm256_set1_ps(before - largest));
    float *sums = tile->sum + (size_t)row * LANES;
    __m256 sum[2] = {_mm256_mul_ps(_mm256_loadu_ps(sums), shrink),
                     _mm256_mul_ps(_mm256_loadu_ps(sums + HALF), shrink)};
    UNROLL for (uint32_t h = 0; h < SPAN_HALVES; h++) {
        score[h] = avx2_exp(_mm256_sub_ps(score[h], _mm256_set1_ps(largest)));
        sum[h % 2] = _mm256_add_ps(sum[h % 2], score[h]);
        _mm256_storeu_ps(scores + (size_t)h * HALF, score[h]);
    }
    _mm256_storeu_ps(sums, sum[0]);
    _mm256_storeu_ps(sums + HALF, sum[1]);
    tile->max[row] = largest;
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += HALF) {
        _mm256_storeu_ps(acc + d, _mm256_mul_ps(_mm256_loadu_ps(acc + d), shrink));
    }
}

// acc += p V for `rows` rows from `row` on, `halves` x 8 dimensions from `dim` on, the span's first
// `visible` positions.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, uint32_t row, uint32_t dim,
                                      uint32_t visible, uint32_t rows, uint32_t halves) {
    size_t head_dim = tile->head_dim;
    const float *p = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *out = tile->acc + row * head_dim + dim;
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            acc[r][h] = _mm256_loadu_ps(out + r * head_dim + (size_t)h * HALF);
        }
    }
    for (uint32_t begin = 0; begin < visible; begin += LANES, p += LANES) {
        uint32_t count = visible - begin < LANES ? visible - begin : LANES;
        const float *v = tile->v[begin / LANES] + dim;
        for (uint32_t j = 0; j < count; j++, v += head_dim) {
            __m256 value[HALVES_MAX];
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                value[h] = _mm256_loadu_ps(v + (size_t)h * HALF);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m256 p_r = _mm256_set1_ps(p[r * ATTENTION_SPAN + j]);
                UNROLL for (uint32_t h = 0; h < halves; h++) {
                    acc[r][h] = _mm256_fmadd_ps(p_r, value[h], acc[r][h]);
                }
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            _mm256_storeu_ps(out + r * head_dim + (size_t)h * HALF, acc[r][h]);
        }
    }
}

static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, uint32_t row,
                                     uint32_t visible, uint32_t rows, uint32_t most) {
    uint32_t dim = 0, halves = tile->head_dim / HALF; // even
    for (; halves >= most; halves -= most, dim += most * HALF) {
        value_group(tile, row, dim, visible, rows, most);
    }
    if (most > 4 && halves >= 4) {
        value_group(tile, row, dim, visible, rows, 4);
        halves -= 4, dim += 4 * HALF;
    }
    if (most > 2 && halves) value_group(tile, row, dim, visible, rows, 2);
}

static void value_span(const struct attention_tile *tile) {
    switch (tile->rows) {
    case 1:
        value_rows(tile, 0, ATTENTION_SPAN, 1, 8);
        break;
    case 2:
        value_rows(tile, 0, ATTENTION_SPAN, 2, 4);
        break;
    case 3:
        value_rows(tile, 0, ATTENTION_SPAN, 3, 4);
        break;
    case 4:
        value_rows(tile, 0, ATTENTION_SPAN, 4, 2);
        break;
    case 5:
        value_rows(tile, 0, ATTENTION_SPAN, 5, 2);
        break;
    case 6:
        value_rows(tile, 0, ATTENTION_SPAN, 6, 2);
        break;
    }
}

void avx2_attention(const struct attention_tile *tile) {
    uint32_t least = ATTENTION_SPAN, most = 0;
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t visible = tile->visible[row];
        if (visible < least) least = visible;
        if (visible > most) most = visible;
    }
    score_span(tile, (most + LANES - 1) / LANES);
    for (uint32_t row = 0; row < tile->rows; row++) {
        if (tile->visible[row]) softmax_row(tile, row);
    }
    if (least == ATTENTION_SPAN) {
        value_span(tile);
        return;
    }
    // Values behind a row's own position must not even be multiplied by 0: they may be no numbers.
    for (uint32_t row = 0; row < tile->rows; row++) {
        if (tile->visible[row]) value_rows(tile, row, tile->visible[row], 1, 8);
    }
}
