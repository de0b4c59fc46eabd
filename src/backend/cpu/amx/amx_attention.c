/* One part of 512 positions for up to 384 query rows by matrix tiles. 32 rows at a time walk its
 * spans of 128 positions: scores, softmax (amx_softmax.c), values. A tile product has 16 rows x 16
 * positions of scores, or 16 rows x 16 dimensions of values. 32 rows share what is loaded of K and
 * V. Queries and exponentials are rounded to bf16. A row of a tile product depends only on the same
 * row of its left factor, and amx_attention_few.c computes few rows with the same bits. So a row's
 * bits do not depend on the other rows. Rows that a tile lacks hold whatever is in memory; nothing
 * reads their results.
 *
 * A tile product of 16 positions of V would take as long as one of 32, and a chunk has 16. So the
 * part's V is copied once, as tiles, and all rows use the copy. K and V are loaded with the hint
 * that they are not used again soon: then queries, scores and acc of 32 rows stay in the L1.
 *
 * K and V in int8 or e4m3 are copied as bf16, without their scales: that is exact. The scales of
 * keys multiply the scores, those of values the exponentials before these are rounded. All numbers
 * of such a cache are finite, only scales may be NaN. */
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/amx/amx_attention.h"
#include "backend/cpu/amx/amx_tiles.h"
#include "backend/cpu/attention/attention_part.h"
#include "backend/cpu/attention/attention_softcap.h"

enum {
    GROUP = 32, // rows that are computed together
    CHUNKS = AMX_SPAN / LANES,
    CHUNKS_AHEAD = 4, // how far a few rows fetch
    BLOCK_BYTES = LANES * 4, // of a line of V: a pair of positions in 16 dimensions
    FLUSH_DENORMALS = 0x8040, // MXCSR's FTZ and DAZ, as tiles flush denormals
    SCORES_BYTES = AMX_SPAN * sizeof(float), // of a row
};

_Static_assert(GROUP *AMX_SPAN <= ATTENTION_SCORES_FLOATS, "a group's scores fit");

// GCC's tile loads do not say that they read memory.
#define TILES_READ_MEMORY() __asm__ volatile("" ::: "memory")

// Tiles 0 to 3 are results. 4 and 5 are factors with 32 products per result, 6 and 7 with 16.
unsigned amx_attention_begin(void) {
    static const struct tile_config config = {
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

// Fetches lines of the item's next part into the L2 while scores are computed.
struct fetch {
    const struct attention_tile *tile; // the whole part
    uint32_t next, end; // lines of all chunks of K and V, one after the other
    uint32_t lines; // of a chunk
    uint32_t step; // lines that are fetched at once
};

static ALWAYS_INLINE void fetch_lines(struct fetch *fetch) {
    const struct attention_tile *tile = fetch->tile;
    uint32_t end = fetch->next + fetch->step;
    if (end > fetch->end) end = fetch->end;
    for (uint32_t line = fetch->next; line < end; line++) {
        uint32_t c = line / fetch->lines;
        const char *chunk =
            c < ATTENTION_PART_CHUNKS ? tile->next_k[c] : tile->next_v[c - ATTENTION_PART_CHUNKS];
        _mm_prefetch(chunk + (size_t)(line - c * fetch->lines) * 64, _MM_HINT_T1);
    }
    fetch->next = end;
}

// Scores of chunks c and c + 1, for the first 16 rows or, with is_tall, for 32. Other rows and
// chunks that are not there get undefined scores.
static ALWAYS_INLINE void score_chunks(const struct attention_tile *tile, uint32_t c,
                                       uint32_t chunks, bool is_tall, struct fetch *fetch) {
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
        _tile_stream_loadd(5, k0 + line, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (is_tall) {
            _tile_loadd(4, low + d * 2, q_bytes);
            _tile_dpbf16ps(2, 4, 5);
        }
        _tile_stream_loadd(5, k1 + line, 64);
        if (is_tall) {
            _tile_dpbf16ps(3, 4, 5);
            _tile_loadd(4, q + d * 2, q_bytes);
        }
        _tile_dpbf16ps(1, 4, 5);
        fetch_lines(fetch);
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
        fetch_lines(fetch);
    }
    float *scores = tile->scores + (size_t)c * LANES;
    _tile_stored(0, scores, SCORES_BYTES);
    _tile_stored(1, scores + LANES, SCORES_BYTES);
    if (!is_tall) return;
    scores += (size_t)LANES * AMX_SPAN;
    _tile_stored(2, scores, SCORES_BYTES);
    _tile_stored(3, scores + LANES, SCORES_BYTES);
}

// Scores of the first `chunks` chunks; those of the others are undefined.
static void score_group(const struct attention_tile *tile, uint32_t chunks, struct fetch *fetch) {
    TILES_READ_MEMORY();
    for (uint32_t c = 0; c < chunks; c += 2) {
        if (tile->rows > LANES) {
            score_chunks(tile, c, chunks, true, fetch);
        } else {
            score_chunks(tile, c, chunks, false, fetch);
        }
    }
}

// acc += p V for 16 rows or, with is_tall, 32, and for one block of 16 dimensions and, where
// `second` is not 0, the next one too. Rows of acc are `stride` bytes apart. With is_first acc
// counts as 0.
static ALWAYS_INLINE void sum_blocks(const struct attention_tile *tile, const char *v,
                                     uint32_t chunks, size_t second, bool is_tall, bool is_first,
                                     float *acc, size_t stride) {
    const char *p = (const char *)tile->scores, *low = p + (size_t)LANES * SCORES_BYTES;
    size_t next = tile->head_dim / LANES * TILE_BYTES;
    float *acc_low = acc + LANES * stride / sizeof *acc;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!is_first) {
        _tile_loadd(0, acc, stride);
        _tile_loadd(1, acc + second, stride);
    }
    if (!is_first && is_tall) {
        _tile_loadd(2, acc_low, stride);
        _tile_loadd(3, acc_low + second, stride);
    }
    for (uint32_t c = 0; c < chunks; c += 2, v += next) {
        _tile_loadd(4, p, SCORES_BYTES);
        _tile_stream_loadd(5, v, BLOCK_BYTES);
        _tile_dpbf16ps(0, 4, 5);
        if (is_tall) {
            _tile_loadd(4, low, SCORES_BYTES);
            _tile_dpbf16ps(2, 4, 5);
        }
        _tile_stream_loadd(5, v + (second ? TILE_BYTES : 0), BLOCK_BYTES);
        if (is_tall) {
            _tile_dpbf16ps(3, 4, 5);
            _tile_loadd(4, p, SCORES_BYTES);
        }
        _tile_dpbf16ps(1, 4, 5);
        p += AMX_DEPTH * sizeof(uint16_t);
        low += AMX_DEPTH * sizeof(uint16_t);
    }
    _tile_stored(0, acc, stride);
    if (second) _tile_stored(1, acc + second, stride);
    if (!is_tall) return;
    _tile_stored(2, acc_low, stride);
    if (second) _tile_stored(3, acc_low + second, stride);
}

// sum_blocks where tiles would write to rows that are not there.
static ALWAYS_INLINE void sum_rest(const struct attention_tile *tile, const char *v,
                                   uint32_t chunks, size_t second, bool is_tall, bool is_first,
                                   float *acc) {
    _Alignas(64) float copy[GROUP][2 * LANES];
    size_t bytes = (LANES + second) * sizeof(float);
    for (uint32_t row = 0; row < tile->rows && !is_first; row++) {
        memcpy(copy[row], acc + (size_t)row * tile->head_dim, bytes);
    }
    TILES_READ_MEMORY();
    sum_blocks(tile, v, chunks, second, is_tall, is_first, copy[0], sizeof copy[0]);
    for (uint32_t row = 0; row < tile->rows; row++) {
        memcpy(acc + (size_t)row * tile->head_dim, copy[row], bytes);
    }
}

static void value_group(const struct attention_tile *tile, uint32_t chunks, bool is_first) {
    size_t stride = tile->head_dim * sizeof(float);
    TILES_READ_MEMORY();
    for (uint32_t d = 0; d < tile->head_dim; d += 2 * LANES) {
        size_t second = d + LANES < tile->head_dim ? LANES : 0;
        const char *v = (const char *)tile->values + (size_t)d / LANES * TILE_BYTES;
        if (tile->rows == GROUP) {
            sum_blocks(tile, v, chunks, second, true, is_first, tile->acc + d, stride);
        } else if (tile->rows > LANES) {
            sum_rest(tile, v, chunks, second, true, is_first, tile->acc + d);
        } else {
            sum_rest(tile, v, chunks, second, false, is_first, tile->acc + d);
        }
    }
}

// A line of numbers and its neighbour, of 16 lanes, as pairs of bf16.
static ALWAYS_INLINE __m512i load_pairs(const char *at, size_t to_second, enum vector_part kind) {
    if (kind == PART_BF16_FIRST) return _mm512_loadu_si512(at);
    __m512i first = _mm512_castps_si512(vector_part_of(at, kind));
    __m512i second = _mm512_castps_si512(vector_part_of(at + to_second, kind));
    return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
}

// Copies the chunks of K from the one of position `begin` on, up to position `end`, to tile->keys
// as a cache of bf16 has them.
static ALWAYS_INLINE void copy_keys(const struct attention_tile *tile, uint32_t begin, uint32_t end,
                                    enum vector_part kind) {
    size_t head_dim = tile->head_dim, step = pair_bytes(LANES, kind);
    for (uint32_t c = begin / LANES; c * LANES < end; c++) {
        const char *from = tile->k[c];
        uint16_t *to = (uint16_t *)tile->keys + c * LANES * head_dim;
        for (size_t d = 0; d < head_dim; d += 2, from += step, to += 2 * LANES) {
            _mm512_storeu_si512(to, load_pairs(from, second_bytes(LANES, kind), kind));
        }
    }
}

// How copy_values lays out V.
struct layout {
    size_t chunk, pair; // numbers from an even chunk to the next one, and to the one after it
    size_t line, block; // from a pair of positions to the next one, and from 16 dimensions on
};

// As tiles: [span / 32][head_dim / 16][16][16][2].
static struct layout tile_layout(size_t head_dim) {
    return (struct layout){TILE_BYTES / 4, 2 * LANES * head_dim, 2 * LANES, TILE_BYTES / 2};
}

// As in the cache.
static struct layout cache_layout(size_t head_dim) {
    size_t chunk = LANES * head_dim;
    return (struct layout){chunk, 2 * chunk, 2 * head_dim, 2 * LANES};
}

// Which of 32 bf16 are inf or NaN.
static ALWAYS_INLINE __mmask32 find_bad(__m512i values) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    return _mm512_cmpeq_epi16_mask(_mm512_and_si512(values, exponent), exponent);
}

// Positions begin .. end - 1.
struct range {
    uint32_t begin, end;
};

static bool is_in(struct range range, uint32_t position) {
    return position >= range.begin && position < range.end;
}

// Copies a chunk of V, of which position 0 is `first`: the positions in `seen`, and zeros. Returns
// whether all numbers are finite.
static ALWAYS_INLINE bool copy_chunk(const char *from, uint32_t first, struct range seen,
                                     size_t head_dim, const struct layout *layout, uint16_t *to,
                                     enum vector_part kind) {
    __mmask32 bad = 0;
    size_t to_second = second_bytes(head_dim, kind), step = line_bytes(LANES, kind);
    for (uint32_t line = 0; line < LANES; line += 2, to += layout->line, from += to_second) {
        uint32_t low = is_in(seen, first + line) ? 0xffff : 0;
        uint32_t high = is_in(seen, first + line + 1) ? 0xffff0000 : 0;
        __m512i mask = _mm512_set1_epi32((int32_t)(low | high));
        uint16_t *out = to;
        for (size_t d = 0; d < head_dim; d += LANES, from += step, out += layout->block) {
            __m512i value = _mm512_and_si512(load_pairs(from, to_second, kind), mask);
            _mm512_storeu_si512(out, value);
            if (!has_scales(kind)) bad |= find_bad(value);
        }
    }
    return bad == 0;
}

// Copies V of the positions in `seen` to tile->values, and zeros from the beginning of a span up to
// a multiple of 32. Returns a bit for each chunk that has a number that is not finite.
static ALWAYS_INLINE uint32_t copy_values(const struct attention_tile *tile, struct range seen,
                                          struct layout layout, enum vector_part kind) {
    uint32_t bad = 0, chunks = (seen.end + 2 * LANES - 1) / (2 * LANES) * 2;
    for (uint32_t c = seen.begin / AMX_SPAN * CHUNKS; c < chunks; c++) {
        uint16_t *to = (uint16_t *)tile->values + c / 2 * layout.pair + c % 2 * layout.chunk;
        // Numbers of a chunk that is not seen are not read.
        const char *from = tile->v[c * LANES < seen.end ? c : c - 1];
        bool finite = copy_chunk(from, c * LANES, seen, tile->head_dim, &layout, to, kind);
        bad |= (uint32_t)!finite << c;
    }
    return bad;
}

// A bit for each chunk of a span that some row does not see whole.
static uint32_t partly_seen(const struct attention_tile *tile) {
    uint32_t hidden = (tile->hidden[tile->rows - 1] + LANES - 1) / LANES;
    return ~0u << tile->visible[0] / LANES | ((1u << hidden) - 1);
}

// value_group for when positions after a row's own hold NaN or inf, as they can in bf16: multiplied
// by 0 these would give NaN. Works row by row, over a copy in which those positions are 0.
// Overwrites tile->values.
static void value_group_masked(const struct attention_tile *tile) {
    struct layout layout = cache_layout(tile->head_dim);
    struct attention_tile one = *tile;
    one.rows = 1;
    for (uint32_t c = 0; c < CHUNKS; c++) one.v[c] = (uint16_t *)tile->values + c * layout.chunk;
    for (uint32_t row = 0; row < tile->rows; row++) {
        struct range seen = {tile->hidden[row], tile->visible[row]};
        if (seen.begin < seen.end) {
            copy_values(tile, seen, layout, PART_BF16_FIRST);
            amx_value_few(&one, (seen.end + LANES - 1) / LANES, PART_BF16_FIRST);
        }
        one.acc += tile->head_dim;
        one.scores += AMX_SPAN;
    }
}

static bool is_finite(const uint16_t *values, size_t count) {
    __mmask32 bad = 0;
    for (size_t i = 0; i < count; i += 2 * LANES) {
        bad |= find_bad(_mm512_loadu_si512(values + i));
    }
    return bad == 0;
}

// The rows from `row` on of a part, at the span whose first chunk is `chunk`.
struct group {
    struct attention_tile tile;
    uint32_t hidden[GROUP], visible[GROUP];
    uint32_t chunks; // up to the last one that any of its rows sees; 0: none sees the span
    const struct amx_scales *scales; // of bytes
};

static void find_group(const struct attention_tile *part, uint32_t row, struct group *group) {
    uint32_t left = part->rows - row;
    group->tile = (struct attention_tile){
        .q = (const uint16_t *)part->q + (size_t)row * part->head_dim,
        .hidden = group->hidden,
        .visible = group->visible,
        .softcap = part->softcap,
        .max = part->max + row,
        .sum = part->sum + (size_t)row * ATTENTION_SUMS,
        .acc = part->acc + (size_t)row * part->head_dim,
        .scores = part->scores,
        .rows = left < GROUP ? left : GROUP,
        .head_dim = part->head_dim,
    };
}

// How many positions of the span from `begin` on are before `position` of the part.
static uint32_t in_span(uint32_t begin, uint32_t position) {
    uint32_t before = position > begin ? position - begin : 0;
    return before < AMX_SPAN ? before : AMX_SPAN;
}

// The scales of the span whose first chunk is `chunk`. Fetches those of the next one: nothing else
// reads their lines.
static void find_scales(const struct attention_tile *part, uint32_t chunk,
                        struct amx_scales *scales) {
    size_t head_dim = part->head_dim;
    for (uint32_t c = 0, at = 0; c < CHUNKS; c++, at += LANES) {
        vector_store(scales->keys + at,
                     vector_load(attention_scales(part->k[chunk + c], head_dim)));
        // Smaller scales become 2^-100, so that all inverses are finite: their values are as good
        // as 0. NaN stays.
        vector value = vector_load(attention_scales(part->v[chunk + c], head_dim));
        value = vector_max(vector_set(0x1p-100f), value);
        vector_store(scales->values + at, value);
        vector inverse = vector_div(vector_set(1.0f), value);
        __m256i rounded = (__m256i)_mm512_cvtneps_pbh(inverse);
        __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16);
        vector rest = vector_sub(inverse, _mm512_castsi512_ps(wide));
        _mm256_storeu_si256((void *)(scales->inverses + at), rounded);
        _mm256_storeu_si256((void *)(scales->rests + at), (__m256i)_mm512_cvtneps_pbh(rest));
        uint32_t next = chunk + CHUNKS + c;
        bool is_inside = next < ATTENTION_PART_CHUNKS;
        next %= ATTENTION_PART_CHUNKS;
        const void *k = is_inside ? part->k[next] : part->next_k[next];
        const void *v = is_inside ? part->v[next] : part->next_v[next];
        _mm_prefetch((const char *)attention_scales(k, head_dim), _MM_HINT_T0);
        _mm_prefetch((const char *)attention_scales(v, head_dim), _MM_HINT_T0);
    }
}

static ALWAYS_INLINE void find_span(const struct attention_tile *part, uint32_t row, uint32_t chunk,
                                    struct group *group, enum vector_part kind) {
    for (uint32_t i = 0; i < group->tile.rows; i++) {
        group->hidden[i] = in_span(chunk * LANES, part->hidden[row + i]);
        group->visible[i] = in_span(chunk * LANES, part->visible[row + i]);
    }
    uint32_t end = group->visible[group->tile.rows - 1];
    group->chunks = group->hidden[0] < end ? (end + LANES - 1) / LANES : 0;
    group->tile.values = (uint16_t *)part->values + (size_t)chunk * LANES * part->head_dim;
    for (uint32_t c = 0; c < CHUNKS; c++) {
        uint32_t next = chunk + CHUNKS_AHEAD + c;
        bool is_inside = next < ATTENTION_PART_CHUNKS;
        group->tile.k[c] = part->k[chunk + c];
        if (has_scales(kind) && group->tile.rows > AMX_FEW_ROWS) { // tiles read the copy
            group->tile.k[c] = (uint16_t *)part->keys + (chunk + c) * LANES * part->head_dim;
        }
        group->tile.v[c] = part->v[chunk + c];
        next %= ATTENTION_PART_CHUNKS;
        group->tile.next_k[c] = is_inside ? part->k[next] : part->next_k[next];
        group->tile.next_v[c] = is_inside ? part->v[next] : part->next_v[next];
    }
}

static void clear_acc(const struct attention_tile *tile) {
    memset(tile->acc, 0, (size_t)tile->rows * tile->head_dim * sizeof *tile->acc);
}

// The queries of few rows as floats. K's copy is not needed any more: few rows come last.
static void widen_queries(const struct attention_tile *part, struct attention_tile *tile) {
    amx_widen(tile->q, (size_t)tile->rows * tile->head_dim, part->keys);
    tile->q = part->keys;
}

// Multiplies scores by the scales of their keys.
static void scale_scores(const struct attention_tile *tile, uint32_t count, const float *scales) {
    for (uint32_t i = 0; i < count; i += LANES) {
        const vector scale = vector_load(scales + i);
        float *scores = tile->scores + i;
        for (uint32_t row = 0; row < tile->rows; row++, scores += AMX_SPAN) {
            vector_store(scores, vector_mul(vector_load(scores), scale));
        }
    }
}

// The softmax of scores with a cap, which comes behind the scales of keys.
static void softmax_capped(const struct group *group, enum vector_part kind) {
    const struct attention_tile *tile = &group->tile;
    uint32_t chunks = group->chunks, count = chunks * LANES;
    struct amx_scales scales;
    if (has_scales(kind)) {
        scale_scores(tile, count, group->scales->keys);
        scales = *group->scales;
        for (uint32_t i = 0; i < AMX_SPAN; i++) scales.keys[i] = 1.0f;
    }
    for (uint32_t row = 0; row < tile->rows; row++) {
        softcap_scores(tile->scores + (size_t)row * AMX_SPAN, count, tile->softcap);
    }
    amx_softmax(tile, chunks + chunks % 2, has_scales(kind) ? &scales : NULL);
}

static void softmax(const struct group *group, enum vector_part kind) {
    if (group->tile.softcap != 0) {
        softmax_capped(group, kind);
    } else {
        amx_softmax(&group->tile, group->chunks + group->chunks % 2,
                    has_scales(kind) ? group->scales : NULL);
    }
}

static void attend_few(const struct group *group, enum vector_part kind) {
    const struct attention_tile *tile = &group->tile;
    uint32_t chunks = group->chunks;
    amx_score_few(tile, chunks, kind);
    softmax(group, kind);
    bool finite = true;
    uint32_t partly = has_scales(kind) ? 0 : partly_seen(tile);
    for (uint32_t c = 0; c < chunks; c++) {
        if (partly >> c & 1) {
            finite = finite && is_finite(tile->v[c], (size_t)LANES * tile->head_dim);
        }
    }
    if (finite) {
        amx_value_few(tile, chunks, kind);
    } else {
        value_group_masked(tile);
    }
}

// Plans to fetch the next part while the rows walk this one, of which they see the positions
// `seen`.
static ALWAYS_INLINE struct fetch plan_fetch(const struct attention_tile *part, struct range seen,
                                             enum vector_part kind) {
    size_t bytes = pair_bytes(LANES, kind) * part->head_dim / 2; // of a chunk
    if (has_scales(kind)) bytes += LANES * sizeof(float);
    struct fetch fetch = {.tile = part, .lines = (uint32_t)(bytes / 64)};
    fetch.end = 2 * ATTENTION_PART_CHUNKS * fetch.lines;
    // Past the last position, all chunks are the last one.
    if (part->next_k[0] == part->next_k[ATTENTION_PART_CHUNKS - 1]) fetch.end = 0;
    // All groups together have at most this many steps.
    uint32_t steps = (part->rows + GROUP - 1) / GROUP *
                     ((seen.end - seen.begin / AMX_SPAN * AMX_SPAN + 2 * LANES - 1) / (2 * LANES)) *
                     ((part->head_dim + AMX_DEPTH - 1) / AMX_DEPTH);
    fetch.step = (fetch.end + steps - 1) / steps;
    return fetch;
}

static ALWAYS_INLINE void attend_part(const struct attention_tile *part, enum vector_part kind) {
    const struct range seen = {part->hidden[0], part->visible[part->rows - 1]};
    bool has_tiles = part->rows > AMX_FEW_ROWS;
    uint32_t bad = 0;
    if (has_tiles && has_scales(kind)) copy_keys(part, seen.begin, seen.end, kind);
    if (has_tiles) bad = copy_values(part, seen, tile_layout(part->head_dim), kind);
    struct fetch fetch = plan_fetch(part, seen, kind);
    struct amx_scales scales[ATTENTION_PART / AMX_SPAN];
    uint32_t found = 0; // a bit for each span whose scales are there
    for (uint32_t row = 0; row < part->rows; row += GROUP) {
        struct group group;
        const struct attention_tile *tile = &group.tile;
        find_group(part, row, &group);
        if (tile->rows <= AMX_FEW_ROWS) widen_queries(part, &group.tile);
        uint32_t first = part->hidden[row] / AMX_SPAN * CHUNKS; // chunk of the group's first span
        for (uint32_t chunk = first; chunk < ATTENTION_PART_CHUNKS; chunk += CHUNKS) {
            find_span(part, row, chunk, &group, kind);
            if (group.chunks == 0) break;
            uint32_t span = chunk / CHUNKS;
            if (has_scales(kind) && !(found >> span & 1)) find_scales(part, chunk, &scales[span]);
            found |= 1u << span;
            group.scales = &scales[span];
            if (tile->rows <= AMX_FEW_ROWS) {
                if (chunk == first) clear_acc(tile);
                attend_few(&group, kind);
                continue;
            }
            score_group(tile, group.chunks, &fetch);
            softmax(&group, kind);
            uint32_t bad_here = bad >> chunk & ((1u << CHUNKS) - 1); // chunks of the span
            if (bad_here & partly_seen(tile)) {
                if (chunk == first) clear_acc(tile);
                value_group_masked(tile);
                struct range of_span = {in_span(chunk * LANES, seen.begin),
                                        in_span(chunk * LANES, seen.end)};
                copy_values(tile, of_span, tile_layout(tile->head_dim), PART_BF16_FIRST);
            } else {
                value_group(tile, group.chunks, chunk == first);
            }
        }
    }
}

void amx_attention_bf16(const struct attention_tile *part) {
    attend_part(part, PART_BF16_FIRST);
}

void amx_attention_int8(const struct attention_tile *part) {
    attend_part(part, PART_INT8);
}

void amx_attention_e4m3(const struct attention_tile *part) {
    attend_part(part, PART_E4M3);
}
