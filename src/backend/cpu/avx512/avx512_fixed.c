/* Fixed-point weights (fixed.h) by AVX512_VNNI: VPDPBUSD adds four products of codes, as they are,
 * and bytes of x to a 32-bit lane. A group's sum is multiplied by its factors, a record's by its
 * units. Sums of a record are modulo 2^32, which changes nothing: the whole one fits. */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/avx512_dots.h"
#include "backend/cpu/linear/fixed.h"

enum { ROWS_MAX = 6, BLOCKS_MAX = 8 };

// How codes become bytes without a sign.
enum fixed_kind { CODES_4BIT, CODES_TABLE, CODES_8BIT };

// Some rows times some blocks.
struct fixed_group {
    const struct linear_dots *dots;
    const unsigned char *weights; // of the first block
    const unsigned char *x; // of the first row
    float *sums;
    const float *start;
    uint32_t row; // of x_fixed
    __m512i table; // the values of CODES_TABLE
};

// The sums of a record: of the present group, and of those before times their factors.
struct fixed_sums {
    __m512i group[ROWS_MAX][BLOCKS_MAX], total[ROWS_MAX][BLOCKS_MAX];
};

// A quad of a chunk's half, of all outputs. Bytes begin at the half, others at the chunk.
static ALWAYS_INLINE __m512i load_quad(const unsigned char *chunk, uint32_t half, uint32_t quad,
                                       enum fixed_kind kind, __m512i table) {
    const unsigned char *from = chunk + (size_t)quad * FIXED_QUAD_BYTES;
    if (kind == CODES_8BIT || half == 0) {
        _mm_prefetch((const void *)(from + AVX512_DOTS_AHEAD), _MM_HINT_T0);
    }
    __m512i codes = _mm512_loadu_si512(from);
    if (kind == CODES_8BIT) return codes;
    if (half) codes = _mm512_srli_epi16(codes, 4);
    codes = _mm512_and_si512(codes, _mm512_set1_epi8(15));
    return kind == CODES_TABLE ? _mm512_shuffle_epi8(table, codes) : codes;
}

// x: of the first row, at the half's first input.
static ALWAYS_INLINE void add_half(const struct fixed_group *g, const unsigned char *chunk,
                                   uint32_t half, enum fixed_kind kind, const unsigned char *x,
                                   uint32_t rows, uint32_t blocks, struct fixed_sums *sums) {
    UNROLL for (uint32_t quad = 0; quad < 4; quad++, x += 4) {
        __m512i codes[BLOCKS_MAX];
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            codes[b] = load_quad(chunk + b * g->dots->block_bytes, half, quad, kind, g->table);
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + (size_t)r * CHUNK_BYTES, sizeof four);
            __m512i value = _mm512_set1_epi32(four);
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                sums->group[r][b] = _mm512_dpbusd_epi32(sums->group[r][b], codes[b], value);
            }
        }
    }
}

// The sum of a group's bytes of x.
static ALWAYS_INLINE int32_t sum_of_x(const struct fixed_group *g, uint32_t row, uint32_t record,
                                      uint32_t part) {
    const int16_t *sums = fixed_x_sums(g->dots->x_fixed, record, g->row + row);
    return sums[part / g->dots->fixed->parts_per_group];
}

static ALWAYS_INLINE __m512i widen(const int16_t from[LANES]) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)from));
}

// Codes are values plus a bias, which is taken off here.
static ALWAYS_INLINE void begin_group(const struct fixed_group *g, uint32_t record, uint32_t part,
                                      uint32_t rows, uint32_t blocks, struct fixed_sums *sums) {
    int32_t bias = fixed_bias(g->dots->fixed->code);
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        __m512i first = _mm512_set1_epi32(-bias * sum_of_x(g, r, record, part));
        UNROLL for (uint32_t b = 0; b < blocks; b++) sums->group[r][b] = first;
    }
}

static ALWAYS_INLINE void end_group(const struct fixed_group *g, uint32_t record, uint32_t part,
                                    uint32_t rows, uint32_t blocks, struct fixed_sums *sums) {
    const struct fixed_shape *shape = g->dots->fixed;
    uint32_t at = part / shape->parts_per_group * LANES;
    UNROLL for (uint32_t b = 0; b < blocks; b++) {
        struct fixed_record from =
            fixed_record_of(shape, g->weights + b * g->dots->block_bytes, record);
        __m512i factors = widen(from.factors + at);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            __m512i scaled = _mm512_mullo_epi32(sums->group[r][b], factors);
            sums->total[r][b] = _mm512_add_epi32(sums->total[r][b], scaled);
        }
        if (!from.offsets) continue;
        __m512i offsets = widen(from.offsets + at);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t sum = sum_of_x(g, r, record, part);
            __m512i scaled = _mm512_mullo_epi32(offsets, _mm512_set1_epi32(sum));
            sums->total[r][b] = _mm512_add_epi32(sums->total[r][b], scaled);
        }
    }
}

// Adds a record's sums to those of the records before.
static ALWAYS_INLINE void end_record(const struct fixed_group *g, uint32_t record, uint32_t rows,
                                     uint32_t blocks, const struct fixed_sums *sums) {
    const struct linear_dots *dots = g->dots;
    const float *scales = fixed_x_scale(dots->x_fixed, record, g->row);
    UNROLL for (uint32_t b = 0; b < blocks; b++) {
        struct fixed_record from =
            fixed_record_of(dots->fixed, g->weights + b * dots->block_bytes, record);
        __m512 units = _mm512_loadu_ps(from.units);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            float *to = g->sums + r * dots->sums_stride + (size_t)b * LANES;
            const float *before = record == 0 ? g->start + (size_t)b * LANES : to;
            __m512 scale = _mm512_mul_ps(units, _mm512_set1_ps(scales[r]));
            __m512 sum = _mm512_cvtepi32_ps(sums->total[r][b]);
            _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(before)));
        }
    }
}

// A part of a record, whose x begins at `x`.
static ALWAYS_INLINE void add_part(const struct fixed_group *g, const unsigned char *chunks,
                                   uint32_t part, enum fixed_kind kind, const unsigned char *x,
                                   uint32_t rows, uint32_t blocks, struct fixed_sums *sums) {
    const unsigned char *chunk = chunks + (size_t)part / 2 * g->dots->fixed->chunk_bytes;
    x += part / 4 * g->dots->x_stride + part % 4 * FIXED_PART;
    if (kind == CODES_8BIT) {
        chunk += (size_t)(part % 2) * 4 * FIXED_QUAD_BYTES;
        add_half(g, chunk, 0, kind, x, rows, blocks, sums);
    } else if (part % 2 == 0) {
        add_half(g, chunk, 0, kind, x, rows, blocks, sums);
    } else {
        add_half(g, chunk, 1, kind, x, rows, blocks, sums);
    }
}

static ALWAYS_INLINE void fixed_blocks(const struct fixed_group *g, enum fixed_kind kind,
                                       uint32_t rows, uint32_t blocks) {
    const struct linear_dots *dots = g->dots;
    const struct fixed_shape *shape = dots->fixed;
    const unsigned char *x = g->x;
    uint32_t end = dots->first_chunk + dots->chunks, per_record = FIXED_RECORD / CHUNK_BYTES;
    for (uint32_t first = dots->first_chunk; first < end; first += per_record) {
        uint32_t record = first / per_record, left = end - first;
        uint32_t parts = (left < per_record ? left : per_record) * CHUNK_BYTES / FIXED_PART;
        const unsigned char *chunks = fixed_record_of(shape, g->weights, record).chunks;
        struct fixed_sums sums;
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            UNROLL for (uint32_t b = 0; b < blocks; b++) {
                sums.total[r][b] = _mm512_setzero_si512();
            }
        }
        for (uint32_t part = 0; part < parts; part += shape->parts_per_group) {
            uint32_t stop = part + shape->parts_per_group;
            if (stop > parts) stop = parts;
            begin_group(g, record, part, rows, blocks, &sums);
            for (uint32_t at = part; at < stop; at++) {
                add_part(g, chunks, at, kind, x, rows, blocks, &sums);
            }
            end_group(g, record, part, rows, blocks, &sums);
        }
        end_record(g, record, rows, blocks, &sums);
        x += per_record * dots->x_stride;
    }
}

// All blocks in groups of `most`, the rest one by one and each row alone.
static ALWAYS_INLINE void fixed_rows(const struct linear_dots *dots, enum fixed_kind kind,
                                     uint32_t rows, uint32_t most) {
    uint8_t table[16];
    fixed_table(dots->fixed->code, table);
    struct fixed_group g = {.dots = dots,
                            .weights = dots->weights,
                            .x = dots->x,
                            .row = dots->x_row,
                            .sums = dots->sums,
                            .start = dots->start,
                            .table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table))};
    for (uint32_t left = dots->num_blocks; left > 0;) {
        uint32_t count = left >= most ? most : 1;
        if (count == most) {
            fixed_blocks(&g, kind, rows, most);
        } else {
            struct fixed_group one = g;
            for (uint32_t r = 0; r < rows; r++, one.row++) {
                fixed_blocks(&one, kind, 1, 1);
                one.x += CHUNK_BYTES;
                one.sums += dots->sums_stride;
            }
        }
        left -= count;
        g.weights += count * dots->block_bytes;
        g.sums += (size_t)count * LANES;
        g.start += (size_t)count * LANES;
    }
}

// Sums of up to 24 registers: a group's and a record's.
static ALWAYS_INLINE void fixed_kind_dots(const struct linear_dots *dots, enum fixed_kind kind) {
    switch (dots->rows) {
    case 1:
        fixed_rows(dots, kind, 1, 8);
        break;
    case 2:
        fixed_rows(dots, kind, 2, 4);
        break;
    case 3:
        fixed_rows(dots, kind, 3, 4);
        break;
    case 4:
        fixed_rows(dots, kind, 4, 2);
        break;
    case 5:
        fixed_rows(dots, kind, 5, 2);
        break;
    case 6:
        fixed_rows(dots, kind, 6, 2);
        break;
    }
}

static void fixed_dots(const struct linear_dots *dots) {
    if (dots->fixed->code == WEIGHT_CODE_INT8) {
        fixed_kind_dots(dots, CODES_8BIT);
    } else if (dots->fixed->code == WEIGHT_CODE_INT4) {
        fixed_kind_dots(dots, CODES_4BIT);
    } else {
        fixed_kind_dots(dots, CODES_TABLE);
    }
}

void avx512_vnni_linear_fixed(const struct linear_item *item) {
    static const struct dots_kernels kernels = {
        .fixed = fixed_dots, .rows_max = ROWS_MAX, .num_blocks = {0, 8, 4, 4, 2, 2, 2}};
    linear_dots_run(item, &kernels);
}
