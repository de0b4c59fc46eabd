/* Packed weights times x as 16-bit integers (linear/fixed.h) in registers of 32 bytes, for any
 * instructions that multiply bytes and pairs of 16 bits. Codes of 4 bits are unsigned quads of a
 * 32-bit lane as they lie in memory, after a mask or a shift. A register of them has 4 outputs:
 * lanes of even and odd inputs alternate, and are added at the end of a chunk. Tables' values get
 * 12 or 127 added to be unsigned. A weight is unpacked once for some rows of x. */
#ifndef BACKEND_CPU_AVX2_FIXED_H
#define BACKEND_CPU_AVX2_FIXED_H

#include <string.h>

#include "backend/cpu/avx2/avx2.h"
#include "backend/cpu/linear/fixed_run.h"
#include "backend/cpu/linear/packed_fetch.h"

enum {
    AVX2_FIXED_ROWS_MAX = 4,
    AVX2_FIXED_QUARTERS = 4, // registers of 4 outputs
    AVX2_FIXED_AHEAD_BYTES = 4096, // that weights are fetched ahead
};

// The products of an instruction set. Sums of quads begin with 0.
struct avx2_fixed_products {
    // Adds products of 32 unsigned bytes of weights and bytes of x. A lane may keep two sums of 16
    // bits: of a chunk's 4 calls with codes of at most AVX2_FIXED_SMALL.
    __m256i (*quads)(__m256i sums, __m256i codes, __m256i x);
    // The same of weights with signs, in sums of 32 bits; `size` is the magnitude of x.
    __m256i (*signed_quads)(__m256i sums, __m256i weights, __m256i x, __m256i size);
    // 256 * high + low, in 32 bits, of sums that `quads` has made.
    __m256i (*join)(__m256i high, __m256i low);
    // Adds products of pairs of 16 bits.
    __m256i (*pairs)(__m256i sums, __m256i weights, __m256i x);
};

enum { AVX2_FIXED_SMALL = 31 };

// How codes of 4 bits become numbers.
enum avx2_fixed_table { TABLE_NONE, TABLE_UNSIGNED, TABLE_SIGNED };

// What codes of 4 bits stand for: (bytes[code] - zero) * unit.
struct avx2_fixed_levels {
    __m256i bytes; // twice 16
    float zero, unit;
    enum avx2_fixed_table table;
};

// The kinds of inner loops.
struct avx2_fixed_kind {
    bool is_4bit;
    enum avx2_fixed_table table;
    bool has_offsets, has_halves; // groups of 16 inputs
};

static inline struct avx2_fixed_levels avx2_fixed_levels_of(
    enum weight_code code, const struct avx2_fixed_products *products) {
    const float *values = weight_code_values(code);
    struct avx2_fixed_levels levels = {.unit = 1};
    uint8_t bytes[16] = {0};
    float largest = 0;
    if (!values) return levels;
    if (code == WEIGHT_CODE_E2M1) levels.unit = 0.5f;
    for (int i = 0; i < 16; i++) {
        float value = values[i] / levels.unit;
        if (-value > levels.zero) levels.zero = -value;
        if (value > largest) largest = value;
    }
    bool is_signed = products->signed_quads && levels.zero + largest > AVX2_FIXED_SMALL;
    if (is_signed) levels.zero = 0;
    for (int i = 0; i < 16; i++) {
        bytes[i] = (uint8_t)(int)(values[i] / levels.unit + levels.zero);
        if (bytes[i] != i) levels.table = TABLE_UNSIGNED;
    }
    if (is_signed) levels.table = TABLE_SIGNED;
    levels.bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)bytes));
    return levels;
}

// The products of a chunk or, with groups of 16, of its halves: of outputs 0 to 7 and 8 to 15.
struct avx2_fixed_sums {
    __m256i of[2][AVX2_FIXED_ROWS_MAX][2]; // of[1] alone is that of the chunk
};

// Adds products of a half of a chunk with rows of x.
static ALWAYS_INLINE void fixed_half_8bit(const struct avx2_fixed_products *products,
                                          const unsigned char *codes, const unsigned char *x,
                                          uint32_t rows, __m256i sums[AVX2_FIXED_ROWS_MAX][2]) {
    UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
        const unsigned char *from = codes + (size_t)line * PACKED_CHUNK;
        __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)from));
        __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(from + 16)));
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, x + (size_t)r * FIXED_CHUNK_BYTES + (size_t)line * 4, sizeof pair);
            __m256i both = _mm256_set1_epi32(pair);
            sums[r][0] = products->pairs(sums[r][0], first, both);
            sums[r][1] = products->pairs(sums[r][1], second, both);
        }
    }
}

static ALWAYS_INLINE __m256i fixed_load_eight(const unsigned char *x) {
    int64_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return _mm256_set1_epi64x(bytes);
}

// Sums of 4 outputs, even and odd inputs side by side, for the high and the low bytes of x.
struct fixed_quads {
    __m256i high, low;
};

static ALWAYS_INLINE __m256i fixed_add(const struct avx2_fixed_products *products,
                                       enum avx2_fixed_table table, __m256i sums, __m256i weights,
                                       const unsigned char *x) {
    __m256i eight = fixed_load_eight(x);
    if (table != TABLE_SIGNED) return products->quads(sums, weights, eight);
    return products->signed_quads(sums, weights, eight, _mm256_abs_epi8(eight));
}

// Codes of 4 outputs, a half of a chunk, as bytes: `low` of the low halves.
static ALWAYS_INLINE void fixed_unpack(const unsigned char *codes, enum avx2_fixed_table table,
                                       __m256i bytes, __m256i *low, __m256i *high) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i both = _mm256_loadu_si256((const void *)codes);
    *low = _mm256_and_si256(both, mask);
    *high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    if (table == TABLE_NONE) return;
    *low = _mm256_shuffle_epi8(bytes, *low);
    *high = _mm256_shuffle_epi8(bytes, *high);
}

static ALWAYS_INLINE __m256i fixed_join(const struct avx2_fixed_products *products,
                                        enum avx2_fixed_table table, struct fixed_quads sums) {
    if (table != TABLE_SIGNED) return products->join(sums.high, sums.low);
    return _mm256_add_epi32(_mm256_slli_epi32(sums.high, 8), sums.low);
}

// Adds even and odd lanes of two quarters: 8 outputs in order.
static ALWAYS_INLINE __m256i fixed_add_lanes(__m256i a, __m256i b) {
    __m256 first = _mm256_castsi256_ps(a), second = _mm256_castsi256_ps(b);
    __m256i even = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88));
    __m256i odd = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
    return _mm256_permute4x64_epi64(_mm256_add_epi32(even, odd), 0xd8);
}

// Products of a quarter of the outputs: of each half, or of the chunk in out[1]. Row by row, so
// that sums stay in registers.
static ALWAYS_INLINE void fixed_quarter(const struct avx2_fixed_products *products,
                                        struct avx2_fixed_kind kind,
                                        const struct avx2_fixed_levels *levels,
                                        const unsigned char *codes, const unsigned char *x,
                                        uint32_t rows, __m256i out[2][AVX2_FIXED_ROWS_MAX]) {
    __m256i low[2], high[2];
    UNROLL for (uint32_t half = 0; half < 2; half++) {
        fixed_unpack(codes + (size_t)half * PACKED_HALF * PACKED_LANES / 2, kind.table,
                     levels->bytes, &low[half], &high[half]);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        struct fixed_quads sums;
        UNROLL for (uint32_t half = 0; half < 2; half++) {
            const unsigned char *from = x + (size_t)r * FIXED_CHUNK_BYTES + (size_t)half * 32;
            if (half == 0 || kind.has_halves) sums.high = sums.low = _mm256_setzero_si256();
            sums.high = fixed_add(products, kind.table, sums.high, low[half], from);
            sums.low = fixed_add(products, kind.table, sums.low, low[half], from + 16);
            sums.high = fixed_add(products, kind.table, sums.high, high[half], from + 8);
            sums.low = fixed_add(products, kind.table, sums.low, high[half], from + 24);
            if (half == 1 || kind.has_halves) {
                out[half][r] = fixed_join(products, kind.table, sums);
            }
        }
    }
}

static ALWAYS_INLINE void fixed_products_of(const struct avx2_fixed_products *products,
                                            struct avx2_fixed_kind kind,
                                            const struct avx2_fixed_levels *levels,
                                            const unsigned char *codes, const unsigned char *x,
                                            uint32_t rows, struct avx2_fixed_sums *out) {
    if (!kind.is_4bit) {
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            UNROLL for (uint32_t i = 0; i < 4; i++) {
                out->of[i / 2][r][i % 2] = _mm256_setzero_si256();
            }
        }
        UNROLL for (uint32_t half = 0; half < 2; half++) {
            fixed_half_8bit(products, codes + (size_t)half * PACKED_HALF * PACKED_LANES,
                            x + (size_t)half * FIXED_CHUNK_BYTES / 2, rows,
                            out->of[kind.has_halves ? half : 1]);
        }
        return;
    }
    UNROLL for (uint32_t pair = 0; pair < AVX2_FIXED_QUARTERS / 2; pair++) {
        __m256i of[2][2][AVX2_FIXED_ROWS_MAX];
        UNROLL for (uint32_t q = 0; q < 2; q++) {
            fixed_quarter(products, kind, levels, codes + ((size_t)pair * 2 + q) * 32, x, rows,
                          of[q]);
        }
        UNROLL for (uint32_t half = kind.has_halves ? 0 : 1; half < 2; half++) {
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                out->of[half][r][pair] = fixed_add_lanes(of[0][half][r], of[1][half][r]);
            }
        }
    }
}

// scale * (products - zero * total) + offset * total, of outputs 8 * part and following.
static ALWAYS_INLINE __m256 fixed_group_sum(struct avx2_fixed_kind kind,
                                            const struct avx2_fixed_levels *levels,
                                            __m256i products, float total,
                                            const struct packed_chunk *chunk, uint32_t half,
                                            uint32_t part) {
    const __m256 all = _mm256_set1_ps(total);
    __m256 value = _mm256_cvtepi32_ps(products);
    __m256 scale = _mm256_loadu_ps(chunk->scales[half] + (size_t)part * HALF);
    if (kind.is_4bit && kind.table != TABLE_SIGNED) {
        value = _mm256_fnmadd_ps(_mm256_set1_ps(levels->zero), all, value);
    }
    if (kind.table != TABLE_NONE) scale = _mm256_mul_ps(scale, _mm256_set1_ps(levels->unit));
    if (!kind.has_offsets) return _mm256_mul_ps(value, scale);
    __m256 offset = _mm256_loadu_ps(chunk->offsets[half] + (size_t)part * HALF);
    return _mm256_fmadd_ps(value, scale, _mm256_mul_ps(offset, all));
}

static ALWAYS_INLINE __m256 fixed_chunk_sum(struct avx2_fixed_kind kind,
                                            const struct avx2_fixed_levels *levels,
                                            const struct packed_chunk *chunk,
                                            const struct avx2_fixed_sums *sums, uint32_t row,
                                            const struct fixed_head *head, uint32_t part) {
    if (!kind.has_halves) {
        return fixed_group_sum(kind, levels, sums->of[1][row][part], head->total, chunk, 0, part);
    }
    return _mm256_add_ps(
        fixed_group_sum(kind, levels, sums->of[0][row][part], head->totals[0], chunk, 0, part),
        fixed_group_sum(kind, levels, sums->of[1][row][part], head->totals[1], chunk, 1, part));
}

static ALWAYS_INLINE void fixed_rows(const struct avx2_fixed_products *products,
                                     struct avx2_fixed_kind kind,
                                     const struct avx2_fixed_levels *levels,
                                     const struct fixed_run *run, uint32_t rows) {
    const struct packed_shape *shape = run->item->packed;
    uint32_t chunks = run->item->chunks;
    __m256 sums[AVX2_FIXED_ROWS_MAX][2];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        sums[r][0] = _mm256_loadu_ps(run->start);
        sums[r][1] = _mm256_loadu_ps(run->start + HALF);
    }
    struct packed_chunk chunk;
    packed_chunk_init(&chunk);
    for (uint32_t c = 0; c < chunks; c++) {
        packed_chunk_at(shape, run->weights, c, &chunk);
        const unsigned char *heads = run->x + fixed_head_at(chunks, c, run->stride);
        struct avx2_fixed_sums own;
        packed_fetch(shape, c, chunk.codes, kind.is_4bit ? 256 : 512, AVX2_FIXED_AHEAD_BYTES);
        fixed_products_of(products, kind, levels, chunk.codes, run->x + c * run->stride, rows,
                          &own);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            struct fixed_head head;
            memcpy(&head, heads + (size_t)r * FIXED_CHUNK_BYTES, sizeof head);
            __m256 scale = _mm256_set1_ps(head.scale);
            UNROLL for (uint32_t part = 0; part < 2; part++) {
                __m256 sum = fixed_chunk_sum(kind, levels, &chunk, &own, r, &head, part);
                sums[r][part] = _mm256_fmadd_ps(sum, scale, sums[r][part]);
            }
        }
    }
    uint32_t second = run->cols > HALF ? run->cols - HALF : 0;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        float *out = run->out + r * run->item->out_stride;
        _mm256_maskstore_ps(out, avx2_tail_mask(run->cols), sums[r][0]);
        if (second) _mm256_maskstore_ps(out + HALF, avx2_tail_mask(second), sums[r][1]);
    }
}

static ALWAYS_INLINE void fixed_block(const struct avx2_fixed_products *products,
                                      struct avx2_fixed_kind kind,
                                      const struct avx2_fixed_levels *levels, struct fixed_run run,
                                      uint32_t rows) {
    for (; rows >= AVX2_FIXED_ROWS_MAX; rows -= AVX2_FIXED_ROWS_MAX) {
        fixed_rows(products, kind, levels, &run, AVX2_FIXED_ROWS_MAX);
        run.x += (size_t)AVX2_FIXED_ROWS_MAX * FIXED_CHUNK_BYTES;
        run.out += AVX2_FIXED_ROWS_MAX * run.item->out_stride;
    }
    if (rows == 3) fixed_rows(products, kind, levels, &run, 3);
    if (rows == 2) fixed_rows(products, kind, levels, &run, 2);
    if (rows == 1) fixed_rows(products, kind, levels, &run, 1);
}

static ALWAYS_INLINE void fixed_item(const struct avx2_fixed_products *products,
                                     struct avx2_fixed_kind kind,
                                     const struct avx2_fixed_levels *levels,
                                     const struct linear_item *item) {
    for (uint32_t b = 0; b < item->num_blocks; b++) {
        for (uint32_t row = 0; row < item->rows; row += TILE_ROWS) {
            uint32_t rows = item->rows - row < TILE_ROWS ? item->rows - row : (uint32_t)TILE_ROWS;
            fixed_block(products, kind, levels, fixed_run_of(item, b, row, rows), rows);
        }
    }
}

// Each kind has a loop of its own, in a function that is called through a list. The compiler takes
// twice the time for one function that has them all.
typedef void avx2_fixed_loop(const struct avx2_fixed_levels *levels,
                             const struct linear_item *item);

#define AVX2_FIXED_LOOP(name, products, ...)                                                       \
    static void name(const struct avx2_fixed_levels *levels, const struct linear_item *item) {     \
        const struct avx2_fixed_levels own = *levels;                                              \
        fixed_item(products, (struct avx2_fixed_kind){__VA_ARGS__}, &own, item);                   \
    }

// The list `name`: of codes alone, with halves, with offsets, with both.
#define AVX2_FIXED_LOOPS(name, products, is_4bit, table)                                           \
    AVX2_FIXED_LOOP(name##_alone, products, is_4bit, table, false, false)                          \
    AVX2_FIXED_LOOP(name##_halves, products, is_4bit, table, false, true)                          \
    AVX2_FIXED_LOOP(name##_offsets, products, is_4bit, table, true, false)                         \
    AVX2_FIXED_LOOP(name##_both, products, is_4bit, table, true, true)                             \
    static avx2_fixed_loop *const name[] = {name##_alone, name##_halves, name##_offsets,           \
                                            name##_both};

// `eight_bits` has the loops of 8-bit codes, tables[table] those of 4-bit ones.
static inline void avx2_fixed_run(const struct avx2_fixed_products *products,
                                  avx2_fixed_loop *const *eight_bits,
                                  avx2_fixed_loop *const *const *tables,
                                  const struct linear_item *item) {
    const struct packed_shape *shape = item->packed;
    const struct avx2_fixed_levels levels = avx2_fixed_levels_of(shape->code, products);
    avx2_fixed_loop *const *loops =
        weight_code_bits(shape->code) == 8 ? eight_bits : tables[levels.table];
    loops[2 * (shape->num_numbers == 2) + (shape->num_groups == 2)](&levels, item);
}

#endif
