/* One span of 64 positions for up to 6 query rows: scores with 4 positions in a register, online
 * softmax, values with 4 dimensions in a register. Every score and every output
 * dimension is one chain in index order. */
#include "backend/cpu/neon/neon.h"

enum {
    CACHE_LINE = 64, // bytes
    SPAN_QUADS = ATTENTION_SPAN / QUAD,
    SUM_QUADS = ATTENTION_SUMS / QUAD,
};

// `part` says below what the first of two neighbours along the summed index is. Bytes of a line of
// `lanes` numbers, or pairs of bf16; bytes from the first neighbour to the second; the second's
// part.
static ALWAYS_INLINE size_t line_bytes(size_t lanes, enum neon_part part) {
    return part == NEON_INT8 ? lanes : lanes * sizeof(float);
}

static ALWAYS_INLINE size_t second_bytes(size_t lanes, enum neon_part part) {
    return part == NEON_BF16_FIRST ? 0 : line_bytes(lanes, part);
}

static ALWAYS_INLINE enum neon_part second_part(enum neon_part part) {
    return part == NEON_BF16_FIRST ? NEON_BF16_SECOND : part;
}

// Prefetches from the next span, a cache line for each one of this span: a decode reads K and V
// once, from memory.
static ALWAYS_INLINE void fetch(const char *at, size_t to_second) {
    __builtin_prefetch(at, 0, 2);
    if (to_second >= CACHE_LINE) __builtin_prefetch(at + to_second, 0, 2);
}

// Scores of all rows against the positions of `quads` registers from `quad` on, which begins a
// chunk.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t quad,
                                      uint32_t rows, uint32_t quads, enum neon_part part) {
    float32x4_t acc[NEON_ROWS_MAX][NEON_QUADS_MAX];
    const char *first[NEON_QUADS_MAX], *second[NEON_QUADS_MAX]; // keys of two dimensions
    const char *next[NEON_QUADS_MAX];
    UNROLL for (uint32_t h = 0; h < quads; h++) {
        first[h] = (const char *)tile->k[(quad + h) / QUAD] + h % QUAD * line_bytes(QUAD, part);
        next[h] = tile->next_k[(quad + h) / QUAD];
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][h] = vdupq_n_f32(0);
    }
    const float *q = tile->q;
    size_t line = line_bytes(LANES, part), to_second = second_bytes(LANES, part), at = 0;
    for (uint32_t d = 0; d < tile->head_dim; d += 2, q += (size_t)rows * 2) {
        UNROLL for (uint32_t h = 0; h < quads; h++) {
            if (rows <= 4 && h % QUAD == 0) fetch(next[h] + at, to_second);
            second[h] = first[h] + to_second;
        }
        neon_multiply_add(acc, q, 1, first, rows, quads, part);
        neon_multiply_add(acc, q + rows, 1, second, rows, quads, second_part(part));
        UNROLL for (uint32_t h = 0; h < quads; h++) first[h] = second[h] + line;
        at += to_second + line;
    }
    float *scores = tile->scores + (size_t)quad * QUAD;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < quads; h++) {
            vst1q_f32(scores + (size_t)r * ATTENTION_SPAN + (size_t)h * QUAD, acc[r][h]);
        }
    }
}

// Turns a row's scores into exponentials, moves its running maximum on, and scales its sum and acc
// to the new one.
static void softmax_row(const struct attention_tile *tile, uint32_t row) {
    static const uint32_t lanes[QUAD] = {0, 1, 2, 3};
    const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
    const uint32x4_t visible = vdupq_n_u32(tile->visible[row]);
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    uint32x4_t position = vld1q_u32(lanes);
    float32x4_t score[SPAN_QUADS], top = lowest;
    UNROLL for (uint32_t h = 0; h < SPAN_QUADS; h++) {
        uint32x4_t sees = vcltq_u32(position, visible);
        score[h] = vbslq_f32(sees, vld1q_f32(scores + (size_t)h * QUAD), lowest);
        top = vmaxq_f32(top, score[h]);
        position = vaddq_u32(position, vdupq_n_u32(QUAD));
    }
    float before = tile->max[row], after = vmaxvq_f32(top);
    if (before > after) after = before;
    tile->max[row] = after;
    float32x4_t shrink = neon_exp(vdupq_n_f32(before - after));
    float *sums = tile->sum + (size_t)row * ATTENTION_SUMS;
    float32x4_t sum[SUM_QUADS];
    UNROLL for (uint32_t i = 0; i < SUM_QUADS; i++) {
        sum[i] = vmulq_f32(vld1q_f32(sums + (size_t)i * QUAD), shrink);
    }
    UNROLL for (uint32_t h = 0; h < SPAN_QUADS; h++) {
        score[h] = neon_exp(vsubq_f32(score[h], vdupq_n_f32(after)));
        vst1q_f32(scores + (size_t)h * QUAD, score[h]);
        sum[h % SUM_QUADS] = vaddq_f32(sum[h % SUM_QUADS], score[h]);
    }
    UNROLL for (uint32_t i = 0; i < SUM_QUADS; i++) vst1q_f32(sums + (size_t)i * QUAD, sum[i]);
    if (before == after) return; // as usual
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += QUAD) {
        vst1q_f32(acc + d, vmulq_f32(vld1q_f32(acc + d), shrink));
    }
}

// The positions and rows of a span that value_group is to add.
struct value_range {
    uint32_t row; // the first one
    uint32_t begin, end; // positions in the span, `begin` even
};

// acc += p V for `rows` rows and `quads` x 4 dimensions from `dim` on.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, struct value_range range,
                                      uint32_t dim, uint32_t rows, uint32_t quads,
                                      enum neon_part part) {
    size_t head_dim = tile->head_dim;
    float *out = tile->acc + range.row * head_dim + dim;
    float32x4_t acc[NEON_ROWS_MAX][NEON_QUADS_MAX];
    const char *first[NEON_QUADS_MAX], *second[NEON_QUADS_MAX]; // values of two positions
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < quads; h++) {
            acc[r][h] = vld1q_f32(out + r * head_dim + (size_t)h * QUAD);
        }
    }
    const float *p = tile->scores + (size_t)range.row * ATTENTION_SPAN + range.begin;
    size_t to_second = second_bytes(head_dim, part), quad_bytes = line_bytes(QUAD, part);
    size_t step = to_second + line_bytes(head_dim, part); // bytes of two positions
    for (uint32_t j = range.begin; j < range.end; j += 2, p += 2) {
        size_t at = j % LANES / 2 * step + line_bytes(dim, part);
        const char *v = (const char *)tile->v[j / LANES] + at;
        const char *next_v = (const char *)tile->next_v[j / LANES] + at;
        UNROLL for (uint32_t h = 0; h < quads; h++) {
            first[h] = v + h * quad_bytes;
            second[h] = first[h] + to_second;
            if (rows <= 4 && h * quad_bytes % CACHE_LINE == 0) {
                fetch(next_v + h * quad_bytes, to_second);
            }
        }
        neon_multiply_add(acc, p, ATTENTION_SPAN, first, rows, quads, part);
        if (j + 1 == range.end) break; // the second one may be NaN
        neon_multiply_add(acc, p + 1, ATTENTION_SPAN, second, rows, quads, second_part(part));
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < quads; h++) {
            vst1q_f32(out + r * head_dim + (size_t)h * QUAD, acc[r][h]);
        }
    }
}

// All dimensions in groups of `most` registers, the rest in groups of a chunk's width.
static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, struct value_range range,
                                     uint32_t rows, uint32_t most, enum neon_part part) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * QUAD; dim += most * QUAD) {
        value_group(tile, range, dim, rows, most, part);
    }
    for (; dim < tile->head_dim; dim += LANES) value_group(tile, range, dim, rows, 4, part);
}

// Multiplies the scores of the span's first quads by the scales of their keys, or the exponentials
// by those of their values.
static void scale_span(const struct attention_tile *tile, const void *const chunks[],
                       uint32_t num_quads) {
    for (uint32_t h = 0; h < num_quads; h++) {
        const float *scales = attention_scales(chunks[h / QUAD], tile->head_dim);
        const float32x4_t scale = vld1q_f32(scales + h % QUAD * QUAD);
        float *scores = tile->scores + (size_t)h * QUAD;
        for (uint32_t row = 0; row < tile->rows; row++, scores += ATTENTION_SPAN) {
            vst1q_f32(scores, vmulq_f32(vld1q_f32(scores), scale));
        }
    }
}

// A span for `rows` rows, `most` registers of positions or dimensions at a time.
static ALWAYS_INLINE void span_rows(const struct attention_tile *tile, uint32_t rows, uint32_t most,
                                    enum neon_part part) {
    uint32_t seen_by_all = ATTENTION_SPAN, seen = 0;
    UNROLL for (uint32_t row = 0; row < rows; row++) {
        uint32_t visible = tile->visible[row];
        if (visible < seen_by_all) seen_by_all = visible;
        if (visible > seen) seen = visible;
    }
    uint32_t quad = 0, count = (seen + LANES - 1) / LANES * (LANES / QUAD);
    for (; count - quad >= most; quad += most) score_group(tile, quad, rows, most, part);
    for (; quad < count; quad += 4) score_group(tile, quad, rows, 4, part);
    if (part == NEON_INT8) scale_span(tile, tile->k, count);
    for (uint32_t row = 0; row < rows; row++) {
        if (tile->visible[row]) softmax_row(tile, row);
    }
    if (part == NEON_INT8) scale_span(tile, tile->v, count);
    struct value_range range = {0, 0, seen_by_all - seen_by_all % 2};
    if (range.end) value_rows(tile, range, rows, most, part);
    // The rest row by row: values after a row's own position may be NaN, so they must not even be
    // multiplied by 0.
    for (uint32_t row = 0; row < rows; row++) {
        struct value_range rest = {row, range.end, tile->visible[row]};
        if (rest.begin < rest.end) value_rows(tile, rest, 1, NEON_QUADS_MAX, part);
    }
}

static ALWAYS_INLINE void run_span(const struct attention_tile *tile, enum neon_part part) {
    switch (tile->rows) {
    case 1:
        span_rows(tile, 1, 16, part);
        break;
    case 2:
        span_rows(tile, 2, 8, part);
        break;
    case 3:
        span_rows(tile, 3, 8, part);
        break;
    case 4:
        span_rows(tile, 4, 4, part);
        break;
    case 5:
        span_rows(tile, 5, 4, part);
        break;
    case 6:
        span_rows(tile, 6, 4, part);
        break;
    }
}

void neon_attention_bf16(const struct attention_tile *tile) {
    run_span(tile, NEON_BF16_FIRST);
}

void neon_attention_f32(const struct attention_tile *tile) {
    run_span(tile, NEON_F32);
}

void neon_attention_int8(const struct attention_tile *tile) {
    run_span(tile, NEON_INT8);
}
