/* One span of 64 positions for up to 12 query rows: scores with 16 positions in lanes, online
 * softmax, values with 16 dimensions in lanes. As in avx512_linear.c, rows x vectors accumulators
 * stay in registers and every score and every output dimension is one chain in index order. */
#include "backend/cpu/avx512.h"
#include "base/compiler.h"

// Scores of all rows against `chunks` K chunks from `chunk` on.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t chunk,
                                      uint32_t rows, uint32_t chunks) {
    __m512 acc[PANEL_ROWS_MAX][ATTENTION_CHUNKS];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t c = 0; c < chunks; c++) acc[r][c] = _mm512_setzero_ps();
    }
    const float *q = tile->q;
    for (size_t d = 0; d < tile->head_dim; d++, q += rows) {
        __m512 k[ATTENTION_CHUNKS];
        UNROLL for (uint32_t c = 0; c < chunks; c++) {
            k[c] = _mm512_loadu_ps(tile->k[chunk + c] + d * LANES);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512 q_r = _mm512_set1_ps(q[r]);
            UNROLL for (uint32_t c = 0; c < chunks; c++) {
                acc[r][c] = _mm512_fmadd_ps(q_r, k[c], acc[r][c]);
            }
        }
    }
    float *scores = tile->scores + (size_t)chunk * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t c = 0; c < chunks; c++) {
            _mm512_storeu_ps(scores + r * ATTENTION_SPAN + c * LANES, acc[r][c]);
        }
    }
}

static ALWAYS_INLINE void score_rows(const struct attention_tile *tile, uint32_t chunks,
                                     uint32_t rows, uint32_t most) {
    uint32_t chunk = 0;
    for (; chunks - chunk >= most; chunk += most) score_group(tile, chunk, rows, most);
    if (most > 2 && chunks - chunk >= 2) score_group(tile, chunk, rows, 2), chunk += 2;
    if (chunk < chunks) score_group(tile, chunk, rows, 1);
}

static void score_span(const struct attention_tile *tile, uint32_t chunks) {
    switch (tile->rows) {
    case 1:
        score_rows(tile, chunks, 1, 4);
        break;
    case 2:
        score_rows(tile, chunks, 2, 4);
        break;
    case 3:
        score_rows(tile, chunks, 3, 4);
        break;
    case 4:
        score_rows(tile, chunks, 4, 4);
        break;
    case 5:
        score_rows(tile, chunks, 5, 4);
        break;
    case 6:
        score_rows(tile, chunks, 6, 4);
        break;
    case 7:
        score_rows(tile, chunks, 7, 2);
        break;
    case 8:
        score_rows(tile, chunks, 8, 2);
        break;
    case 9:
        score_rows(tile, chunks, 9, 2);
        break;
    case 10:
        score_rows(tile, chunks, 10, 2);
        break;
    case 11:
        score_rows(tile, chunks, 11, 2);
        break;
    case 12:
        score_rows(tile, chunks, 12, 2);
        break;
    }
}

// Scores become exponentials; the row's maximum, sum and gathered values move on with them.
static void softmax_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 score[ATTENTION_CHUNKS];
    __m512 top = lowest;
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        uint32_t left = visible > c * LANES ? visible - c * LANES : 0;
        __mmask16 mask = left >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
        score[c] = _mm512_mask_loadu_ps(lowest, mask, scores + (size_t)c * LANES);
        top = _mm512_max_ps(top, score[c]);
    }
    float before = tile->max[row];
    float span_max = _mm512_reduce_max_ps(top);
    float largest = span_max > before ? span_max : before;
    __m512 shrink = avx512_exp(_mm512_set1_ps(before - largest));
    __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(tile->sum + (size_t)row * LANES), shrink);
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        score[c] = avx512_exp(_mm512_sub_ps(score[c], _mm512_set1_ps(largest)));
        sum = _mm512_add_ps(sum, score[c]);
        _mm512_storeu_ps(scores + (size_t)c * LANES, score[c]);
    }
    _mm512_storeu_ps(tile->sum + (size_t)row * LANES, sum);
    tile->max[row] = largest;
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += LANES) {
        _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), shrink));
    }
}

// acc += p V for `rows` rows from `row` on, `vectors` x 16 dimensions from `dim` on, the span's
// first `visible` positions.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, uint32_t row, uint32_t dim,
                                      uint32_t visible, uint32_t rows, uint32_t vectors) {
    size_t head_dim = tile->head_dim;
    const float *p = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *out = tile->acc + row * head_dim + dim;
    __m512 acc[PANEL_ROWS_MAX][8];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            acc[r][i] = _mm512_loadu_ps(out + r * head_dim + (size_t)i * LANES);
        }
    }
    for (uint32_t begin = 0; begin < visible; begin += LANES, p += LANES) {
        uint32_t count = visible - begin < LANES ? visible - begin : LANES;
        const float *v = tile->v[begin / LANES] + dim;
        for (uint32_t j = 0; j < count; j++, v += head_dim) {
            __m512 value[8];
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                value[i] = _mm512_loadu_ps(v + (size_t)i * LANES);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m512 p_r = _mm512_set1_ps(p[r * ATTENTION_SPAN + j]);
                UNROLL for (uint32_t i = 0; i < vectors; i++) {
                    acc[r][i] = _mm512_fmadd_ps(p_r, value[i], acc[r][i]);
                }
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            _mm512_storeu_ps(out + r * head_dim + (size_t)i * LANES, acc[r][i]);
        }
    }
}

static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, uint32_t row,
                                     uint32_t visible, uint32_t rows, uint32_t most) {
    uint32_t dim = 0, vectors = tile->head_dim / LANES;
    for (; vectors >= most; vectors -= most, dim += most * LANES) {
        value_group(tile, row, dim, visible, rows, most);
    }
    if (most > 4 && vectors >= 4) {
        value_group(tile, row, dim, visible, rows, 4);
        vectors -= 4, dim += 4 * LANES;
    }
    if (most > 2 && vectors >= 2) {
        value_group(tile, row, dim, visible, rows, 2);
        vectors -= 2, dim += 2 * LANES;
    }
    if (vectors) value_group(tile, row, dim, visible, rows, 1);
}

static void value_span(const struct attention_tile *tile) {
    switch (tile->rows) {
    case 1:
        value_rows(tile, 0, ATTENTION_SPAN, 1, 8);
        break;
    case 2:
        value_rows(tile, 0, ATTENTION_SPAN, 2, 8);
        break;
    case 3:
        value_rows(tile, 0, ATTENTION_SPAN, 3, 4);
        break;
    case 4:
        value_rows(tile, 0, ATTENTION_SPAN, 4, 4);
        break;
    case 5:
        value_rows(tile, 0, ATTENTION_SPAN, 5, 4);
        break;
    case 6:
        value_rows(tile, 0, ATTENTION_SPAN, 6, 4);
        break;
    case 7:
        value_rows(tile, 0, ATTENTION_SPAN, 7, 2);
        break;
    case 8:
        value_rows(tile, 0, ATTENTION_SPAN, 8, 2);
        break;
    case 9:
        value_rows(tile, 0, ATTENTION_SPAN, 9, 2);
        break;
    case 10:
        value_rows(tile, 0, ATTENTION_SPAN, 10, 2);
        break;
    case 11:
        value_rows(tile, 0, ATTENTION_SPAN, 11, 2);
        break;
    case 12:
        value_rows(tile, 0, ATTENTION_SPAN, 12, 2);
        break;
    }
}

void avx512_attention(const struct attention_tile *tile) {
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
