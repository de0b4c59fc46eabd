/* One span of 64 positions for up to 32 query rows by matrix tiles: 16 rows x 16 positions of
 * scores, 16 rows x 16 dimensions of values. 32 rows share what is loaded of K and V. Queries and
 * exponentials are rounded to bf16. A row of a tile product depends only on the same row of its
 * left factor, and amx_attention_few.c computes few rows with the same bits. So a row's bits do not
 * depend on the other rows. Rows that a panel lacks hold whatever is in memory; nothing reads their
 * results.
 *
 * A span's values are summed from 0 and then added to acc. */
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/amx_attention.h"

enum {
    BLOCKS = 4, // of 16 dimensions that are summed together
    WIDTH = BLOCKS * LANES,
    BLOCK_BYTES = LANES * 4, // of a line of V: a pair of positions in 16 dimensions
    FLUSH_DENORMALS = 0x8040, // MXCSR's FTZ and DAZ, as tiles flush denormals
    SCORES_BYTES = ATTENTION_SPAN * sizeof(float), // of a row
};

// Tiles 0 to 3 are results. 4 and 5 are factors with 32 products per result, 6 and 7 with 16.
unsigned amx_attention_begin(void) {
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 32, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 8},
    };
    _tile_loadconfig(&config);
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_DENORMALS);
    return before;
}

void amx_attention_end(unsigned before) {
    _tile_release();
    _mm_setcsr(before);
}

// Scores of chunks c and c + 1, for the first 16 rows or, with is_tall, for 32. Other rows and
// chunks that are not there get undefined scores.
static ALWAYS_INLINE void score_chunks(const struct attention_tile *tile, uint32_t c,
                                       uint32_t chunks, bool is_tall) {
    size_t head_dim = tile->head_dim, q_bytes = head_dim * sizeof(uint16_t), d = 0;
    const char *q = tile->q, *low = q + LANES * q_bytes;
    const char *k0 = tile->k[c], *k1 = tile->k[c + 1 < chunks ? c + 1 : c];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; d + AMX_DEPTH <= head_dim; d += AMX_DEPTH) {
        size_t line = d / 2 * 64;
        _tile_loadd(4, q + d * 2, q_bytes);
        _tile_loadd(5, k0 + line, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (is_tall) {
            _tile_loadd(4, low + d * 2, q_bytes);
            _tile_dpbf16ps(2, 4, 5);
        }
        _tile_loadd(5, k1 + line, 64);
        if (is_tall) {
            _tile_dpbf16ps(3, 4, 5);
            _tile_loadd(4, q + d * 2, q_bytes);
        }
        _tile_dpbf16ps(1, 4, 5);
    }
    if (d < head_dim) { // 16 are left
        size_t line = d / 2 * 64;
        _tile_loadd(6, q + d * 2, q_bytes);
        _tile_loadd(7, k0 + line, 64);
        _tile_dpbf16ps(0, 6, 7);
        if (is_tall) {
            _tile_loadd(6, low + d * 2, q_bytes);
            _tile_dpbf16ps(2, 6, 7);
        }
        _tile_loadd(7, k1 + line, 64);
        if (is_tall) {
            _tile_dpbf16ps(3, 6, 7);
            _tile_loadd(6, q + d * 2, q_bytes);
        }
        _tile_dpbf16ps(1, 6, 7);
    }
    float *scores = tile->scores + (size_t)c * LANES;
    _tile_stored(0, scores, SCORES_BYTES);
    _tile_stored(1, scores + LANES, SCORES_BYTES);
    if (!is_tall) return;
    scores += (size_t)LANES * ATTENTION_SPAN;
    _tile_stored(2, scores, SCORES_BYTES);
    _tile_stored(3, scores + LANES, SCORES_BYTES);
}

// Scores of the first `chunks` chunks; those of the others are undefined.
static void score_span(const struct attention_tile *tile, uint32_t chunks) {
    for (uint32_t c = 0; c < chunks; c += 2) {
        if (tile->rows > LANES) {
            score_chunks(tile, c, chunks, true);
        } else {
            score_chunks(tile, c, chunks, false);
        }
    }
}

// Replaces the row's scores by their exponentials: bf16 [ATTENTION_SPAN] in the first half of the
// same memory. The sum adds them as rounded, so that the weights of the values add up to 1.
static void finish_row(const struct attention_tile *tile, uint32_t row, float shrink) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *sums = tile->sum + (size_t)row * ATTENTION_SUMS;
    const __m512 largest = _mm512_set1_ps(tile->max[row]);
    __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(shrink));
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        __m512 score = _mm512_loadu_ps(scores + (size_t)c * LANES);
        score = avx512_exp(_mm512_sub_ps(score, largest));
        __m256i narrow = (__m256i)_mm512_cvtneps_pbh(score);
        __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
        sum = _mm512_add_ps(sum, _mm512_castsi512_ps(wide));
        // Overwrites scores that have been read.
        _mm256_storeu_si256((void *)(scores + (size_t)c * LANES / 2), narrow);
    }
    _mm512_storeu_ps(sums, sum);
    scores[AMX_SHRINK_AT] = shrink;
}

// Some dimensions of a chunk's values: 8 lines of pairs of positions.
struct values {
    const void *at; // [8][stride bytes]
    size_t stride;
};

// sums[row][lane] = p V over `chunks` chunks, for one block of 16 dimensions and, where `second` is
// not 0, for that many bytes behind it too. For 16 rows from `row` on or, with is_tall, for 32.
static ALWAYS_INLINE void sum_blocks(const struct attention_tile *tile, const struct values *values,
                                     uint32_t row, uint32_t chunks, size_t first, size_t second,
                                     bool is_tall, float sums[ATTENTION_PANEL_MAX][WIDTH]) {
    const char *p = (const char *)(tile->scores + (size_t)row * ATTENTION_SPAN);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t c = 0; c < chunks; c++, p += LANES * sizeof(uint16_t)) {
        const char *v = (const char *)values[c].at + first;
        const char *low = p + (size_t)LANES * SCORES_BYTES;
        size_t stride = values[c].stride;
        _tile_loadd(6, p, SCORES_BYTES);
        _tile_loadd(7, v, stride);
        _tile_dpbf16ps(0, 6, 7);
        if (is_tall) {
            _tile_loadd(6, low, SCORES_BYTES);
            _tile_dpbf16ps(2, 6, 7);
        }
        _tile_loadd(7, v + second, stride);
        if (is_tall) {
            _tile_dpbf16ps(3, 6, 7);
            _tile_loadd(6, p, SCORES_BYTES);
        }
        _tile_dpbf16ps(1, 6, 7);
    }
    float *out = sums[row] + first / 4;
    _tile_stored(0, out, WIDTH * sizeof(float));
    _tile_stored(1, out + LANES, WIDTH * sizeof(float));
    if (!is_tall) return;
    out += (size_t)LANES * WIDTH;
    _tile_stored(2, out, WIDTH * sizeof(float));
    _tile_stored(3, out + LANES, WIDTH * sizeof(float));
}

// The same for `blocks` blocks, in pairs. A block that is not there repeats the one before it, to
// read no memory outside.
static ALWAYS_INLINE void sum_values(const struct attention_tile *tile, const struct values *values,
                                     uint32_t row, uint32_t chunks, uint32_t blocks, bool is_tall,
                                     float sums[ATTENTION_PANEL_MAX][WIDTH]) {
    for (uint32_t b = 0; b < blocks; b += 2) {
        sum_blocks(tile, values, row, chunks, (size_t)b * BLOCK_BYTES,
                   b + 1 < blocks ? BLOCK_BYTES : 0, is_tall, sums);
    }
}

static ALWAYS_INLINE void add_row(const struct attention_tile *tile, uint32_t row, uint32_t dim,
                                  uint32_t blocks, const float sums[WIDTH]) {
    float *acc = tile->acc + (size_t)row * tile->head_dim + dim;
    __m512 shrink = _mm512_set1_ps(amx_row_shrink(tile, row));
    for (uint32_t i = 0; i < blocks * LANES; i += LANES) {
        __m512 sum = _mm512_fmadd_ps(_mm512_loadu_ps(acc + i), shrink, _mm512_loadu_ps(sums + i));
        _mm512_storeu_ps(acc + i, sum);
    }
}

static uint32_t blocks_from(const struct attention_tile *tile, uint32_t dim) {
    uint32_t blocks = (tile->head_dim - dim) / LANES;
    return blocks < BLOCKS ? blocks : BLOCKS;
}

static void value_span(const struct attention_tile *tile, uint32_t chunks) {
    _Alignas(64) float sums[ATTENTION_PANEL_MAX][WIDTH];
    size_t stride = (size_t)tile->head_dim * 4;
    for (uint32_t dim = 0; dim < tile->head_dim; dim += WIDTH) {
        uint32_t blocks = blocks_from(tile, dim);
        struct values values[ATTENTION_CHUNKS];
        for (uint32_t c = 0; c < chunks; c++) {
            values[c] = (struct values){(const char *)tile->v[c] + (size_t)dim * 4, stride};
        }
        if (tile->rows > LANES) {
            sum_values(tile, values, 0, chunks, blocks, true, sums);
        } else {
            sum_values(tile, values, 0, chunks, blocks, false, sums);
        }
        for (uint32_t row = 0; row < tile->rows; row++) {
            if (tile->visible[row]) add_row(tile, row, dim, blocks, sums[row]);
        }
    }
}

// value_span for when positions after a row's own hold NaN or inf: multiplied by 0 they would give
// NaN. Works row by row, over a copy in which those positions are 0.
static void value_span_masked(const struct attention_tile *tile, uint32_t chunks) {
    _Alignas(64) float sums[ATTENTION_PANEL_MAX][WIDTH];
    _Alignas(64) uint16_t copy[ATTENTION_CHUNKS][8][WIDTH][2];
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t visible = tile->visible[row];
        if (!visible) continue;
        for (uint32_t dim = 0; dim < tile->head_dim; dim += WIDTH) {
            uint32_t blocks = blocks_from(tile, dim);
            struct values values[ATTENTION_CHUNKS];
            memset(copy, 0, sizeof copy);
            for (uint32_t j = 0; j < visible; j++) {
                uint32_t c = j / LANES, line = j % LANES / 2;
                const uint16_t *v = (const uint16_t *)tile->v[c] +
                                    ((size_t)line * tile->head_dim + dim) * 2 + j % 2;
                for (size_t i = 0; i < (size_t)blocks * LANES; i++)
                    copy[c][line][i][j % 2] = v[i * 2];
            }
            for (uint32_t c = 0; c < chunks; c++) {
                values[c] = (struct values){copy[c], sizeof copy[c][0]};
            }
            sum_values(tile, values, row / LANES * LANES, chunks, blocks, false, sums);
            add_row(tile, row, dim, blocks, sums[row]);
        }
    }
}

static bool is_finite(const uint16_t *values, size_t count) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 bad = 0;
    for (size_t i = 0; i < count; i += 2 * LANES) {
        __m512i value = _mm512_and_si512(_mm512_loadu_si512(values + i), exponent);
        bad |= _mm512_cmpeq_epi16_mask(value, exponent);
    }
    return bad == 0;
}

void amx_attention(const struct attention_tile *tile) {
    uint32_t least = ATTENTION_SPAN, most = 0; // of `visible`, where it is not 0
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t visible = tile->visible[row];
        if (visible && visible < least) least = visible;
        if (visible > most) most = visible;
    }
    uint32_t chunks = (most + LANES - 1) / LANES;
    bool is_few = tile->rows <= AMX_FEW_ROWS;
    if (is_few) {
        amx_score_few(tile, chunks);
    } else {
        score_span(tile, chunks);
    }
    avx512_softmax_span(tile, finish_row);
    bool finite = true;
    for (uint32_t c = least / LANES; c < chunks; c++) {
        finite = finite && is_finite(tile->v[c], (size_t)LANES * tile->head_dim);
    }
    if (!finite) {
        value_span_masked(tile, chunks);
    } else if (is_few) {
        amx_value_few(tile, chunks);
    } else {
        value_span(tile, chunks);
    }
}
