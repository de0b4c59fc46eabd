/* One span of 64 positions for up to 6 query rows: scores with 8 positions in a register, online
 * softmax, values with 8 dimensions in a register. As in avx2_linear.c, `rows` x `halves`
 * accumulators stay in registers, and every score and every output dimension is one chain in index
 * order. A cached bf16 pair is widened by a shift and a mask, a byte by a conversion, all exact. */
#include <stdbool.h>

#include "backend/cpu/avx2/avx2.h"
#include "base/compiler.h"

enum {
    AVX2_ROWS_MAX = 6,
    HALVES_MAX = 8,
    SPAN_HALVES = ATTENTION_SPAN / HALF,
    SPAN_PAIRS = ATTENTION_SPAN / 2,
    LINE = 64, // bytes of a cache line
};

// What the cache holds.
enum kind { KIND_BF16, KIND_F32, KIND_INT8 };

// Bytes of a line of `lanes` numbers, or pairs of bf16.
static ALWAYS_INLINE size_t line_bytes(size_t lanes, enum kind kind) {
    return kind == KIND_INT8 ? lanes : 4 * lanes;
}

// Bytes of two neighbours along the summed index, in `lanes` lanes.
static ALWAYS_INLINE size_t pair_bytes(size_t lanes, enum kind kind) {
    return kind == KIND_BF16 ? line_bytes(lanes, kind) : 2 * line_bytes(lanes, kind);
}

// first_of and second_of load one of two neighbours along the summed index, for 8 lanes. They are
// apart because the registers do not hold both.
static ALWAYS_INLINE __m256 first_of(const char *at, enum kind kind) {
    if (kind == KIND_F32) return _mm256_loadu_ps((const float *)(const void *)at);
    if (kind == KIND_INT8) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)));
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const void *)at), 16));
}

// line: bytes from a number to its neighbour; unused for bf16.
static ALWAYS_INLINE __m256 second_of(const char *at, size_t line, enum kind kind) {
    if (kind != KIND_BF16) return first_of(at + line, kind);
    return _mm256_castsi256_ps(avx2_odd_bf16(_mm256_loadu_si256((const void *)at)));
}

// Prefetches `bytes` of the next span: a decode reads K and V once, from memory.
static ALWAYS_INLINE void fetch(const char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE) _mm_prefetch(at + i, _MM_HINT_T1);
}

// Scores of all rows against the positions of `halves` registers from `half` on, which is even.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t half,
                                      uint32_t rows, uint32_t halves, enum kind kind) {
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    const char *keys[HALVES_MAX], *next_keys[HALVES_MAX];
    UNROLL for (uint32_t h = 0; h < halves; h++) {
        keys[h] = (const char *)tile->k[(half + h) / 2] + h % 2 * line_bytes(HALF, kind);
        next_keys[h] = tile->next_k[(half + h) / 2];
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][h] = _mm256_setzero_ps();
    }
    const float *q = tile->q;
    size_t line = line_bytes(LANES, kind), step = pair_bytes(LANES, kind);
    size_t end = tile->head_dim / 2 * step;
    for (size_t at = 0; at < end; at += step, q += 2 * rows) {
        __m256 key[HALVES_MAX];
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            key[h] = first_of(keys[h] + at, kind);
            if (rows <= 4 && h % 2 == 0) fetch(next_keys[h] + at, step);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m256 q_r = _mm256_set1_ps(q[r]);
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                acc[r][h] = _mm256_fmadd_ps(q_r, key[h], acc[r][h]);
            }
        }
        UNROLL for (uint32_t h = 0; h < halves; h++) key[h] = second_of(keys[h] + at, line, kind);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m256 q_r = _mm256_set1_ps(q[rows + r]);
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
                                     uint32_t rows, uint32_t most, enum kind kind) {
    uint32_t half = 0, count = chunks * 2;
    for (; count - half >= most; half += most) score_group(tile, half, rows, most, kind);
    if (most > 4 && count - half >= 4) score_group(tile, half, rows, 4, kind), half += 4;
    if (most > 2 && count - half >= 2) score_group(tile, half, rows, 2, kind);
}

static ALWAYS_INLINE void score_span(const struct attention_tile *tile, uint32_t chunks,
                                     enum kind kind) {
    switch (tile->rows) {
    case 1:
        score_rows(tile, chunks, 1, 8, kind);
        break;
    case 2:
        score_rows(tile, chunks, 2, 4, kind);
        break;
    case 3:
        score_rows(tile, chunks, 3, 4, kind);
        break;
    case 4:
        score_rows(tile, chunks, 4, 2, kind);
        break;
    case 5:
        score_rows(tile, chunks, 5, 2, kind);
        break;
    case 6:
        score_rows(tile, chunks, 6, 2, kind);
        break;
    }
}

// Returns the row's largest score among the positions it sees. The other scores become -inf.
static float mask_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
    __m256 top[2] = {lowest, lowest};
    UNROLL for (uint32_t h = 0; h < SPAN_HALVES; h++) {
        __m256 score = _mm256_loadu_ps(scores + (size_t)h * HALF);
        if (visible < ATTENTION_SPAN) {
            uint32_t left = visible > h * HALF ? visible - h * HALF : 0;
            score = _mm256_blendv_ps(lowest, score, _mm256_castsi256_ps(avx2_tail_mask(left)));
            _mm256_storeu_ps(scores + (size_t)h * HALF, score);
        }
        top[h % 2] = _mm256_max_ps(top[h % 2], score);
    }
    return avx2_reduce_max(_mm256_max_ps(top[0], top[1]));
}

// Replaces the row's scores by their exponentials, and scales its sum and acc to the new maximum.
static void softmax_row(const struct attention_tile *tile, uint32_t row, float shrink) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *sums = tile->sum + (size_t)row * ATTENTION_SUMS;
    const __m256 largest = _mm256_set1_ps(tile->max[row]);
    const __m256 factor = _mm256_set1_ps(shrink);
    __m256 sum[2] = {_mm256_mul_ps(_mm256_loadu_ps(sums), factor),
                     _mm256_mul_ps(_mm256_loadu_ps(sums + HALF), factor)};
    UNROLL for (uint32_t h = 0; h < SPAN_HALVES; h++) {
        __m256 score = _mm256_loadu_ps(scores + (size_t)h * HALF);
        score = avx2_exp(_mm256_sub_ps(score, largest));
        sum[h % 2] = _mm256_add_ps(sum[h % 2], score);
        _mm256_storeu_ps(scores + (size_t)h * HALF, score);
    }
    _mm256_storeu_ps(sums, sum[0]);
    _mm256_storeu_ps(sums + HALF, sum[1]);
    if (shrink == 1.0f) return; // the maximum is the same, as usual
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += HALF) {
        _mm256_storeu_ps(acc + d, _mm256_mul_ps(_mm256_loadu_ps(acc + d), factor));
    }
}

static void softmax_span(const struct attention_tile *tile) {
    float before[HALF] = {0}, shrink[HALF];
    bool is_new = false; // some row has a new maximum
    for (uint32_t row = 0; row < tile->rows; row++) {
        before[row] = tile->max[row];
        shrink[row] = 1.0f;
        if (!tile->visible[row]) continue;
        float top = mask_row(tile, row);
        if (top <= before[row]) continue;
        tile->max[row] = top;
        is_new = true;
    }
    if (is_new) {
        // All rows in the lanes of one register, as each row is a long chain of dependent steps.
        float after[HALF] = {0};
        for (uint32_t row = 0; row < tile->rows; row++) after[row] = tile->max[row];
        __m256 change = _mm256_sub_ps(_mm256_loadu_ps(before), _mm256_loadu_ps(after));
        _mm256_storeu_ps(shrink, avx2_exp(change));
    }
    for (uint32_t row = 0; row < tile->rows; row++) {
        if (tile->visible[row]) softmax_row(tile, row, shrink[row]);
    }
}

// The positions and rows of a span that value_group is to add.
struct value_range {
    uint32_t row; // the first one
    uint32_t begin, end; // positions in the span, `begin` even
};

// acc += p V for `rows` rows and `halves` x 8 dimensions from `dim` on.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, struct value_range range,
                                      uint32_t dim, uint32_t rows, uint32_t halves,
                                      enum kind kind) {
    size_t head_dim = tile->head_dim;
    const float *p = tile->scores + (size_t)range.row * ATTENTION_SPAN + range.begin;
    float *out = tile->acc + range.row * head_dim + dim;
    __m256 acc[AVX2_ROWS_MAX][HALVES_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            acc[r][h] = _mm256_loadu_ps(out + r * head_dim + (size_t)h * HALF);
        }
    }
    size_t line = line_bytes(head_dim, kind), step = pair_bytes(head_dim, kind);
    size_t chunk_bytes = LANES / 2 * step;
    for (uint32_t j = range.begin; j < range.end;) {
        uint32_t stop =
            j / LANES * LANES + LANES < range.end ? j / LANES * LANES + LANES : range.end;
        size_t at = j % LANES / 2 * step + line_bytes(dim, kind);
        const char *v = (const char *)tile->v[j / LANES] + at;
        // As much of the next span as this step reads, but in the order of memory, as the processor
        // fetches ahead too. In the order of use it is a quarter slower.
        size_t fetched = pair_bytes((size_t)dim * SPAN_PAIRS + (size_t)j / 2 * halves * HALF, kind);
        const char *next_v =
            (const char *)tile->next_v[fetched / chunk_bytes] + fetched % chunk_bytes;
        for (; j < stop; j += 2, p += 2, v += step, next_v += pair_bytes(halves * HALF, kind)) {
            __m256 value[HALVES_MAX];
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                value[h] = first_of(v + h * line_bytes(HALF, kind), kind);
            }
            if (rows <= 4) fetch(next_v, pair_bytes(halves * HALF, kind));
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m256 p_r = _mm256_set1_ps(p[r * ATTENTION_SPAN]);
                UNROLL for (uint32_t h = 0; h < halves; h++) {
                    acc[r][h] = _mm256_fmadd_ps(p_r, value[h], acc[r][h]);
                }
            }
            if (j + 1 == range.end) break; // the second one may be NaN
            UNROLL for (uint32_t h = 0; h < halves; h++) {
                value[h] = second_of(v + h * line_bytes(HALF, kind), line, kind);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m256 p_r = _mm256_set1_ps(p[r * ATTENTION_SPAN + 1]);
                UNROLL for (uint32_t h = 0; h < halves; h++) {
                    acc[r][h] = _mm256_fmadd_ps(p_r, value[h], acc[r][h]);
                }
            }
        }
        if (j < stop) break;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t h = 0; h < halves; h++) {
            _mm256_storeu_ps(out + r * head_dim + (size_t)h * HALF, acc[r][h]);
        }
    }
}

// All dimensions in groups of `most` registers, the rest in groups of 4 and 2.
static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, struct value_range range,
                                     uint32_t rows, uint32_t most, enum kind kind) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * HALF; dim += most * HALF) {
        value_group(tile, range, dim, rows, most, kind);
    }
    if (most > 4 && tile->head_dim - dim >= 4 * HALF) {
        value_group(tile, range, dim, rows, 4, kind);
        dim += 4 * HALF;
    }
    for (; dim < tile->head_dim; dim += 2 * HALF) value_group(tile, range, dim, rows, 2, kind);
}

// The span's first `count` positions for all rows.
static ALWAYS_INLINE void value_span(const struct attention_tile *tile, uint32_t count,
                                     enum kind kind) {
    struct value_range range = {0, 0, count};
    switch (tile->rows) {
    case 1:
        value_rows(tile, range, 1, 8, kind);
        break;
    case 2:
        value_rows(tile, range, 2, 4, kind);
        break;
    case 3:
        value_rows(tile, range, 3, 4, kind);
        break;
    case 4:
        value_rows(tile, range, 4, 2, kind);
        break;
    case 5:
        value_rows(tile, range, 5, 2, kind);
        break;
    case 6:
        value_rows(tile, range, 6, 2, kind);
        break;
    }
}

// Multiplies the scores of the span's first chunks by the scales of their keys, or the exponentials
// by those of their values.
static void scale_span(const struct attention_tile *tile, const void *const chunks[],
                       uint32_t num_chunks) {
    for (uint32_t c = 0; c < num_chunks; c++) {
        const float *scales = attention_scales(chunks[c], tile->head_dim);
        const __m256 low = _mm256_loadu_ps(scales), high = _mm256_loadu_ps(scales + HALF);
        float *scores = tile->scores + (size_t)c * LANES;
        for (uint32_t row = 0; row < tile->rows; row++, scores += ATTENTION_SPAN) {
            _mm256_storeu_ps(scores, _mm256_mul_ps(_mm256_loadu_ps(scores), low));
            _mm256_storeu_ps(scores + HALF, _mm256_mul_ps(_mm256_loadu_ps(scores + HALF), high));
        }
    }
}

static ALWAYS_INLINE void run_span(const struct attention_tile *tile, enum kind kind) {
    uint32_t least = ATTENTION_SPAN, most = 0;
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t visible = tile->visible[row];
        if (visible < least) least = visible;
        if (visible > most) most = visible;
    }
    uint32_t chunks = (most + LANES - 1) / LANES;
    score_span(tile, chunks, kind);
    if (kind == KIND_INT8) scale_span(tile, tile->k, chunks);
    softmax_span(tile);
    if (kind == KIND_INT8) scale_span(tile, tile->v, chunks);
    least -= least % 2;
    if (least) value_span(tile, least, kind);
    // The rest row by row: values after a row's own position may be NaN, so they must not even be
    // multiplied by 0.
    for (uint32_t row = 0; row < tile->rows; row++) {
        struct value_range range = {row, least, tile->visible[row]};
        if (range.begin < range.end) value_rows(tile, range, 1, 8, kind);
    }
}

void avx2_attention_bf16(const struct attention_tile *tile) {
    run_span(tile, KIND_BF16);
}

void avx2_attention_f32(const struct attention_tile *tile) {
    run_span(tile, KIND_F32);
}

void avx2_attention_int8(const struct attention_tile *tile) {
    run_span(tile, KIND_INT8);
}
