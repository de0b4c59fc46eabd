/* bf16 weights by AVX512_BF16: VDPBF16PS adds two products of bf16 to a 32-bit lane. Packed weights
 * become bf16 on the way: of many rows once for all of them, of few in registers. Of 4-bit codes
 * only the values do, and sums are scaled (packed_is_unscaled). */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/avx512_dots.h"
#include "backend/cpu/avx512/avx512_pairs.h"
#include "backend/cpu/linear/packed_fetch.h"

enum { PACKED_BLOCKS_MAX = 4 };

static ALWAYS_INLINE __m512i add_products(__m512i acc, __m512i x, __m512i weights) {
    __m512 sum = _mm512_dpbf16_ps(_mm512_castsi512_ps(acc), (__m512bh)x, (__m512bh)weights);
    return _mm512_castps_si512(sum);
}

static void bf16_dots(const struct linear_dots *dots) {
    avx512_dots(dots, true, add_products);
}

// How packed weights become bf16.
struct packed_way {
    enum unpack_kind kind;
    bool unscaled;
    unpack_table table;
};

// Adds the products of half a chunk of block `b`, whose weights, or values, become bf16 in
// registers.
static ALWAYS_INLINE void add_packed_half(const struct packed_chunk *chunk, uint32_t half,
                                          struct packed_way way, const unsigned char *x,
                                          uint32_t rows, uint32_t b,
                                          __m512i acc[DOTS_ROWS_MAX][PACKED_BLOCKS_MAX]) {
    const unsigned char *codes = unpack_half(chunk, half, way.kind);
    struct avx512_scales scales = avx512_scales_of(chunk, half, way.kind, way.table);
    struct avx512_codes words = {0};
    if (way.unscaled) words = avx512_codes_of(way.table, codes);
    UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
        __m512i pairs = way.unscaled ? avx512_value_pairs(&words, line)
                                     : avx512_pairs(way.kind, way.table, codes, line, &scales);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, x + (size_t)r * CHUNK_BYTES + (half * PACKED_LINES + line) * 4,
                   sizeof two);
            acc[r][b] = add_products(acc[r][b], _mm512_set1_epi32(two), pairs);
        }
    }
}

// A group's sum times its scales is added to the sums of those before, and the next one begins.
static ALWAYS_INLINE void end_group(const float scales[LANES], __m512i *acc, __m512 *total) {
    __m512 sum = _mm512_castsi512_ps(*acc);
    *total = _mm512_fmadd_ps(sum, _mm512_loadu_ps(scales), *total);
    *acc = _mm512_setzero_si512();
}

// Whether a chunk is the last one of its group.
static ALWAYS_INLINE bool ends_group(const struct packed_shape *shape, uint32_t chunk,
                                     uint32_t num_chunks) {
    uint32_t mask = (1u << shape->span_shift) - 1;
    return (chunk & mask) == mask || chunk + 1 == num_chunks;
}

// Some packed blocks.
static ALWAYS_INLINE void packed_group(const struct linear_dots *dots, uint32_t block,
                                       uint32_t rows, uint32_t blocks, enum unpack_kind kind,
                                       bool unscaled) {
    __m512i acc[DOTS_ROWS_MAX][PACKED_BLOCKS_MAX];
    __m512 total[DOTS_ROWS_MAX][PACKED_BLOCKS_MAX];
    const struct packed_shape *shape = dots->packed;
    const struct packed_way way = {kind, unscaled, unpack_table_of(shape->code)};
    const unsigned char *w = dots->weights + block * dots->block_bytes, *x = dots->x;
    float *sums = (float *)dots->sums + (size_t)block * LANES;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            total[r][b] = _mm512_loadu_ps(dots->start + (size_t)(block + b) * LANES);
            acc[r][b] = unscaled ? _mm512_setzero_si512() : _mm512_castps_si512(total[r][b]);
        }
    }
    struct packed_chunk chunk[PACKED_BLOCKS_MAX];
    UNROLL for (uint32_t b = 0; b < blocks; b++) packed_chunk_init(&chunk[b]);
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            packed_chunk_at(shape, w + b * dots->block_bytes, c, &chunk[b]);
            packed_fetch(shape, c, chunk[b].codes, kind == UNPACK_4BIT ? 256 : 512,
                         AVX512_DOTS_AHEAD);
        }
        for (uint32_t half = 0; half < 2; half++) {
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                add_packed_half(&chunk[b], half, way, x, rows, b, acc);
            }
        }
        if (!unscaled || !ends_group(shape, c, dots->chunks)) continue;
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                end_group(chunk[b].scales[0], &acc[r][b], &total[r][b]);
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            if (!unscaled) total[r][b] = _mm512_castsi512_ps(acc[r][b]);
            _mm512_storeu_ps(sums + r * dots->sums_stride + (size_t)b * LANES, total[r][b]);
        }
    }
}

// All blocks in groups of `most`, the rest one by one.
static ALWAYS_INLINE void packed_blocks(const struct linear_dots *dots, uint32_t rows,
                                        uint32_t most, enum unpack_kind kind, bool unscaled) {
    uint32_t block = 0;
    for (; dots->num_blocks - block >= most; block += most) {
        packed_group(dots, block, rows, most, kind, unscaled);
    }
    for (; block < dots->num_blocks; block++) packed_group(dots, block, rows, 1, kind, unscaled);
}

static ALWAYS_INLINE void packed_rows(const struct linear_dots *dots, enum unpack_kind kind,
                                      bool unscaled) {
    switch (dots->rows) {
    case 1:
        packed_blocks(dots, 1, 4, kind, unscaled);
        break;
    case 2:
        packed_blocks(dots, 2, 4, kind, unscaled);
        break;
    case 3:
        packed_blocks(dots, 3, 2, kind, unscaled);
        break;
    case 4:
        packed_blocks(dots, 4, 2, kind, unscaled);
        break;
    case 5:
        packed_blocks(dots, 5, 2, kind, unscaled);
        break;
    case 6:
        packed_blocks(dots, 6, 2, kind, unscaled);
        break;
    case 7:
        packed_blocks(dots, 7, 1, kind, unscaled);
        break;
    case 8:
        packed_blocks(dots, 8, 1, kind, unscaled);
        break;
    }
}

static void unscaled_rows(const struct linear_dots *dots) {
    packed_rows(dots, UNPACK_4BIT, true);
}

static void rows_4bit(const struct linear_dots *dots) {
    packed_rows(dots, UNPACK_4BIT, false);
}

static void rows_int8(const struct linear_dots *dots) {
    packed_rows(dots, UNPACK_INT8, false);
}

static void rows_e4m3(const struct linear_dots *dots) {
    packed_rows(dots, UNPACK_E4M3, false);
}

// By a list, so that each stays a function. The compiler takes longer for one that has them all.
static void packed_dots(const struct linear_dots *dots) {
    enum { UNSCALED = UNPACK_E4M3 + 1 };
    static void (*const by_kind[])(const struct linear_dots *) = {[UNPACK_4BIT] = rows_4bit,
                                                                  [UNPACK_INT8] = rows_int8,
                                                                  [UNPACK_E4M3] = rows_e4m3,
                                                                  [UNSCALED] = unscaled_rows};
    int kind = (int)unpack_kind_of(dots->packed->code);
    if (kind == UNPACK_4BIT && packed_is_unscaled(dots->packed, false)) kind = UNSCALED;
    by_kind[kind](dots);
}

// Values in tiles of bf16, for many rows: `dots` has the chunks from first_chunk on, whole groups.
// A row that is one group continues its sums, and is scaled at the end of the depth.
static ALWAYS_INLINE void values_group(const struct linear_dots *dots, uint32_t block,
                                       uint32_t rows, uint32_t blocks) {
    const struct packed_shape *shape = dots->packed;
    bool continues = packed_is_one_group(shape) && !dots->is_first, is_end = true;
    __m512i acc[DOTS_ROWS_MAX][DOTS_BLOCKS_MAX];
    __m512 total[DOTS_ROWS_MAX][DOTS_BLOCKS_MAX];
    float *sums = (float *)dots->sums + (size_t)block * LANES;
    const float *start = dots->start + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes, *x = dots->x;
    const unsigned char *packed = dots->packed_weights + block * dots->packed_block_bytes;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            const float *before = sums + r * dots->sums_stride + (size_t)b * LANES;
            bool is_start = dots->is_first || continues;
            acc[r][b] = continues ? _mm512_loadu_si512(before) : _mm512_setzero_si512();
            total[r][b] = _mm512_loadu_ps(is_start ? start + (size_t)b * LANES : before);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride) {
        UNROLL for (uint32_t line = 0; line < CHUNK_BYTES / 4; line++, w += CHUNK_BYTES) {
            __m512i pairs[DOTS_BLOCKS_MAX];
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                pairs[b] = _mm512_loadu_si512(w + b * dots->block_bytes);
            }
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                int32_t two;
                memcpy(&two, x + (size_t)r * CHUNK_BYTES + (size_t)line * 4, sizeof two);
                __m512i value = _mm512_set1_epi32(two);
                UNROLL for (uint32_t b = 0; b < blocks; b++) {
                    acc[r][b] = add_products(acc[r][b], value, pairs[b]);
                }
            }
        }
        uint32_t chunk = dots->first_chunk + c;
        is_end = ends_group(shape, chunk, dots->depth_chunks);
        if (!is_end) continue;
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            struct packed_chunk from;
            packed_chunk_init(&from);
            packed_chunk_at(shape, packed + b * dots->packed_block_bytes, chunk, &from);
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                end_group(from.scales[0], &acc[r][b], &total[r][b]);
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            __m512 out = is_end ? total[r][b] : _mm512_castsi512_ps(acc[r][b]);
            _mm512_storeu_ps(sums + r * dots->sums_stride + (size_t)b * LANES, out);
        }
    }
}

static ALWAYS_INLINE void values_blocks(const struct linear_dots *dots, uint32_t rows,
                                        uint32_t most) {
    uint32_t block = 0;
    for (; dots->num_blocks - block >= most; block += most) values_group(dots, block, rows, most);
    for (; block < dots->num_blocks; block++) values_group(dots, block, rows, 1);
}

static void values_rows(const struct linear_dots *dots) {
    switch (dots->rows) {
    case 1:
        values_blocks(dots, 1, 4);
        break;
    case 2:
        values_blocks(dots, 2, 4);
        break;
    case 3:
        values_blocks(dots, 3, 4);
        break;
    case 4:
        values_blocks(dots, 4, 3);
        break;
    case 5:
        values_blocks(dots, 5, 4);
        break;
    case 6:
        values_blocks(dots, 6, 4);
        break;
    case 7:
        values_blocks(dots, 7, 3);
        break;
    case 8:
        values_blocks(dots, 8, 3);
        break;
    }
}

// Of small groups up to 4 rows at a time: then the sums of this group and of those before are all
// in registers. Larger groups end so seldom that more rows are faster.
static void values_dots(const struct linear_dots *dots) {
    uint32_t most = dots->packed->span_shift < 2 ? DOTS_ROWS_MAX / 2 : DOTS_ROWS_MAX;
    struct linear_dots part = *dots;
    for (uint32_t row = 0; row < dots->rows; row += part.rows) {
        uint32_t left = dots->rows - row;
        part.rows = left > most ? (left + 1) / 2 : left;
        part.x = dots->x + (size_t)row * CHUNK_BYTES;
        part.sums = (float *)dots->sums + row * dots->sums_stride;
        values_rows(&part);
    }
}

void avx512_bf16_linear_pairs(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.bf16 = bf16_dots,
                                                .packed = packed_dots,
                                                .unpack = avx512_unpack_pairs,
                                                .values = values_dots,
                                                .unpack_values = avx512_unpack_values,
                                                .rows_max = DOTS_ROWS_MAX,
                                                .num_blocks = AVX512_DOTS_BLOCKS};
    linear_dots_run(item, &kernels);
}

void avx512_bf16_narrow(const float *x, float scale, uint32_t count, unsigned char *out,
                        size_t stride) {
    const __m512 factor = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
    for (uint32_t k = 0; k < count; k += 2 * LANES, x += 2 * LANES, out += stride) {
        uint32_t left = count - k;
        __m512 low = _mm512_maskz_loadu_ps(avx512_first_lanes(left), x);
        __m512 high = zero;
        if (left > LANES) high = _mm512_maskz_loadu_ps(avx512_first_lanes(left - LANES), x + LANES);
        // Adding 0 makes every zero +0: the sign of a zero that attention leaves may differ.
        low = _mm512_fmadd_ps(low, factor, zero);
        high = _mm512_fmadd_ps(high, factor, zero);
        _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}
