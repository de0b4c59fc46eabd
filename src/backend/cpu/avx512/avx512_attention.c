/* One span of 64 positions for up to 12 query rows: scores with 16 positions in lanes, online
 * softmax, values with 16 dimensions in lanes. As in avx512_linear.c, `rows` x `vectors`
 * accumulators stay in registers, and every score and every output dimension is one chain in index
 * order. A cached bf16 pair is widened by a shift and a mask, a byte by a conversion, all exact. */
#include "backend/cpu/avx512/avx512.h"
#include "base/compiler.h"

enum {
    AVX512_ROWS_MAX = 12,
    VECTORS_MAX = 8,
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

// first_of and second_of load one of two neighbours along the summed index, for 16 lanes. They are
// apart because the registers do not hold both.
static ALWAYS_INLINE __m512 first_of(const char *at, enum kind kind) {
    if (kind == KIND_F32) return _mm512_loadu_ps((const float *)(const void *)at);
    if (kind == KIND_INT8) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)));
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512((const void *)at), 16));
}

// line: bytes from a number to its neighbour; unused for bf16.
static ALWAYS_INLINE __m512 second_of(const char *at, size_t line, enum kind kind) {
    if (kind != KIND_BF16) return first_of(at + line, kind);
    const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512((const void *)at), high));
}

// Prefetches from the next span, a cache line for each one of this span: a decode reads K and V
// once, from memory.
static ALWAYS_INLINE void fetch(const char *at, size_t line, enum kind kind) {
    _mm_prefetch(at, _MM_HINT_T1);
    if (kind != KIND_BF16 && line >= LINE) _mm_prefetch(at + line, _MM_HINT_T1);
}

// Scores of all rows against `chunks` K chunks from `chunk` on.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t chunk,
                                      uint32_t rows, uint32_t chunks, enum kind kind) {
    __m512 acc[AVX512_ROWS_MAX][ATTENTION_CHUNKS];
    const char *keys[ATTENTION_CHUNKS], *next_keys[ATTENTION_CHUNKS];
    UNROLL for (uint32_t c = 0; c < chunks; c++) {
        keys[c] = tile->k[chunk + c];
        next_keys[c] = tile->next_k[chunk + c];
        UNROLL for (uint32_t r = 0; r < rows; r++) acc[r][c] = _mm512_setzero_ps();
    }
    const float *q = tile->q;
    size_t line = line_bytes(LANES, kind), step = pair_bytes(LANES, kind);
    size_t end = tile->head_dim / 2 * step;
    for (size_t at = 0; at < end; at += step, q += 2 * rows) {
        __m512 key[ATTENTION_CHUNKS];
        UNROLL for (uint32_t c = 0; c < chunks; c++) {
            key[c] = first_of(keys[c] + at, kind);
            if (rows <= 4) fetch(next_keys[c] + at, line, kind);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512 q_r = _mm512_set1_ps(q[r]);
            UNROLL for (uint32_t c = 0; c < chunks; c++) {
                acc[r][c] = _mm512_fmadd_ps(q_r, key[c], acc[r][c]);
            }
        }
        UNROLL for (uint32_t c = 0; c < chunks; c++) key[c] = second_of(keys[c] + at, line, kind);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512 q_r = _mm512_set1_ps(q[rows + r]);
            UNROLL for (uint32_t c = 0; c < chunks; c++) {
                acc[r][c] = _mm512_fmadd_ps(q_r, key[c], acc[r][c]);
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
                                     uint32_t rows, uint32_t most, enum kind kind) {
    uint32_t chunk = 0;
    for (; chunks - chunk >= most; chunk += most) score_group(tile, chunk, rows, most, kind);
    if (most > 2 && chunks - chunk >= 2) score_group(tile, chunk, rows, 2, kind), chunk += 2;
    if (chunk < chunks) score_group(tile, chunk, rows, 1, kind);
}

static ALWAYS_INLINE void score_span(const struct attention_tile *tile, uint32_t chunks,
                                     enum kind kind) {
    switch (tile->rows) {
    case 1:
        score_rows(tile, chunks, 1, 4, kind);
        break;
    case 2:
        score_rows(tile, chunks, 2, 4, kind);
        break;
    case 3:
        score_rows(tile, chunks, 3, 4, kind);
        break;
    case 4:
        score_rows(tile, chunks, 4, 4, kind);
        break;
    case 5:
        score_rows(tile, chunks, 5, 4, kind);
        break;
    case 6:
        score_rows(tile, chunks, 6, 4, kind);
        break;
    case 7:
        score_rows(tile, chunks, 7, 2, kind);
        break;
    case 8:
        score_rows(tile, chunks, 8, 2, kind);
        break;
    case 9:
        score_rows(tile, chunks, 9, 2, kind);
        break;
    case 10:
        score_rows(tile, chunks, 10, 2, kind);
        break;
    case 11:
        score_rows(tile, chunks, 11, 2, kind);
        break;
    case 12:
        score_rows(tile, chunks, 12, 2, kind);
        break;
    }
}

// Returns the row's largest score among the positions it sees. The other scores become -inf.
static ALWAYS_INLINE float mask_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 top = lowest;
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        uint32_t left = visible > c * LANES ? visible - c * LANES : 0;
        __mmask16 mask = avx512_first_lanes(left);
        __m512 score = _mm512_loadu_ps(scores + (size_t)c * LANES);
        score = _mm512_mask_mov_ps(lowest, mask, score);
        _mm512_storeu_ps(scores + (size_t)c * LANES, score);
        top = _mm512_max_ps(top, score);
    }
    return _mm512_reduce_max_ps(top);
}

// Replaces the row's scores by their exponentials, and scales its sum and acc to the new maximum.
static ALWAYS_INLINE void softmax_row(const struct attention_tile *tile, uint32_t row,
                                      float shrink) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m512 largest = _mm512_set1_ps(tile->max[row]);
    const __m512 factor = _mm512_set1_ps(shrink);
    __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(tile->sum + (size_t)row * ATTENTION_SUMS), factor);
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        __m512 score = _mm512_loadu_ps(scores + (size_t)c * LANES);
        score = avx512_exp(_mm512_sub_ps(score, largest));
        sum = _mm512_add_ps(sum, score);
        _mm512_storeu_ps(scores + (size_t)c * LANES, score);
    }
    _mm512_storeu_ps(tile->sum + (size_t)row * ATTENTION_SUMS, sum);
    if (shrink == 1.0f) return; // the maximum is the same, as usual
    avx512_scale(tile->acc + (size_t)row * tile->head_dim, tile->head_dim, shrink);
}

// The online softmax of all rows.
static void softmax_span(const struct attention_tile *tile) {
    // 16 rows in the lanes of one register, as each row is a long chain of dependent steps.
    for (uint32_t begin = 0; begin < tile->rows; begin += LANES) {
        float before[LANES] = {0}, top[LANES] = {0}, shrink[LANES];
        uint32_t left = tile->rows - begin, rows = left < LANES ? left : LANES;
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = begin + i;
            before[i] = tile->max[row];
            top[i] = tile->visible[row] ? mask_row(tile, row) : before[i];
        }
        __m512 old = _mm512_loadu_ps(before);
        __m512 largest = _mm512_max_ps(_mm512_loadu_ps(top), old);
        _mm512_storeu_ps(top, largest);
        _mm512_storeu_ps(shrink, avx512_exp(_mm512_sub_ps(old, largest)));
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = begin + i;
            tile->max[row] = top[i];
            if (tile->visible[row]) softmax_row(tile, row, shrink[i]);
        }
    }
}

// The positions and rows of a span that value_group is to add.
struct value_range {
    uint32_t row; // the first one
    uint32_t begin, end; // positions in the span, `begin` even
};

// acc += p V for `rows` rows and `vectors` x 16 dimensions from `dim` on.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, struct value_range range,
                                      uint32_t dim, uint32_t rows, uint32_t vectors,
                                      enum kind kind) {
    size_t head_dim = tile->head_dim;
    const float *p = tile->scores + (size_t)range.row * ATTENTION_SPAN + range.begin;
    float *out = tile->acc + range.row * head_dim + dim;
    __m512 acc[AVX512_ROWS_MAX][VECTORS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            acc[r][i] = _mm512_loadu_ps(out + r * head_dim + (size_t)i * LANES);
        }
    }
    size_t line = line_bytes(head_dim, kind), step = pair_bytes(head_dim, kind);
    for (uint32_t j = range.begin; j < range.end;) {
        uint32_t stop =
            j / LANES * LANES + LANES < range.end ? j / LANES * LANES + LANES : range.end;
        size_t at = j % LANES / 2 * step + line_bytes(dim, kind);
        const char *v = (const char *)tile->v[j / LANES] + at;
        const char *next_v = (const char *)tile->next_v[j / LANES] + at;
        for (; j < stop; j += 2, p += 2, v += step, next_v += step) {
            __m512 value[VECTORS_MAX];
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                value[i] = first_of(v + i * line_bytes(LANES, kind), kind);
                if (rows <= 4 && i * line_bytes(LANES, kind) % LINE == 0) {
                    fetch(next_v + i * line_bytes(LANES, kind), line, kind);
                }
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m512 p_r = _mm512_set1_ps(p[r * ATTENTION_SPAN]);
                UNROLL for (uint32_t i = 0; i < vectors; i++) {
                    acc[r][i] = _mm512_fmadd_ps(p_r, value[i], acc[r][i]);
                }
            }
            if (j + 1 == range.end) break; // the second one may be NaN
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                value[i] = second_of(v + i * line_bytes(LANES, kind), line, kind);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m512 p_r = _mm512_set1_ps(p[r * ATTENTION_SPAN + 1]);
                UNROLL for (uint32_t i = 0; i < vectors; i++) {
                    acc[r][i] = _mm512_fmadd_ps(p_r, value[i], acc[r][i]);
                }
            }
        }
        if (j < stop) break;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            _mm512_storeu_ps(out + r * head_dim + (size_t)i * LANES, acc[r][i]);
        }
    }
}

// All dimensions in groups of `most` vectors, the rest in groups of 4 and 1.
static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, struct value_range range,
                                     uint32_t rows, uint32_t most, enum kind kind) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * LANES; dim += most * LANES) {
        value_group(tile, range, dim, rows, most, kind);
    }
    if (most > 4 && tile->head_dim - dim >= 4 * LANES) {
        value_group(tile, range, dim, rows, 4, kind);
        dim += 4 * LANES;
    }
    for (; dim < tile->head_dim; dim += LANES) value_group(tile, range, dim, rows, 1, kind);
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
        value_rows(tile, range, 2, 8, kind);
        break;
    case 3:
        value_rows(tile, range, 3, 4, kind);
        break;
    case 4:
        value_rows(tile, range, 4, 4, kind);
        break;
    case 5:
        value_rows(tile, range, 5, 4, kind);
        break;
    case 6:
        value_rows(tile, range, 6, 4, kind);
        break;
    case 7:
        value_rows(tile, range, 7, 2, kind);
        break;
    case 8:
        value_rows(tile, range, 8, 2, kind);
        break;
    case 9:
        value_rows(tile, range, 9, 2, kind);
        break;
    case 10:
        value_rows(tile, range, 10, 2, kind);
        break;
    case 11:
        value_rows(tile, range, 11, 2, kind);
        break;
    case 12:
        value_rows(tile, range, 12, 2, kind);
        break;
    }
}

// Multiplies the scores of the span's first chunks by the scales of their keys, or the exponentials
// by those of their values.
static void scale_span(const struct attention_tile *tile, const void *const chunks[],
                       uint32_t num_chunks) {
    for (uint32_t c = 0; c < num_chunks; c++) {
        const __m512 scales = _mm512_loadu_ps(attention_scales(chunks[c], tile->head_dim));
        float *scores = tile->scores + (size_t)c * LANES;
        for (uint32_t row = 0; row < tile->rows; row++, scores += ATTENTION_SPAN) {
            _mm512_storeu_ps(scores, _mm512_mul_ps(_mm512_loadu_ps(scores), scales));
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

void avx512_attention_bf16(const struct attention_tile *tile) {
    run_span(tile, KIND_BF16);
}

void avx512_attention_f32(const struct attention_tile *tile) {
    run_span(tile, KIND_F32);
}

void avx512_attention_int8(const struct attention_tile *tile) {
    run_span(tile, KIND_INT8);
}
