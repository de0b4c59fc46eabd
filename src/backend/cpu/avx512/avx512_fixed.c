/* Packed weights times x as 16-bit integers (linear/fixed.h), by AVX512_VNNI. Codes of 4 bits are
 * unsigned quads of a 32-bit lane as they lie in memory, after a mask or a shift: lanes of even and
 * odd inputs alternate, and are added at the end of a chunk. Tables' values get 128 or 12 added to
 * be unsigned. A weight is unpacked once for some rows of x. */
#include <string.h>

#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/linear/fixed_run.h"
#include "backend/cpu/linear/packed_fetch.h"

enum {
    ROWS_MAX = 8,
    ROWS_4BIT_MAX = 4, // each row has four registers of sums
    AHEAD_BYTES = 4096, // that weights are fetched ahead; without, a stream waits longer
};

// What codes of 4 bits stand for: (bytes[code] - zero) * unit. Without a table, bytes[code] = code.
struct levels {
    __m512i bytes; // four times 16
    float zero, unit;
    bool has_table;
};

static struct levels levels_of(enum weight_code code) {
    const float *values = weight_code_values(code);
    uint8_t bytes[16] = {0};
    struct levels levels = {.unit = 1};
    if (!values) return levels;
    if (code == WEIGHT_CODE_E2M1) levels.unit = 0.5f;
    for (int i = 0; i < 16; i++) {
        if (-values[i] / levels.unit > levels.zero) levels.zero = -values[i] / levels.unit;
    }
    for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)(values[i] / levels.unit + levels.zero);
    for (int i = 0; i < 16; i++) levels.has_table |= bytes[i] != i;
    levels.bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)bytes));
    return levels;
}

// The kinds of inner loops.
struct kind {
    bool is_4bit, has_table, has_offsets, has_halves; // groups of 16 inputs
};

// Adds products of a half of a chunk with rows of x: of 16 outputs.
static ALWAYS_INLINE void half_8bit(const unsigned char *codes, const unsigned char *x,
                                    uint32_t rows, __m512i out[ROWS_MAX]) {
    UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
        __m256i bytes = _mm256_loadu_si256((const void *)(codes + (size_t)line * PACKED_CHUNK));
        __m512i pairs = _mm512_cvtepi8_epi16(bytes);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t pair;
            memcpy(&pair, x + (size_t)r * FIXED_CHUNK_BYTES + (size_t)line * 4, sizeof pair);
            out[r] = _mm512_dpwssd_epi32(out[r], pairs, _mm512_set1_epi32(pair));
        }
    }
}

// The 64 bytes of codes of 8 outputs as bytes: `low` of the low halves.
static ALWAYS_INLINE void unpack_4bit(const unsigned char *codes, bool has_table, __m512i table,
                                      __m512i *low, __m512i *high) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i both = _mm512_loadu_si512(codes);
    *low = _mm512_and_si512(both, mask);
    *high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    if (!has_table) return;
    *low = _mm512_shuffle_epi8(table, *low);
    *high = _mm512_shuffle_epi8(table, *high);
}

static ALWAYS_INLINE __m512i load_eight(const unsigned char *x) {
    int64_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return _mm512_set1_epi64(bytes);
}

// Sums of outputs 0 to 7 and 8 to 15, even and odd inputs side by side, for the high and the low
// bytes of x.
struct quads {
    __m512i high[2], low[2];
};

static ALWAYS_INLINE void add_4bit(struct quads *sums, const __m512i low[2], const __m512i high[2],
                                   const unsigned char *x) {
    __m512i first = load_eight(x), second = load_eight(x + 8);
    __m512i first_low = load_eight(x + 16), second_low = load_eight(x + 24);
    UNROLL for (int i = 0; i < 2; i++) {
        sums->high[i] = _mm512_dpbusd_epi32(sums->high[i], low[i], first);
        sums->low[i] = _mm512_dpbusd_epi32(sums->low[i], low[i], first_low);
        sums->high[i] = _mm512_dpbusd_epi32(sums->high[i], high[i], second);
        sums->low[i] = _mm512_dpbusd_epi32(sums->low[i], high[i], second_low);
    }
}

static ALWAYS_INLINE __m512i join(const struct quads *sums) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i a = _mm512_add_epi32(_mm512_slli_epi32(sums->high[0], 8), sums->low[0]);
    __m512i b = _mm512_add_epi32(_mm512_slli_epi32(sums->high[1], 8), sums->low[1]);
    return _mm512_add_epi32(
        _mm512_permutex2var_epi32(a, even, b),
        _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b));
}

static const struct quads no_quads;

// Products of both halves, or of the chunk in out[1], with rows of x that lie 64 bytes apart.
static ALWAYS_INLINE void chunk_products(struct kind kind, const struct levels *levels,
                                         const unsigned char *codes, const unsigned char *x,
                                         uint32_t rows, __m512i out[2][ROWS_MAX]) {
    struct quads sums[ROWS_4BIT_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        out[0][r] = _mm512_setzero_si512();
        out[1][r] = _mm512_setzero_si512();
    }
    UNROLL for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *x_half = x + (size_t)half * FIXED_CHUNK_BYTES / 2;
        if (!kind.is_4bit) {
            half_8bit(codes + (size_t)half * PACKED_HALF * PACKED_LANES, x_half, rows,
                      out[kind.has_halves ? half : 1]);
            continue;
        }
        __m512i low[2], high[2];
        const unsigned char *at = codes + (size_t)half * PACKED_HALF * PACKED_LANES / 2;
        unpack_4bit(at, kind.has_table, levels->bytes, &low[0], &high[0]);
        unpack_4bit(at + 64, kind.has_table, levels->bytes, &low[1], &high[1]);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            if (half == 0 || kind.has_halves) sums[r] = no_quads;
            add_4bit(&sums[r], low, high, x_half + (size_t)r * FIXED_CHUNK_BYTES);
            if (half == 1 || kind.has_halves) out[half][r] = join(&sums[r]);
        }
    }
}

// scale * (products - zero * total) + offset * total
static ALWAYS_INLINE __m512 group_sum(struct kind kind, const struct levels *levels,
                                      __m512i products, float total, const float *scales,
                                      const float *offsets) {
    const __m512 all = _mm512_set1_ps(total);
    __m512 value = _mm512_cvtepi32_ps(products), scale = _mm512_loadu_ps(scales);
    if (kind.is_4bit) value = _mm512_fnmadd_ps(_mm512_set1_ps(levels->zero), all, value);
    if (kind.has_table) scale = _mm512_mul_ps(scale, _mm512_set1_ps(levels->unit));
    if (!kind.has_offsets) return _mm512_mul_ps(value, scale);
    return _mm512_fmadd_ps(value, scale, _mm512_mul_ps(_mm512_loadu_ps(offsets), all));
}

static ALWAYS_INLINE __m512 chunk_sum(struct kind kind, const struct levels *levels,
                                      const struct packed_chunk *chunk, const __m512i products[2],
                                      const struct fixed_head *head) {
    if (!kind.has_halves) {
        return group_sum(kind, levels, products[1], head->total, chunk->scales[0],
                         chunk->offsets[0]);
    }
    return _mm512_add_ps(
        group_sum(kind, levels, products[0], head->totals[0], chunk->scales[0], chunk->offsets[0]),
        group_sum(kind, levels, products[1], head->totals[1], chunk->scales[1], chunk->offsets[1]));
}

static ALWAYS_INLINE void run_rows(struct kind kind, const struct levels *levels,
                                   const struct fixed_run *run, uint32_t rows) {
    const struct packed_shape *shape = run->item->packed;
    uint32_t chunks = run->item->chunks;
    __m512 sums[ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) sums[r] = _mm512_loadu_ps(run->start);
    struct packed_chunk chunk;
    packed_chunk_init(&chunk);
    for (uint32_t c = 0; c < chunks; c++) {
        packed_chunk_at(shape, run->weights, c, &chunk);
        const unsigned char *x = run->x + c * run->stride;
        const unsigned char *heads = run->x + fixed_head_at(chunks, c, run->stride);
        packed_fetch(shape, c, chunk.codes, kind.is_4bit ? 256 : 512, AHEAD_BYTES);
        __m512i products[2][ROWS_MAX];
        chunk_products(kind, levels, chunk.codes, x, rows, products);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            struct fixed_head head;
            memcpy(&head, heads + (size_t)r * FIXED_CHUNK_BYTES, sizeof head);
            const __m512i own[2] = {products[0][r], products[1][r]};
            __m512 sum = chunk_sum(kind, levels, &chunk, own, &head);
            sums[r] = _mm512_fmadd_ps(sum, _mm512_set1_ps(head.scale), sums[r]);
        }
    }
    __mmask16 mask = (__mmask16)((1u << run->cols) - 1);
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(run->out + r * run->item->out_stride, mask, sums[r]);
    }
}

static ALWAYS_INLINE void run_block(struct kind kind, const struct levels *levels,
                                    struct fixed_run run, uint32_t rows) {
    const uint32_t most = kind.is_4bit ? ROWS_4BIT_MAX : ROWS_MAX;
    for (; rows >= most; rows -= most) {
        run_rows(kind, levels, &run, most);
        run.x += (size_t)most * FIXED_CHUNK_BYTES;
        run.out += most * run.item->out_stride;
    }
    if (rows >= 4) {
        run_rows(kind, levels, &run, 4);
        rows -= 4;
        run.x += (size_t)4 * FIXED_CHUNK_BYTES;
        run.out += 4 * run.item->out_stride;
    }
    if (rows == 3) run_rows(kind, levels, &run, 3);
    if (rows == 2) run_rows(kind, levels, &run, 2);
    if (rows == 1) run_rows(kind, levels, &run, 1);
}

static ALWAYS_INLINE void run_item(struct kind kind, const struct levels *levels,
                                   const struct linear_item *item) {
    for (uint32_t b = 0; b < item->num_blocks; b++) {
        for (uint32_t row = 0; row < item->rows; row += TILE_ROWS) {
            uint32_t rows = item->rows - row < TILE_ROWS ? item->rows - row : (uint32_t)TILE_ROWS;
            run_block(kind, levels, fixed_run_of(item, b, row, rows), rows);
        }
    }
}

// Each kind has a loop of its own.
static void run_4bit(struct kind kind, const struct levels *levels,
                     const struct linear_item *item) {
    switch (kind.has_table * 4 + kind.has_offsets * 2 + kind.has_halves) {
    case 0:
        run_item((struct kind){true, false, false, false}, levels, item);
        break;
    case 1:
        run_item((struct kind){true, false, false, true}, levels, item);
        break;
    case 2:
        run_item((struct kind){true, false, true, false}, levels, item);
        break;
    case 3:
        run_item((struct kind){true, false, true, true}, levels, item);
        break;
    case 4:
        run_item((struct kind){true, true, false, false}, levels, item);
        break;
    case 5:
        run_item((struct kind){true, true, false, true}, levels, item);
        break;
    case 6:
        run_item((struct kind){true, true, true, false}, levels, item);
        break;
    default:
        run_item((struct kind){true, true, true, true}, levels, item);
    }
}

static void run_8bit(struct kind kind, const struct levels *levels,
                     const struct linear_item *item) {
    switch (kind.has_offsets * 2 + kind.has_halves) {
    case 0:
        run_item((struct kind){false, false, false, false}, levels, item);
        break;
    case 1:
        run_item((struct kind){false, false, false, true}, levels, item);
        break;
    case 2:
        run_item((struct kind){false, false, true, false}, levels, item);
        break;
    default:
        run_item((struct kind){false, false, true, true}, levels, item);
    }
}

void avx512_vnni_linear_fixed(const struct linear_item *item) {
    const struct packed_shape *shape = item->packed;
    const struct levels levels = levels_of(shape->code);
    const struct kind kind = {weight_code_bits(shape->code) == 4, levels.has_table,
                              shape->num_numbers == 2, shape->num_groups == 2};
    if (kind.is_4bit) {
        run_4bit(kind, &levels, item);
    } else {
        run_8bit(kind, &levels, item);
    }
}

static ALWAYS_INLINE __m512 load_left(const float *from, uint32_t left) {
    __mmask16 mask = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
    return _mm512_maskz_loadu_ps(mask, from);
}

static ALWAYS_INLINE void store_half(__m512i x, uint32_t bits, unsigned char *out) {
    if (bits == 8) {
        _mm256_storeu_si256((void *)out, _mm512_cvtsepi32_epi16(x));
        return;
    }
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
    __m512i low = _mm512_sub_epi32(x, _mm512_slli_epi32(high, 8));
    _mm_storeu_si128((void *)out, _mm_shuffle_epi8(_mm512_cvtsepi32_epi8(high), order));
    _mm_storeu_si128((void *)(out + 16), _mm_shuffle_epi8(_mm512_cvtsepi32_epi8(low), order));
}

void avx512_narrow_fixed(const float *x, uint32_t count, uint32_t bits, unsigned char *out,
                         size_t stride) {
    uint32_t chunks = (count + PACKED_CHUNK - 1) / PACKED_CHUNK;
    for (uint32_t c = 0; c < chunks; c++, x += PACKED_CHUNK, count -= PACKED_CHUNK) {
        __m512 a = load_left(x, count);
        __m512 b = load_left(x + LANES, count > LANES ? count - LANES : 0);
        float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
        // Zero, or NaN if a value is not finite.
        __m512 nothing = _mm512_sub_ps(_mm512_sub_ps(a, a), _mm512_sub_ps(b, b));
        struct fixed_head head = {.scale = largest / FIXED_LARGEST + _mm512_reduce_add_ps(nothing)};
        float inverse = largest > 0 ? FIXED_LARGEST / largest : 0;
        // Beyond float's range for the smallest numbers, which are zeros then.
        if (!(inverse < 0x1p120f)) inverse = 0;
        __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(inverse)));
        __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(b, _mm512_set1_ps(inverse)));
        store_half(first, bits, out + c * stride);
        store_half(second, bits, out + c * stride + FIXED_CHUNK_BYTES / 2);
        head.totals[0] = _mm512_reduce_add_ps(_mm512_cvtepi32_ps(first));
        head.totals[1] = _mm512_reduce_add_ps(_mm512_cvtepi32_ps(second));
        head.total = head.totals[0] + head.totals[1];
        memcpy(out + fixed_head_at(chunks, c, stride), &head, sizeof head);
        if (count <= PACKED_CHUNK) break;
    }
}
