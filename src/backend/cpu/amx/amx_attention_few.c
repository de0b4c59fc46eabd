/* Attention of few rows on a machine with AMX, in AVX-512. Tiles that wait for memory are slow, and
 * most of their rows would be empty. The arithmetic of tiles is repeated to the bit. A tile product
 * adds in two chains that begin with 0, one of the pairs' first numbers and one of their second.
 * The sum of both is then added to the result. Denormals count as 0. */
#include "backend/cpu/amx/amx_attention.h"
#include "backend/cpu/attention/attention_part.h"

// Prefetches `bytes` of what is read later.
static ALWAYS_INLINE void fetch(const char *at, size_t bytes) {
    UNROLL for (size_t i = 0; i < bytes; i += CHUNK_BYTES) _mm_prefetch(at + i, _MM_HINT_T1);
}

// A result of each row and vector: its total, and the two chains of a tile product. At most 8 of
// each stay in registers.
struct sums {
    vector total[VECTOR_ROWS_MAX][VECTORS_MAX], first[VECTOR_ROWS_MAX][VECTORS_MAX],
        second[VECTOR_ROWS_MAX][VECTORS_MAX];
};

static ALWAYS_INLINE void begin_chains(struct sums *sums, uint32_t rows, uint32_t vectors) {
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            sums->first[r][i] = sums->second[r][i] = vector_zero();
        }
    }
}

static ALWAYS_INLINE void end_chains(struct sums *sums, uint32_t rows, uint32_t vectors) {
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            vector both = vector_add(sums->first[r][i], sums->second[r][i]);
            sums->total[r][i] = vector_add(sums->total[r][i], both);
        }
    }
}

// Scores of all rows against `chunks` K chunks from `chunk` on.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t chunk,
                                      uint32_t rows, uint32_t chunks, enum vector_part part) {
    size_t head_dim = tile->head_dim, step = pair_bytes(LANES, part), at = 0;
    size_t to_second = second_bytes(LANES, part);
    const float *q = tile->q;
    const char *k[VECTORS_MAX], *next[VECTORS_MAX];
    struct sums sums;
    UNROLL for (uint32_t c = 0; c < chunks; c++) {
        k[c] = tile->k[chunk + c];
        next[c] = tile->next_k[chunk + c];
        UNROLL for (uint32_t r = 0; r < rows; r++) sums.total[r][c] = vector_zero();
    }
    for (size_t d = 0; d < head_dim;) {
        size_t end = d + AMX_DEPTH < head_dim ? d + AMX_DEPTH : head_dim;
        begin_chains(&sums, rows, chunks);
        for (; d < end; d += 2, at += step) {
            vector_multiply_add(sums.first, q + d, head_dim, k, at, rows, chunks, part);
            vector_multiply_add(sums.second, q + d + 1, head_dim, k, at + to_second, rows, chunks,
                                second_part(part));
            UNROLL for (uint32_t c = 0; c < chunks; c++) fetch(next[c] + at, step);
        }
        end_chains(&sums, rows, chunks);
    }
    float *scores = tile->scores + (size_t)chunk * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t c = 0; c < chunks; c++) {
            vector_store(scores + r * AMX_SPAN + c * LANES, sums.total[r][c]);
        }
    }
}

static ALWAYS_INLINE void score_rows(const struct attention_tile *tile, uint32_t chunks,
                                     uint32_t rows, uint32_t most, enum vector_part part) {
    uint32_t chunk = 0;
    for (; chunks - chunk >= most; chunk += most) score_group(tile, chunk, rows, most, part);
    if (most > 2 && chunks - chunk >= 2) score_group(tile, chunk, rows, 2, part), chunk += 2;
    if (most > 1 && chunk < chunks) score_group(tile, chunk, rows, 1, part);
}

// Adds the products of one chunk to the sums of `rows` rows and `vectors` x 16 dimensions, from
// `dim` on. Fetches the same of a later chunk: the span may have that chunk too.
static ALWAYS_INLINE void add_chunk(const struct attention_tile *tile, uint32_t c, uint32_t dim,
                                    uint32_t rows, uint32_t vectors, struct sums *sums,
                                    enum vector_part part) {
    size_t to_second = second_bytes(tile->head_dim, part), step = pair_bytes(tile->head_dim, part);
    size_t bytes = line_bytes((size_t)vectors * LANES, part); // that a turn reads of a line
    const float *p = tile->scores + (size_t)c * LANES;
    const char *v[VECTORS_MAX];
    const char *next = (const char *)tile->next_v[c] + line_bytes(dim, part);
    UNROLL for (uint32_t i = 0; i < vectors; i++) {
        v[i] = (const char *)tile->v[c] + line_bytes(dim + i * LANES, part);
    }
    for (uint32_t j = 0; j < LANES / 2; j++, p += 2, next += step) {
        vector_multiply_add(sums->first, p, AMX_SPAN, v, j * step, rows, vectors, part);
        vector_multiply_add(sums->second, p + 1, AMX_SPAN, v, j * step + to_second, rows, vectors,
                            second_part(part));
        fetch(next, bytes);
        if (to_second) fetch(next + to_second, bytes);
    }
}

// acc += p V for `rows` rows and `vectors` x 16 dimensions from `dim` on. A tile product adds two
// chunks.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, uint32_t chunks,
                                      uint32_t dim, uint32_t rows, uint32_t vectors,
                                      enum vector_part part) {
    size_t head_dim = tile->head_dim;
    float *acc = tile->acc + dim;
    struct sums sums;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            sums.total[r][i] = vector_load(acc + r * head_dim + (size_t)i * LANES);
        }
    }
    for (uint32_t c = 0; c < chunks; c += 2) {
        begin_chains(&sums, rows, vectors);
        add_chunk(tile, c, dim, rows, vectors, &sums, part);
        if (c + 1 < chunks) add_chunk(tile, c + 1, dim, rows, vectors, &sums, part);
        end_chains(&sums, rows, vectors);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            vector_store(acc + r * head_dim + (size_t)i * LANES, sums.total[r][i]);
        }
    }
}

static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, uint32_t chunks,
                                     uint32_t rows, uint32_t most, enum vector_part part) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * LANES; dim += most * LANES) {
        value_group(tile, chunks, dim, rows, most, part);
    }
    for (; dim < tile->head_dim; dim += LANES) value_group(tile, chunks, dim, rows, 1, part);
}

static ALWAYS_INLINE void score_few(const struct attention_tile *tile, uint32_t chunks,
                                    enum vector_part part) {
    switch (tile->rows) {
    case 1:
        score_rows(tile, chunks, 1, 4, part);
        break;
    case 2:
        score_rows(tile, chunks, 2, 4, part);
        break;
    case 3:
        score_rows(tile, chunks, 3, 2, part);
        break;
    case 4:
        score_rows(tile, chunks, 4, 2, part);
        break;
    case 5:
        score_rows(tile, chunks, 5, 1, part);
        break;
    case 6:
        score_rows(tile, chunks, 6, 1, part);
        break;
    case 7:
        score_rows(tile, chunks, 7, 1, part);
        break;
    case 8:
        score_rows(tile, chunks, 8, 1, part);
        break;
    }
}

static ALWAYS_INLINE void value_few(const struct attention_tile *tile, uint32_t chunks,
                                    enum vector_part part) {
    switch (tile->rows) {
    case 1:
        value_rows(tile, chunks, 1, 4, part);
        break;
    case 2:
        value_rows(tile, chunks, 2, 4, part);
        break;
    case 3:
        value_rows(tile, chunks, 3, 2, part);
        break;
    case 4:
        value_rows(tile, chunks, 4, 2, part);
        break;
    case 5:
        value_rows(tile, chunks, 5, 1, part);
        break;
    case 6:
        value_rows(tile, chunks, 6, 1, part);
        break;
    case 7:
        value_rows(tile, chunks, 7, 1, part);
        break;
    case 8:
        value_rows(tile, chunks, 8, 1, part);
        break;
    }
}

void amx_widen(const uint16_t *from, size_t count, float *to) {
    for (size_t i = count; i > 0; i -= LANES) { // from the end, as `to` may be the same memory
        __m256i narrow = _mm256_loadu_si256((const void *)(from + i - LANES));
        __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
        vector_store(to + i - LANES, _mm512_castsi512_ps(wide));
    }
}

void amx_score_few(const struct attention_tile *tile, uint32_t chunks, enum vector_part part) {
    if (part == PART_BF16_FIRST) score_few(tile, chunks, PART_BF16_FIRST);
    if (part == PART_INT8) score_few(tile, chunks, PART_INT8);
    if (part == PART_E4M3) score_few(tile, chunks, PART_E4M3);
}

void amx_value_few(const struct attention_tile *tile, uint32_t chunks, enum vector_part part) {
    for (uint32_t row = 0; row < tile->rows; row++) {
        float *p = tile->scores + (size_t)row * AMX_SPAN;
        amx_widen((const uint16_t *)(const void *)p, chunks * LANES, p);
    }
    if (part == PART_BF16_FIRST) value_few(tile, chunks, PART_BF16_FIRST);
    if (part == PART_INT8) value_few(tile, chunks, PART_INT8);
    if (part == PART_E4M3) value_few(tile, chunks, PART_E4M3);
}
