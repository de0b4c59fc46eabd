/* Packed weights times few rows of x as 16-bit integers with a scale for each span
 * (linear/fixed.h), by AVX512_VNNI. The bits are those of amx_spans.c: sums of products are exact,
 * so their order does not matter, and the operations on floats are the same. */
#include <math.h>
#include <string.h>

#include "backend/cpu/avx512/avx512.h"
#include "base/compiler.h"

enum {
    ROWS_MAX = 4, // each row has four registers of sums
    AHEAD_BYTES = 4096, // that weights are fetched ahead
    CODE_ZERO = 8, // a code stands for code - 8
};

// Some rows of x by a block of outputs.
struct run {
    const struct linear_item *item;
    const unsigned char *weights, *x;
    const float *start;
    float *out;
    size_t stride; // bytes from a line of x to the next
    __mmask16 outputs; // that there are
};

// Sums of outputs 0 to 7 and 8 to 15, even and odd inputs side by side, for the high and the low
// bytes of x.
struct quads {
    __m512i high[2], low[2];
};

static const struct quads no_quads;

static ALWAYS_INLINE __m512i load_eight(const unsigned char *x) {
    int64_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return _mm512_set1_epi64(bytes);
}

// Of 8 outputs.
static ALWAYS_INLINE void unpack(const unsigned char *codes, __m512i *low, __m512i *high) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i both = _mm512_loadu_si512(codes);
    *low = _mm512_and_si512(both, mask);
    *high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
}

// Adds the products of a chunk, whose high bytes of x are at `x`.
static ALWAYS_INLINE void add_chunk(const unsigned char *codes, const unsigned char *x,
                                    size_t stride, uint32_t rows, struct quads sums[ROWS_MAX]) {
    UNROLL for (uint32_t half = 0; half < 2; half++, codes += 128, x += PACKED_HALF) {
        __m512i low[2], high[2];
        unpack(codes, &low[0], &high[0]);
        unpack(codes + 64, &low[1], &high[1]);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            const unsigned char *at = x + (size_t)r * FIXED_CHUNK_BYTES;
            __m512i first = load_eight(at), second = load_eight(at + 8);
            __m512i first_low = load_eight(at + stride), second_low = load_eight(at + stride + 8);
            UNROLL for (int i = 0; i < 2; i++) {
                struct quads *s = &sums[r];
                s->high[i] = _mm512_dpbusd_epi32(s->high[i], low[i], first);
                s->low[i] = _mm512_dpbusd_epi32(s->low[i], low[i], first_low);
                s->high[i] = _mm512_dpbusd_epi32(s->high[i], high[i], second);
                s->low[i] = _mm512_dpbusd_epi32(s->low[i], high[i], second_low);
            }
        }
    }
}

static ALWAYS_INLINE __m512i join(const struct quads *sums) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512i a = _mm512_add_epi32(_mm512_slli_epi32(sums->high[0], 8), sums->low[0]);
    __m512i b = _mm512_add_epi32(_mm512_slli_epi32(sums->high[1], 8), sums->low[1]);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                            _mm512_permutex2var_epi32(a, odd, b));
}

// scale * products + offset * total
static ALWAYS_INLINE __m512 span_sum(bool has_offsets, const struct quads *sums,
                                     const struct span_head *head,
                                     const struct packed_chunk *chunk) {
    __m512i zeros = _mm512_set1_epi32(CODE_ZERO * head->total_exact);
    __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(join(sums), zeros));
    __m512 scale = _mm512_loadu_ps(chunk->scales[0]);
    if (!has_offsets) return _mm512_mul_ps(value, scale);
    __m512 more = _mm512_mul_ps(_mm512_loadu_ps(chunk->offsets[0]), _mm512_set1_ps(head->total));
    return _mm512_fmadd_ps(value, scale, more);
}

static ALWAYS_INLINE void run_rows(bool has_offsets, const struct run *run, uint32_t rows) {
    const struct packed_shape *shape = run->item->packed;
    uint32_t chunks = run->item->chunks, span = spans_chunks(shape), index = 0;
    __m512 sums[ROWS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) sums[r] = _mm512_loadu_ps(run->start);
    for (uint32_t begin = 0; begin < chunks; begin += span, index++) {
        uint32_t end = begin + span < chunks ? begin + span : chunks;
        struct packed_chunk first;
        packed_chunk_init(&first);
        packed_chunk_at(shape, run->weights, begin, &first);
        struct quads products[ROWS_MAX];
        UNROLL for (uint32_t r = 0; r < rows; r++) products[r] = no_quads;
        const unsigned char *codes = first.codes;
        for (uint32_t c = begin; c < end; c++, codes += shape->chunk_bytes) {
            UNROLL for (int line = 0; line < 5; line++) {
                _mm_prefetch((const void *)(codes + AHEAD_BYTES + (size_t)line * 64), _MM_HINT_T0);
            }
            const unsigned char *x = run->x + (size_t)(c / 2 * 2) * run->stride;
            add_chunk(codes, x + (size_t)(c % 2) * PACKED_CHUNK, run->stride, rows, products);
        }
        const unsigned char *heads = run->x + span_head_at(chunks, index, run->stride);
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            struct span_head head;
            memcpy(&head, heads + (size_t)r * FIXED_CHUNK_BYTES, sizeof head);
            __m512 sum = span_sum(has_offsets, &products[r], &head, &first);
            sums[r] = _mm512_fmadd_ps(sum, _mm512_set1_ps(head.scale), sums[r]);
        }
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        _mm512_mask_storeu_ps(run->out + r * run->item->out_stride, run->outputs, sums[r]);
    }
}

static ALWAYS_INLINE void run_some(const struct run *run, uint32_t rows) {
    if (run->item->packed->num_numbers == 2) {
        run_rows(true, run, rows);
    } else {
        run_rows(false, run, rows);
    }
}

static void run_tile(struct run run, uint32_t rows) {
    for (; rows >= ROWS_MAX; rows -= ROWS_MAX) {
        run_some(&run, ROWS_MAX);
        run.x += (size_t)ROWS_MAX * FIXED_CHUNK_BYTES;
        run.out += ROWS_MAX * run.item->out_stride;
    }
    if (rows == 3) run_some(&run, 3);
    if (rows == 2) run_some(&run, 2);
    if (rows == 1) run_some(&run, 1);
}

void avx512_vnni_linear_spans(const struct linear_item *item) {
    size_t row_bytes = (size_t)spans_all_lines(item->packed, item->chunks) * FIXED_CHUNK_BYTES;
    for (uint32_t b = 0; b < item->num_blocks; b++) {
        for (uint32_t row = 0; row < item->rows; row += TILE_ROWS) {
            uint32_t rows = item->rows - row < TILE_ROWS ? item->rows - row : (uint32_t)TILE_ROWS;
            size_t first = (size_t)b * LANES;
            struct run run = {.item = item,
                              .weights = item->weights + b * item->block_bytes,
                              .x = item->x + row * row_bytes,
                              .start = item->start + first,
                              .out = item->out + row * item->out_stride + first,
                              .stride = (size_t)rows * FIXED_CHUNK_BYTES,
                              .outputs = avx512_first_lanes(item->cols - b * LANES)};
            run_tile(run, rows);
        }
    }
}

static ALWAYS_INLINE __m512 load_left(const float *from, uint32_t left) {
    return _mm512_maskz_loadu_ps(avx512_first_lanes(left), from);
}

// The largest magnitude. NaN if a number is not finite.
static float largest_of(const float *x, uint32_t count) {
    const __m512 infinity = _mm512_set1_ps(INFINITY);
    __m512 largest = _mm512_setzero_ps();
    bool is_finite = true;
    for (uint32_t i = 0; i < count; i += LANES) {
        __m512 part = _mm512_abs_ps(load_left(x + i, count - i));
        is_finite = is_finite && _mm512_cmp_ps_mask(part, infinity, _CMP_LT_OQ) == 0xffff;
        largest = _mm512_max_ps(largest, part);
    }
    return is_finite ? _mm512_reduce_max_ps(largest) : NAN;
}

// 16 inputs: returns their integers, whose high bytes go to `out` and low ones to the next line.
static ALWAYS_INLINE __m512i store_half(__m512 x, __m512 inverse, unsigned char *out,
                                        size_t stride) {
    const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i exact = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(exact, _mm512_set1_epi32(128)), 8);
    __m512i low = _mm512_sub_epi32(exact, _mm512_slli_epi32(high, 8));
    _mm_storeu_si128((void *)out, _mm_shuffle_epi8(_mm512_cvtsepi32_epi8(high), order));
    _mm_storeu_si128((void *)(out + stride), _mm_shuffle_epi8(_mm512_cvtsepi32_epi8(low), order));
    return exact;
}

void avx512_narrow_spans(const float *x, uint32_t count, const struct span_row *row) {
    uint32_t chunks = (count + PACKED_CHUNK - 1) / PACKED_CHUNK;
    uint32_t shift = spans_shift(row->shape), span = 1u << shift;
    size_t stride = row->stride;
    for (uint32_t begin = 0; begin < chunks; begin += span) {
        uint32_t end = begin + span < chunks ? begin + span : chunks;
        uint32_t most = span * PACKED_CHUNK, left = count - begin * PACKED_CHUNK;
        const float *from = x + (size_t)begin * PACKED_CHUNK;
        float largest = largest_of(from, left < most ? left : most);
        float inverse = largest > 0 ? FIXED_LARGEST / largest : 0;
        // Beyond float's range for the smallest numbers, which are zeros then.
        if (!(inverse < 0x1p120f)) inverse = 0;
        const __m512 inverses = _mm512_set1_ps(inverse);
        __m512i total = _mm512_setzero_si512();
        for (uint32_t c = begin; c < end; c++, from += PACKED_CHUNK, left -= PACKED_CHUNK) {
            uint32_t at = row->first + c;
            unsigned char *to = row->out + at / 2 * 2 * stride + (size_t)(at % 2) * PACKED_CHUNK;
            __m512 second = load_left(from + LANES, left > LANES ? left - LANES : 0);
            total =
                _mm512_add_epi32(total, store_half(load_left(from, left), inverses, to, stride));
            total = _mm512_add_epi32(total, store_half(second, inverses, to + PACKED_HALF, stride));
        }
        float sum = _mm512_reduce_add_ps(_mm512_cvtepi32_ps(total)); // exact
        // The sum of what is not finite may be too large for an integer.
        int32_t total_exact = largest >= 0 ? (int32_t)sum : 0;
        struct span_head head = {largest / FIXED_LARGEST, sum, total_exact, 0};
        uint32_t index = (row->first + begin) >> shift;
        memcpy(row->out + span_head_at(row->chunks, index, stride), &head, sizeof head);
    }
}
