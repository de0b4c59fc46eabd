/* Attention of few rows on a machine with AMX, in AVX-512. Tiles that wait for memory are slow, and
 * most of their rows would be empty. The arithmetic of tiles is repeated to the bit. A tile product
 * adds in two chains that begin with 0, one of the pairs' first numbers and one of their second.
 * The sum of both is then added to the result. Denormals count as 0. */
#include <string.h>

#include "backend/cpu/amx/amx_attention.h"

enum {
    SUMS_MAX = 8, // rows x vectors that are summed at a time: two chains and a total each
    CHUNKS_MAX = 4, // chunks of scores that are summed at a time
};

struct chains {
    __m512 first, second;
};

static ALWAYS_INLINE __m512 first_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

static ALWAYS_INLINE __m512 second_of(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000)));
}

static ALWAYS_INLINE __m512i broadcast(const uint16_t *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return _mm512_set1_epi32(both);
}

// Scores of all rows against `chunks` K chunks from `chunk` on.
static ALWAYS_INLINE void score_group(const struct attention_tile *tile, uint32_t chunk,
                                      uint32_t rows, uint32_t chunks) {
    __m512 total[SUMS_MAX];
    const uint16_t *q = tile->q, *k[CHUNKS_MAX], *next[CHUNKS_MAX];
    UNROLL for (uint32_t c = 0; c < chunks; c++) {
        k[c] = tile->k[chunk + c];
        next[c] = tile->next_k[chunk + c];
    }
    UNROLL for (uint32_t i = 0; i < rows * chunks; i++) total[i] = _mm512_setzero_ps();
    for (size_t d = 0; d < tile->head_dim;) {
        size_t end = d + AMX_DEPTH < tile->head_dim ? d + AMX_DEPTH : tile->head_dim;
        struct chains sums[SUMS_MAX];
        UNROLL for (uint32_t i = 0; i < rows * chunks; i++) {
            sums[i].first = sums[i].second = _mm512_setzero_ps();
        }
        for (; d < end; d += 2) {
            __m512 first[CHUNKS_MAX], second[CHUNKS_MAX];
            UNROLL for (uint32_t c = 0; c < chunks; c++) {
                __m512i pairs = _mm512_loadu_si512(k[c] + d * LANES);
                first[c] = first_of(pairs);
                second[c] = second_of(pairs);
                _mm_prefetch((const char *)(next[c] + d * LANES), _MM_HINT_T1);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                __m512i pairs = broadcast(q + (size_t)r * tile->head_dim + d);
                __m512 q_first = first_of(pairs), q_second = second_of(pairs);
                UNROLL for (uint32_t c = 0; c < chunks; c++) {
                    struct chains *sum = &sums[r * chunks + c];
                    sum->first = _mm512_fmadd_ps(q_first, first[c], sum->first);
                    sum->second = _mm512_fmadd_ps(q_second, second[c], sum->second);
                }
            }
        }
        UNROLL for (uint32_t i = 0; i < rows * chunks; i++) {
            total[i] = _mm512_add_ps(total[i], _mm512_add_ps(sums[i].first, sums[i].second));
        }
    }
    float *scores = tile->scores + (size_t)chunk * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t c = 0; c < chunks; c++) {
            _mm512_storeu_ps(scores + r * AMX_SPAN + c * LANES, total[r * chunks + c]);
        }
    }
}

static ALWAYS_INLINE void score_rows(const struct attention_tile *tile, uint32_t chunks,
                                     uint32_t rows, uint32_t most) {
    uint32_t chunk = 0;
    for (; chunks - chunk >= most; chunk += most) score_group(tile, chunk, rows, most);
    if (most > 2 && chunks - chunk >= 2) score_group(tile, chunk, rows, 2), chunk += 2;
    if (most > 1 && chunk < chunks) score_group(tile, chunk, rows, 1);
}

// Adds the products of one chunk to the sums of `rows` rows and `vectors` x 16 dimensions, from
// `dim` on.
static ALWAYS_INLINE void add_chunk(const struct attention_tile *tile, uint32_t c, uint32_t dim,
                                    uint32_t rows, uint32_t vectors, struct chains *sums) {
    size_t head_dim = tile->head_dim;
    const uint16_t *p = (const uint16_t *)(const void *)tile->scores + (size_t)c * LANES;
    const uint16_t *v = (const uint16_t *)tile->v[c] + (size_t)dim * 2;
    const uint16_t *next = (const uint16_t *)tile->next_v[c] + (size_t)dim * 2;
    for (uint32_t j = 0; j < LANES; j += 2, p += 2, v += head_dim * 2, next += head_dim * 2) {
        __m512 first[SUMS_MAX], second[SUMS_MAX];
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            __m512i pairs = _mm512_loadu_si512(v + (size_t)i * 2 * LANES);
            first[i] = first_of(pairs);
            second[i] = second_of(pairs);
            _mm_prefetch((const char *)(next + (size_t)i * 2 * LANES), _MM_HINT_T1);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512i pairs = broadcast(p + (size_t)r * AMX_SPAN * 2);
            __m512 p_first = first_of(pairs), p_second = second_of(pairs);
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                struct chains *sum = &sums[r * vectors + i];
                sum->first = _mm512_fmadd_ps(p_first, first[i], sum->first);
                sum->second = _mm512_fmadd_ps(p_second, second[i], sum->second);
            }
        }
    }
}

// acc += p V for `rows` rows and `vectors` x 16 dimensions from `dim` on. A tile product adds two
// chunks.
static ALWAYS_INLINE void value_group(const struct attention_tile *tile, uint32_t chunks,
                                      uint32_t dim, uint32_t rows, uint32_t vectors) {
    size_t head_dim = tile->head_dim;
    float *acc = tile->acc + dim;
    __m512 total[SUMS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            total[r * vectors + i] = _mm512_loadu_ps(acc + r * head_dim + (size_t)i * LANES);
        }
    }
    for (uint32_t c = 0; c < chunks; c += 2) {
        struct chains sums[SUMS_MAX];
        UNROLL for (uint32_t i = 0; i < rows * vectors; i++) {
            sums[i].first = sums[i].second = _mm512_setzero_ps();
        }
        add_chunk(tile, c, dim, rows, vectors, sums);
        if (c + 1 < chunks) add_chunk(tile, c + 1, dim, rows, vectors, sums);
        UNROLL for (uint32_t i = 0; i < rows * vectors; i++) {
            total[i] = _mm512_add_ps(total[i], _mm512_add_ps(sums[i].first, sums[i].second));
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            _mm512_storeu_ps(acc + r * head_dim + (size_t)i * LANES, total[r * vectors + i]);
        }
    }
}

static ALWAYS_INLINE void value_rows(const struct attention_tile *tile, uint32_t chunks,
                                     uint32_t rows, uint32_t most) {
    uint32_t dim = 0;
    for (; tile->head_dim - dim >= most * LANES; dim += most * LANES) {
        value_group(tile, chunks, dim, rows, most);
    }
    for (; dim < tile->head_dim; dim += LANES) value_group(tile, chunks, dim, rows, 1);
}

void amx_score_few(const struct attention_tile *tile, uint32_t chunks) {
    switch (tile->rows) {
    case 1:
        score_rows(tile, chunks, 1, 4);
        break;
    case 2:
        score_rows(tile, chunks, 2, 4);
        break;
    case 3:
        score_rows(tile, chunks, 3, 2);
        break;
    case 4:
        score_rows(tile, chunks, 4, 2);
        break;
    case 5:
        score_rows(tile, chunks, 5, 1);
        break;
    case 6:
        score_rows(tile, chunks, 6, 1);
        break;
    case 7:
        score_rows(tile, chunks, 7, 1);
        break;
    case 8:
        score_rows(tile, chunks, 8, 1);
        break;
    }
}

void amx_value_few(const struct attention_tile *tile, uint32_t chunks) {
    switch (tile->rows) {
    case 1:
        value_rows(tile, chunks, 1, 4);
        break;
    case 2:
        value_rows(tile, chunks, 2, 4);
        break;
    case 3:
        value_rows(tile, chunks, 3, 2);
        break;
    case 4:
        value_rows(tile, chunks, 4, 2);
        break;
    case 5:
        value_rows(tile, chunks, 5, 1);
        break;
    case 6:
        value_rows(tile, chunks, 6, 1);
        break;
    case 7:
        value_rows(tile, chunks, 7, 1);
        break;
    case 8:
        value_rows(tile, chunks, 8, 1);
        break;
    }
}
