/* Packed weights times few rows on a machine with AMX, in AVX-512, with the bits that tiles give
 * (amx_linear.c). For tiles the weights would go through memory. A tile product adds in two chains
 * that begin with 0, one of the pairs' first numbers and one of their second. The sum of both is
 * then added to the result. Denormals count as 0, which the caller arranges. */
#include "backend/cpu/amx/amx_linear.h"
#include "backend/cpu/avx512/avx512_dots.h"
#include "backend/cpu/avx512/avx512_pairs.h"
#include "backend/cpu/linear/packed_fetch.h"

enum {
    BLOCKS_MAX = 4,
    NUMBERS = CHUNK_BYTES / 2,
};

// Of one row and block: the chains of a chunk, and the sum of the chunks before. Unscaled codes:
// the chains of outputs 0 to 7 in `first`, those of the others in `second`, and the sum of the
// group's chunks before.
struct sums {
    __m512 first, second, total, group;
};

struct few {
    const struct linear_dots *dots;
    const unsigned char *weights; // of the first block
    float *sums; // the same
    const float *start;
    unpack_table table;
};

// What the compiler knows of a call, so that its loops become straight code.
struct few_form {
    enum unpack_kind kind;
    bool unscaled;
    uint32_t rows, blocks;
};

// A chunk of each row as floats.
static ALWAYS_INLINE void widen_x(const unsigned char *x, uint32_t rows,
                                  float out[AMX_LINEAR_FEW_ROWS][NUMBERS]) {
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t half = 0; half < 2; half++) {
            const void *from = x + (size_t)r * CHUNK_BYTES + (size_t)half * 32;
            __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from));
            _mm512_storeu_ps(out[r] + half * 16, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
        }
    }
}

static ALWAYS_INLINE void add_pairs(__m512i pairs, const float x[2], struct sums *sums) {
    __m512 first = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    __m512i high = _mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xffff0000));
    sums->first = _mm512_fmadd_ps(_mm512_set1_ps(x[0]), first, sums->first);
    sums->second = _mm512_fmadd_ps(_mm512_set1_ps(x[1]), _mm512_castsi512_ps(high), sums->second);
}

// Values of codes. Lanes are outputs 0 to 7, or 8 to 15, each with the first and the second number
// of a pair. So the chains are side by side in lanes.
static ALWAYS_INLINE void add_values_half(const struct packed_chunk *chunk, uint32_t half,
                                          enum unpack_kind kind, unpack_table table, uint32_t rows,
                                          uint32_t b, float x[AMX_LINEAR_FEW_ROWS][NUMBERS],
                                          struct sums sums[AMX_LINEAR_FEW_ROWS][BLOCKS_MAX]) {
    const unsigned char *codes = unpack_half(chunk, half, kind);
    UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
        __m512 low = unpack_value(kind, table, codes, line, 0);
        __m512 high = unpack_value(kind, table, codes, line, 1);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            double two;
            memcpy(&two, &x[r][half * PACKED_HALF + line * 2], sizeof two);
            __m512 pair = _mm512_castpd_ps(_mm512_set1_pd(two));
            sums[r][b].first = _mm512_fmadd_ps(pair, low, sums[r][b].first);
            sums[r][b].second = _mm512_fmadd_ps(pair, high, sums[r][b].second);
        }
    }
}

// The sum of both chains of each output.
static ALWAYS_INLINE __m512 sum_of_chains(__m512 low, __m512 high) {
    const __m512i first =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i second =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_ps(_mm512_permutex2var_ps(low, first, high),
                         _mm512_permutex2var_ps(low, second, high));
}

// Packed weights that become bf16 in registers.
static ALWAYS_INLINE void add_rounded_half(const struct packed_chunk *chunk, uint32_t half,
                                           enum unpack_kind kind, unpack_table table, uint32_t rows,
                                           uint32_t b, float x[AMX_LINEAR_FEW_ROWS][NUMBERS],
                                           struct sums sums[AMX_LINEAR_FEW_ROWS][BLOCKS_MAX]) {
    const unsigned char *codes = unpack_half(chunk, half, kind);
    struct avx512_scales scales = avx512_scales_of(chunk, half, kind, table);
    UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
        __m512i pairs = avx512_pairs(kind, table, codes, line, &scales);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            add_pairs(pairs, &x[r][half * PACKED_HALF + line * 2], &sums[r][b]);
        }
    }
}

static ALWAYS_INLINE void add_packed_chunk(const struct few *few, uint32_t c, struct few_form form,
                                           struct packed_chunk chunk[BLOCKS_MAX],
                                           float x[AMX_LINEAR_FEW_ROWS][NUMBERS],
                                           struct sums sums[AMX_LINEAR_FEW_ROWS][BLOCKS_MAX]) {
    const struct packed_shape *shape = few->dots->packed;
    UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
        packed_chunk_at(shape, few->weights + b * few->dots->block_bytes, c, &chunk[b]);
        packed_fetch(shape, c, chunk[b].codes, form.kind == UNPACK_4BIT ? 256 : 512,
                     AVX512_DOTS_AHEAD);
    }
    for (uint32_t half = 0; half < 2; half++) {
        UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
            if (form.unscaled) {
                add_values_half(&chunk[b], half, form.kind, few->table, form.rows, b, x, sums);
            } else {
                add_rounded_half(&chunk[b], half, form.kind, few->table, form.rows, b, x, sums);
            }
        }
    }
    if (!form.unscaled) return;
    uint32_t mask = (1u << shape->span_shift) - 1;
    bool is_last = (c & mask) == mask || c + 1 == few->dots->chunks;
    UNROLL for (uint32_t r = 0; r < form.rows; r++) {
        UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
            struct sums *s = &sums[r][b];
            s->group = _mm512_add_ps(s->group, sum_of_chains(s->first, s->second));
            if (!is_last) continue;
            __m512 scales = avx512_group_scales(form.kind, chunk[b].scales[0]);
            s->total = _mm512_fmadd_ps(s->group, scales, s->total);
            s->group = _mm512_setzero_ps();
        }
    }
}

static ALWAYS_INLINE void add_chunk(const struct few *few, uint32_t c, struct few_form form,
                                    struct packed_chunk chunk[BLOCKS_MAX],
                                    float x[AMX_LINEAR_FEW_ROWS][NUMBERS],
                                    struct sums sums[AMX_LINEAR_FEW_ROWS][BLOCKS_MAX]) {
    UNROLL for (uint32_t r = 0; r < form.rows; r++) {
        UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
            sums[r][b].first = sums[r][b].second = _mm512_setzero_ps();
        }
    }
    add_packed_chunk(few, c, form, chunk, x, sums);
    UNROLL for (uint32_t r = 0; r < form.rows; r++) {
        UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
            struct sums *s = &sums[r][b];
            if (!form.unscaled)
                s->total = _mm512_add_ps(s->total, _mm512_add_ps(s->first, s->second));
        }
    }
}

static ALWAYS_INLINE void few_group(const struct few *few, struct few_form form) {
    const struct linear_dots *dots = few->dots;
    struct sums sums[AMX_LINEAR_FEW_ROWS][BLOCKS_MAX];
    UNROLL for (uint32_t r = 0; r < form.rows; r++) {
        UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
            sums[r][b].total = _mm512_loadu_ps(few->start + (size_t)b * LANES);
            sums[r][b].group = _mm512_setzero_ps();
        }
    }
    const unsigned char *from = dots->x;
    struct packed_chunk chunk[BLOCKS_MAX];
    UNROLL for (uint32_t b = 0; b < form.blocks; b++) packed_chunk_init(&chunk[b]);
    for (uint32_t c = 0; c < dots->chunks; c++, from += dots->x_stride) {
        float x[AMX_LINEAR_FEW_ROWS][NUMBERS];
        widen_x(from, form.rows, x);
        add_chunk(few, c, form, chunk, x, sums);
    }
    UNROLL for (uint32_t r = 0; r < form.rows; r++) {
        UNROLL for (uint32_t b = 0; b < form.blocks; b++) {
            _mm512_storeu_ps(few->sums + r * dots->sums_stride + (size_t)b * LANES,
                             sums[r][b].total);
        }
    }
}

// All blocks in groups of `most`, the rest one by one.
static ALWAYS_INLINE void few_blocks(const struct linear_dots *dots, enum unpack_kind kind,
                                     bool unscaled, uint32_t rows, uint32_t most) {
    struct few few = {.dots = dots,
                      .weights = dots->weights,
                      .sums = dots->sums,
                      .start = dots->start,
                      .table = unpack_table_of(dots->packed->code)};
    for (uint32_t left = dots->num_blocks; left > 0;) {
        uint32_t count = left >= most ? most : 1;
        if (count == most) {
            few_group(&few, (struct few_form){kind, unscaled, rows, most});
        } else {
            few_group(&few, (struct few_form){kind, unscaled, rows, 1});
        }
        left -= count;
        few.weights += count * dots->block_bytes;
        few.sums += (size_t)count * LANES;
        few.start += (size_t)count * LANES;
    }
}

static ALWAYS_INLINE void few_rows(const struct linear_dots *dots, enum unpack_kind kind,
                                   bool unscaled) {
    if (dots->rows == 1) {
        few_blocks(dots, kind, unscaled, 1, 4);
    } else {
        few_blocks(dots, kind, unscaled, 2, 2);
    }
}

static ALWAYS_INLINE void packed_rows(const struct linear_dots *dots, enum unpack_kind kind) {
    if (amx_is_unscaled(dots->packed)) {
        few_rows(dots, kind, true);
    } else {
        few_rows(dots, kind, false);
    }
}

static void packed_dots(const struct linear_dots *dots) {
    switch (unpack_kind_of(dots->packed->code)) {
    case UNPACK_4BIT:
        packed_rows(dots, UNPACK_4BIT);
        break;
    case UNPACK_INT8:
        packed_rows(dots, UNPACK_INT8);
        break;
    case UNPACK_E4M3:
        packed_rows(dots, UNPACK_E4M3);
        break;
    }
}

void amx_linear_few(const struct linear_item *item) {
    static const struct dots_kernels kernels = {
        .packed = packed_dots, .rows_max = AMX_LINEAR_FEW_ROWS, .num_blocks = {0, 4, 4}};
    linear_dots_run(item, &kernels);
}
