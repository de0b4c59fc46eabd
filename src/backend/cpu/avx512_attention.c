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
            // A decode reads everything once from memory: K ahead, and V, which has as many lines.
            if (rows <= 4) {
                _mm_prefetch((const char *)(tile->k[chunk + c] + (d + 16) * LANES), _MM_HINT_T0);
                _mm_prefetch((const char *)(tile->v[chunk + c] + d * LANES), _MM_HINT_T0);
            }
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

// The row's largest score among those it sees; the others become -inf.
static float mask_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 top = lowest;
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        uint32_t left = visible > c * LANES ? visible - c * LANES : 0;
        __mmask16 mask = left >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
        __m512 score = _mm512_loadu_ps(scores + (size_t)c * LANES);
        score = _mm512_mask_mov_ps(lowest, mask, score);
        _mm512_storeu_ps(scores + (size_t)c * LANES, score);
        top = _mm512_max_ps(top, score);
    }
    return _mm512_reduce_max_ps(top);
}

// The row's scores become exponentials; its sum and gathered values shrink to the new maximum.
static void softmax_row(const struct attention_tile *tile, uint32_t row, float shrink) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m512 largest = _mm512_set1_ps(tile->max[row]);
    const __m512 factor = _mm512_set1_ps(shrink);
    __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(tile->sum + (size_t)row * LANES), factor);
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        __m512 score = _mm512_loadu_ps(scores + (size_t)c * LANES);
        score = avx512_exp(_mm512_sub_ps(score, largest));
        sum = _mm512_add_ps(sum, score);
        _mm512_storeu_ps(scores + (size_t)c * LANES, score);
    }
    _mm512_storeu_ps(tile->sum + (size_t)row * LANES, sum);
    if (shrink == 1.0f) return; // the maximum stays, as it mostly does
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += LANES) {
        _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), factor));
    }
}

static void softmax_span(const struct attention_tile *tile) {
    float before[LANES] = {0}, top[LANES] = {0}, shrink[LANES];
    for (uint32_t row = 0; row < tile->rows; row++) {
        before[row] = tile->max[row];
        top[row] = tile->visible[row] ? mask_row(tile, row) : before[row];
    }
    // All rows in the lanes of one register, as a row is a long chain of dependent steps.
    __m512 old = _mm512_loadu_ps(before);
    __m512 largest = _mm512_max_ps(_mm512_loadu_ps(top), old);
    _mm512_storeu_ps(top, largest);
    _mm512_storeu_ps(shrink, avx512_exp(_mm512_sub_ps(old, largest)));
    for (uint32_t row = 0; row < tile->rows; row++) {
        tile->max[row] = top[row];
        if (tile->visible[row]) softmax_row(tile, row, shrink[row]);
    }
}

// The positions and rows of a span that value_group is to add.
struct value_range {
    uint32_t row; // the first one
    uint32_t begin, end; // positions in the span
};

// acc += p V for `rows` rows and `vectors` x 16 dimensions from `dim` on.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, struct value_range range,
                                      uint32_t dim, uint32_t rows, uint32_t vectors) {
    size_t head_dim = tile->head_dim;
    const float *p = tile->scores + (size_t)range.row * ATTENTION_SPAN;
    float *out = tile->acc + range.row * head_dim + dim;
    __m512 acc[PANEL_ROWS_MAX][8];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            acc[r][i] = _mm512_loadu_ps(out + r * head_dim + (size_t)i * LANES);
        }
    }
    p += range.begin;
    for (uint32_t j = range.begin; j < range.end;) {
        uint32_t stop = (j / LANES + 1) * LANES < range.end ? (j / LANES + 1) * LANES : range.end;
        const float *v = tile->v[j / LANES] + j % LANES * head_dim + dim;
        for (; j < stop; j++, p++, v += head_dim) {
            __m512 value[8];
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                value[i] = _mm512_loadu_ps(v + (size_t)i * LANES);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m512 p_r = _mm512_set1_ps(p[r * ATTENTION_SPAN]);
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

// All dimensions in groups of `most` vectors, the rest in groups of 4 and 1.
static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, struct value_range range,
                                     uint32_t rows, uint32_t most) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * LANES; dim += most * LANES) {
        value_group(tile, range, dim, rows, most);
    }
    if (most > 4 && tile->head_dim - dim >= 4 * LANES) {
        value_group(tile, range, dim, rows, 4);
        dim += 4 * LANES;
    }
    for (; dim < tile->head_dim; dim += LANES) value_group(tile, range, dim, rows, 1);
}

// The span's first `count` positions for all rows.
static void value_span(const struct attention_tile *tile, uint32_t count) {
    struct value_range range = {0, 0, count};
    switch (tile->rows) {
    case 1:
        value_rows(tile, range, 1, 8);
        break;
    case 2:
        value_rows(tile, range, 2, 8);
        break;
    case 3:
        value_rows(tile, range, 3, 4);
        break;
    case 4:
        value_rows(tile, range, 4, 4);
        break;
    case 5:
        value_rows(tile, range, 5, 4);
        break;
    case 6:
        value_rows(tile, range, 6, 4);
        break;
    case 7:
        value_rows(tile, range, 7, 2);
        break;
    case 8:
        value_rows(tile, range, 8, 2);
        break;
    case 9:
        value_rows(tile, range, 9, 2);
        break;
    case 10:
        value_rows(tile, range, 10, 2);
        break;
    case 11:
        value_rows(tile, range, 11, 2);
        break;
    case 12:
        value_rows(tile, range, 12, 2);
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
    softmax_span(tile);
    if (least) value_span(tile, least);
    // The rest row by row: values behind a row's own position must not even be multiplied by 0, as
    // they may be no numbers.
    for (uint32_t row = 0; row < tile->rows; row++) {
        struct value_range range = {row, least, tile->visible[row]};
        if (range.begin < range.end) value_rows(tile, range, 1, 8);
    }
}
