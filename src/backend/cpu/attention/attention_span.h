/* The kernels of attention for one instruction set: a file includes this once, after the header of
 * its vectors, and gives the kernels their names. The header of vectors has
 *   vector                a register of VECTOR_LANES floats, a divisor of 16
 *   VECTOR_REGISTERS      how many there are for sums and factors
 *   VECTOR_ROWS_MAX       most rows of a panel
 *   vector_zero .. _exp   arithmetic of all lanes; vector_clamp and vector_exp keep NaN
 *   vector_between        the lanes begin .. end - 1, the others from elsewhere
 *   vector_part_of, vector_multiply_add   see enum vector_part
 *
 * Scores have positions in lanes, values have dimensions in lanes. `rows` x `vectors` sums stay in
 * registers. Every score and every output dimension is one chain in index order, so its bits do not
 * depend on `rows` and `vectors`. There is code for 1, 2, 3, 4, 6, 8 and 12 rows. A panel of
 * another number of rows is computed as the next larger one, with its last row repeated. */
#ifndef BACKEND_CPU_ATTENTION_ATTENTION_SPAN_H
#define BACKEND_CPU_ATTENTION_ATTENTION_SPAN_H

#include <stdbool.h>
#include <string.h>

#include "backend/cpu/attention/attention_part.h"
#include "backend/cpu/attention/attention_softcap.h"

enum {
    CHUNK_VECTORS = ATTENTION_CHUNK / VECTOR_LANES,
    SPAN_VECTORS = ATTENTION_SPAN / VECTOR_LANES,
    SUM_VECTORS = ATTENTION_SUMS / VECTOR_LANES,
    CACHE_LINE = 64, // bytes
};

// The most vectors, a power of two, for which all sums and one factor stay in registers.
static ALWAYS_INLINE uint32_t most_vectors(uint32_t rows, uint32_t limit) {
    uint32_t vectors = limit;
    while (vectors > CHUNK_VECTORS && vectors * (rows + 1) > VECTOR_REGISTERS) vectors /= 2;
    return vectors;
}

// Prefetches `bytes` of the next span: a decode reads K and V once, from memory.
static ALWAYS_INLINE void fetch(const char *at, size_t bytes) {
    UNROLL for (size_t i = 0; i < bytes; i += CACHE_LINE) __builtin_prefetch(at + i, 0, 2);
}

// Scores of all rows against the positions of `vectors` registers from `first` on, which begins a
// chunk.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t first,
                                      uint32_t rows, uint32_t vectors, enum vector_part part) {
    vector acc[VECTOR_ROWS_MAX][VECTORS_MAX];
    const char *keys[VECTORS_MAX], *next_keys[VECTORS_MAX];
    UNROLL for (uint32_t i = 0; i < vectors; i++) {
        keys[i] = (const char *)tile->k[(first + i) / CHUNK_VECTORS] +
                  (first + i) % CHUNK_VECTORS * line_bytes(VECTOR_LANES, part);
        next_keys[i] = tile->next_k[(first + i) / CHUNK_VECTORS];
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][i] = vector_zero();
    }
    const float *q = tile->q;
    size_t to_second = second_bytes(LANES, part), step = pair_bytes(LANES, part);
    size_t end = tile->head_dim / 2 * step;
    for (size_t at = 0; at < end; at += step, q += 2 * rows) {
        vector_multiply_add(acc, q, 1, keys, at, rows, vectors, part);
        UNROLL for (uint32_t i = 0; i < vectors; i += CHUNK_VECTORS) {
            if (rows <= 4) fetch(next_keys[i] + at, step);
        }
        vector_multiply_add(acc, q + rows, 1, keys, at + to_second, rows, vectors,
                            second_part(part));
    }
    float *scores = tile->scores + (size_t)first * VECTOR_LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            vector_store(scores + (size_t)r * ATTENTION_SPAN + (size_t)i * VECTOR_LANES, acc[r][i]);
        }
    }
}

// Which chunks of a span some row sees: begin .. end - 1.
struct chunk_range {
    uint32_t begin, end;
};

// The range's registers, `most` at a time, the rest in halves and quarters.
static ALWAYS_INLINE void score_rows(const struct attention_tile *tile, struct chunk_range chunks,
                                     uint32_t rows, uint32_t most, enum vector_part part) {
    uint32_t first = chunks.begin * CHUNK_VECTORS, end = chunks.end * CHUNK_VECTORS;
    for (; end - first >= most; first += most) score_group(tile, first, rows, most, part);
    if (most / 2 >= CHUNK_VECTORS && end - first >= most / 2) {
        score_group(tile, first, rows, most / 2, part);
        first += most / 2;
    }
    if (most / 4 >= CHUNK_VECTORS && end - first >= most / 4) {
        score_group(tile, first, rows, most / 4, part);
    }
}

// Multiplies scores by the scales of their keys, or exponentials by those of their values.
static void scale_span(const struct attention_tile *tile, const void *const chunks[],
                       struct chunk_range range) {
    for (uint32_t c = range.begin; c < range.end; c++) {
        const float *scales = attention_scales(chunks[c], tile->head_dim);
        for (uint32_t i = 0; i < CHUNK_VECTORS; i++) {
            const vector scale = vector_load(scales + (size_t)i * VECTOR_LANES);
            float *scores = tile->scores + (size_t)c * LANES + (size_t)i * VECTOR_LANES;
            for (uint32_t row = 0; row < tile->rows; row++, scores += ATTENTION_SPAN) {
                vector_store(scores, vector_mul(vector_load(scores), scale));
            }
        }
    }
}

// Returns the row's largest score among the positions it sees. The other scores become -inf.
static float mask_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t hidden = tile->hidden[row], visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const vector lowest = vector_set(-__builtin_inff());
    vector top[2] = {lowest, lowest};
    UNROLL for (uint32_t i = 0; i < SPAN_VECTORS; i++) {
        vector score = vector_load(scores + (size_t)i * VECTOR_LANES);
        if (hidden > 0 || visible < ATTENTION_SPAN) {
            uint32_t at = i * VECTOR_LANES;
            score = vector_between(score, hidden > at ? hidden - at : 0,
                                   visible > at ? visible - at : 0, lowest);
            vector_store(scores + (size_t)i * VECTOR_LANES, score);
        }
        top[i % 2] = vector_max(top[i % 2], score);
    }
    return vector_reduce_max(vector_max(top[0], top[1]));
}

// Replaces the row's scores by their exponentials, and scales its sum and acc to the new maximum.
static void softmax_row(const struct attention_tile *tile, uint32_t row, float shrink) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *sums = tile->sum + (size_t)row * ATTENTION_SUMS;
    const vector largest = vector_set(tile->max[row]), factor = vector_set(shrink);
    vector sum[SUM_VECTORS];
    UNROLL for (uint32_t i = 0; i < SUM_VECTORS; i++) {
        sum[i] = vector_mul(vector_load(sums + (size_t)i * VECTOR_LANES), factor);
    }
    UNROLL for (uint32_t i = 0; i < SPAN_VECTORS; i++) {
        vector score = vector_load(scores + (size_t)i * VECTOR_LANES);
        score = vector_exp(vector_sub(score, largest));
        sum[i % SUM_VECTORS] = vector_add(sum[i % SUM_VECTORS], score);
        vector_store(scores + (size_t)i * VECTOR_LANES, score);
    }
    UNROLL for (uint32_t i = 0; i < SUM_VECTORS; i++) {
        vector_store(sums + (size_t)i * VECTOR_LANES, sum[i]);
    }
    if (shrink == 1.0f) return; // the maximum is the same, as usual
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += VECTOR_LANES) {
        vector_store(acc + d, vector_mul(vector_load(acc + d), factor));
    }
}

static bool row_sees(const struct attention_tile *tile, uint32_t row) {
    return tile->hidden[row] < tile->visible[row];
}

// The online softmax of all rows.
static void softmax_span(const struct attention_tile *tile) {
    float change[LANES] = {0}, shrink[LANES]; // of the maximum; by what exponentials shrink
    for (uint32_t row = 0; row < tile->rows; row++) {
        if (!row_sees(tile, row)) continue;
        float before = tile->max[row], top = mask_row(tile, row);
        tile->max[row] = top <= before ? before : top; // NaN stays
        change[row] = before - tile->max[row];
    }
    // All rows in the lanes of few registers, as each row is a long chain of dependent steps.
    for (uint32_t i = 0; i < tile->rows; i += VECTOR_LANES) {
        vector_store(shrink + i, vector_exp(vector_load(change + i)));
    }
    for (uint32_t row = 0; row < tile->rows; row++) {
        if (row_sees(tile, row)) softmax_row(tile, row, shrink[row]);
    }
}

// Turns the scores of the chunks into the factors of the values, for a panel that is computed as
// one of `rows` rows.
static void weigh_span(const struct attention_tile *tile, uint32_t rows, struct chunk_range chunks,
                       enum vector_part part) {
    if (has_scales(part)) scale_span(tile, tile->k, chunks);
    if (tile->softcap != 0) {
        for (uint32_t row = 0; row < tile->rows; row++) {
            float *scores = tile->scores + (size_t)row * ATTENTION_SPAN + chunks.begin * LANES;
            softcap_scores(scores, (chunks.end - chunks.begin) * LANES, tile->softcap);
        }
    }
    softmax_span(tile);
    if (has_scales(part)) scale_span(tile, tile->v, chunks);
    const float *last = tile->scores + (size_t)(tile->rows - 1) * ATTENTION_SPAN;
    for (uint32_t row = tile->rows; row < rows; row++) {
        memcpy(tile->scores + (size_t)row * ATTENTION_SPAN, last, ATTENTION_SPAN * sizeof *last);
    }
}

// The positions and rows of a span that value_group is to add.
struct value_range {
    uint32_t row; // the first one
    uint32_t begin, end; // positions in the span; both even, except for single rows
};

// acc += p V for `rows` rows and `vectors` registers of dimensions from `dim` on.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, struct value_range range,
                                      uint32_t dim, uint32_t rows, uint32_t vectors,
                                      enum vector_part part, bool is_single) {
    size_t head_dim = tile->head_dim;
    uint32_t begin = range.begin - range.begin % 2;
    const float *p = tile->scores + (size_t)range.row * ATTENTION_SPAN + begin;
    float *out[VECTOR_ROWS_MAX];
    vector acc[VECTOR_ROWS_MAX][VECTORS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        // Repeated rows are stored where the last row is. Their numbers are the same.
        uint32_t row = range.row + r;
        if (row >= tile->rows) row = tile->rows - 1;
        out[r] = tile->acc + row * head_dim + dim;
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            acc[r][i] = vector_load(out[r] + (size_t)i * VECTOR_LANES);
        }
    }
    size_t step = pair_bytes(head_dim, part), to_second = second_bytes(head_dim, part);
    size_t bytes = pair_bytes((size_t)vectors * VECTOR_LANES, part); // that a turn reads
    size_t chunk_bytes = LANES / 2 * step;
    for (uint32_t j = begin; j < range.end;) {
        uint32_t stop =
            j / LANES * LANES + LANES < range.end ? j / LANES * LANES + LANES : range.end;
        const char *v =
            (const char *)tile->v[j / LANES] + j % LANES / 2 * step + line_bytes(dim, part);
        // As much of the next span as this step reads, but in the order of memory, as the processor
        // fetches ahead too. In the order of use it is a quarter slower.
        size_t fetched = pair_bytes((size_t)dim * (ATTENTION_SPAN / 2), part) + j / 2 * bytes;
        const char *next_v =
            (const char *)tile->next_v[fetched / chunk_bytes] + fetched % chunk_bytes;
        for (; j < stop; j += 2, p += 2, v += step, next_v += bytes) {
            const char *values[VECTORS_MAX];
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                values[i] = v + line_bytes((size_t)i * VECTOR_LANES, part);
            }
            // Values that a row does not see may be NaN.
            if (!is_single || j >= range.begin) {
                vector_multiply_add(acc, p, ATTENTION_SPAN, values, 0, rows, vectors, part);
            }
            if (rows <= 4 && !is_single) fetch(next_v, bytes);
            if (!is_single || j + 1 < range.end) {
                vector_multiply_add(acc, p + 1, ATTENTION_SPAN, values, to_second, rows, vectors,
                                    second_part(part));
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            vector_store(out[r] + (size_t)i * VECTOR_LANES, acc[r][i]);
        }
    }
}

// All dimensions, `most` registers at a time, the rest in smaller groups.
static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, struct value_range range,
                                     uint32_t rows, uint32_t most, enum vector_part part,
                                     bool is_single) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * VECTOR_LANES; dim += most * VECTOR_LANES) {
        value_group(tile, range, dim, rows, most, part, is_single);
    }
    uint32_t half = most / 2;
    if (half > CHUNK_VECTORS && tile->head_dim - dim >= half * VECTOR_LANES) {
        value_group(tile, range, dim, rows, half, part, is_single);
        dim += half * VECTOR_LANES;
    }
    for (; dim < tile->head_dim; dim += LANES) {
        value_group(tile, range, dim, rows, CHUNK_VECTORS, part, is_single);
    }
}

static ALWAYS_INLINE void value_singles_of(const struct attention_tile *tile, uint32_t begin,
                                           uint32_t end, enum vector_part part) {
    for (uint32_t row = 0; row < tile->rows; row++) {
        struct value_range range = {row, tile->hidden[row], tile->visible[row]};
        if (range.begin < begin) range.begin = begin;
        if (range.end > end) range.end = end;
        if (range.begin >= range.end) continue;
        value_rows(tile, range, 1, most_vectors(1, VECTORS_MAX), part, true);
    }
}

// What the rows see between begin and end, row by row: values that a row does not see may be NaN,
// so they must not even be multiplied by 0.
static void value_singles(const struct attention_tile *tile, uint32_t begin, uint32_t end,
                          enum vector_part part) {
    if (part == PART_F32) value_singles_of(tile, begin, end, PART_F32);
    if (part == PART_INT8) value_singles_of(tile, begin, end, PART_INT8);
    if (part == PART_E4M3) value_singles_of(tile, begin, end, PART_E4M3);
    if (part == PART_BF16_FIRST) value_singles_of(tile, begin, end, PART_BF16_FIRST);
}

// The span for a panel that is computed as one of `rows` rows.
static ALWAYS_INLINE void span_rows(const struct attention_tile *tile, uint32_t rows,
                                    enum vector_part part) {
    uint32_t last = tile->rows - 1;
    struct chunk_range chunks = {tile->hidden[0] / LANES,
                                 (tile->visible[last] + LANES - 1) / LANES};
    score_rows(tile, chunks, rows, most_vectors(rows, SPAN_VECTORS), part);
    weigh_span(tile, rows, chunks, part);
    // The positions that all rows see.
    struct value_range range = {.begin = tile->hidden[last] + tile->hidden[last] % 2,
                                .end = tile->visible[0] - tile->visible[0] % 2};
    if (range.begin >= range.end) range.begin = range.end = ATTENTION_SPAN;
    if (range.begin > 0) value_singles(tile, 0, range.begin, part);
    if (range.begin == range.end) return;
    value_rows(tile, range, rows, most_vectors(rows, VECTORS_MAX), part, false);
    if (range.end < tile->visible[last]) value_singles(tile, range.end, ATTENTION_SPAN, part);
}

static ALWAYS_INLINE void attention_span(const struct attention_tile *tile, enum vector_part part) {
    switch (attention_padded_rows(tile->rows)) {
    case 1:
        span_rows(tile, 1, part);
        break;
    case 2:
        span_rows(tile, 2, part);
        break;
    case 3:
        span_rows(tile, 3, part);
        break;
    case 4:
        span_rows(tile, 4, part);
        break;
    case 6:
        span_rows(tile, 6, part);
        break;
    case 8:
        if (VECTOR_ROWS_MAX >= 8) span_rows(tile, 8, part);
        break;
    case 12:
        if (VECTOR_ROWS_MAX >= 12) span_rows(tile, 12, part);
        break;
    }
}

#endif
