/* Packed weights times x as 16-bit integers with a scale for each span (linear/fixed.h), by tiles
 * of bytes. A tile of weights has the codes of two chunks. It is multiplied by the high and by the
 * low bytes of x, so two blocks of outputs have four tiles of exact sums. At the end of a span the
 * sums are joined and scaled in AVX-512, while tiles multiply the next span. Few rows are
 * multiplied by avx512_spans.c, with the same bits. */
#include <string.h>

#include "backend/cpu/amx/amx_tiles.h"
#include "backend/cpu/avx512/avx512.h"
#include "base/compiler.h"

enum {
    VECTOR_ROWS = 6, // up to this many avx512_spans.c is faster
    SLICE_CHUNKS = 32, // that all rows are multiplied by before the next; whole spans
    PAIRS = SLICE_CHUNKS / 2,
    TILE_NUMBERS = TILE_ROWS * LANES,
};

// Two blocks of an item, or the last one, and a slice of the depth.
struct slice {
    const struct linear_item *item;
    uint32_t block, num_blocks;
    uint32_t cols; // outputs of the last of them: 16 or fewer
    uint32_t chunk, num_chunks;
    uint32_t span; // chunks
    const unsigned char *tiles; // [2 blocks][PAIRS][1 KiB]
};

// A tile of x.
struct panel {
    uint32_t row, rows;
    const unsigned char *x; // at the depth's beginning
    size_t stride; // bytes from one line to the next
    float *sums; // [2 blocks][16][16]: of all spans so far
};

static ALWAYS_INLINE __m512i values_of(__m512i codes) {
    return _mm512_sub_epi8(_mm512_and_si512(codes, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
}

// A half's codes - 8, as four lines of quads.
static ALWAYS_INLINE void unpack_lines(const unsigned char *codes, unsigned char *lines) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512i first = _mm512_loadu_si512(codes), second = _mm512_loadu_si512(codes + 64);
    __m512i a = _mm512_permutex2var_epi32(first, even, second);
    __m512i b = _mm512_permutex2var_epi32(first, odd, second);
    _mm512_store_si512(lines, values_of(a));
    _mm512_store_si512(lines + 64, values_of(b));
    _mm512_store_si512(lines + 128, values_of(_mm512_srli_epi16(a, 4)));
    _mm512_store_si512(lines + 192, values_of(_mm512_srli_epi16(b, 4)));
}

// The codes that are unpacked after those of chunk c of the slice, in block b: of the next slice,
// or of the next blocks, which follow in memory.
static const unsigned char *next_codes(const struct slice *slice, uint32_t b, uint32_t c) {
    const struct linear_item *item = slice->item;
    uint32_t chunk = slice->chunk + c + SLICE_CHUNKS, block = slice->block + b;
    if (slice->chunk + SLICE_CHUNKS >= item->chunks) {
        chunk = c;
        block += slice->num_blocks;
    }
    return item->weights + block * item->block_bytes + packed_codes_at(item->packed, chunk);
}

// Unpacks a slice, and fetches the next one.
static void unpack(const struct slice *slice, unsigned char *tiles) {
    const struct packed_shape *shape = slice->item->packed;
    for (uint32_t b = 0; b < slice->num_blocks; b++) {
        const unsigned char *w =
            slice->item->weights + (slice->block + b) * slice->item->block_bytes;
        unsigned char *lines = tiles + (size_t)b * PAIRS * TILE_BYTES;
        for (uint32_t c = 0; c < slice->num_chunks; c++, lines += TILE_BYTES / 2) {
            const unsigned char *codes = w + packed_codes_at(shape, slice->chunk + c);
            const unsigned char *next = next_codes(slice, b, c);
            for (size_t at = 0; at < shape->chunk_bytes; at += CHUNK_BYTES) {
                _mm_prefetch((const void *)(next + at), _MM_HINT_T1);
            }
            unpack_lines(codes, lines);
            unpack_lines(codes + shape->chunk_bytes / 2, lines + TILE_BYTES / 4);
        }
        if (slice->num_chunks % 2) memset(lines, 0, TILE_BYTES / 2);
    }
    // Compilers do not know that tile loads read what was unpacked.
    __asm__ volatile("" ::: "memory");
}

static ALWAYS_INLINE void zero_sums(bool two_blocks) {
    _tile_zero(0);
    _tile_zero(1);
    if (two_blocks) _tile_zero(2);
    if (two_blocks) _tile_zero(3);
}

// Adds the products of a pair of chunks, of which the first is chunk c of the slice. Tiles 0 and 1
// are the sums of high and low bytes of the first block, 2 and 3 of the second.
static ALWAYS_INLINE void multiply(const struct slice *slice, const struct panel *panel, uint32_t c,
                                   bool two_blocks) {
    const unsigned char *x = panel->x + (size_t)(slice->chunk + c) * panel->stride;
    const unsigned char *w = slice->tiles + (size_t)(c / 2) * TILE_BYTES;
    _tile_loadd(6, w, CHUNK_BYTES);
    _tile_stream_loadd(4, x, CHUNK_BYTES);
    _tile_dpbssd(0, 4, 6);
    _tile_stream_loadd(5, x + panel->stride, CHUNK_BYTES);
    if (two_blocks) _tile_loadd(7, w + (size_t)PAIRS * TILE_BYTES, CHUNK_BYTES);
    _tile_dpbssd(1, 5, 6);
    if (two_blocks) _tile_dpbssd(2, 4, 7);
    if (two_blocks) _tile_dpbssd(3, 5, 7);
}

static ALWAYS_INLINE void store_sums(bool two_blocks, int32_t *to) {
    _tile_stored(0, to, CHUNK_BYTES);
    _tile_stored(1, to + TILE_NUMBERS, CHUNK_BYTES);
    if (two_blocks) _tile_stored(2, to + 2 * TILE_NUMBERS, CHUNK_BYTES);
    if (two_blocks) _tile_stored(3, to + 3 * TILE_NUMBERS, CHUNK_BYTES);
    // Compilers do not know what tiles store.
    __asm__ volatile("" ::: "memory");
}

// Adds a span's products, scaled, to a block's sums.
static ALWAYS_INLINE void add_scaled(const struct slice *slice, const struct panel *panel,
                                     uint32_t chunk, uint32_t block, const int32_t *exact,
                                     bool has_offsets) {
    const struct linear_item *item = slice->item;
    const unsigned char *w = item->weights + (slice->block + block) * item->block_bytes;
    struct packed_chunk packed;
    packed_chunk_init(&packed);
    packed_chunk_at(item->packed, w, chunk, &packed);
    const unsigned char *heads =
        panel->x + span_head_at(item->chunks, chunk / slice->span, panel->stride);
    const __m512 scale = _mm512_loadu_ps(packed.scales[0]);
    const __m512 offset = _mm512_loadu_ps(packed.offsets[0]);
    float *sums = panel->sums + (size_t)block * TILE_NUMBERS;
    for (uint32_t r = 0; r < panel->rows; r++, sums += LANES, exact += LANES) {
        const struct span_head *head = (const void *)(heads + (size_t)r * FIXED_CHUNK_BYTES);
        __m512i high = _mm512_slli_epi32(_mm512_load_si512(exact), 8);
        __m512i both = _mm512_add_epi32(high, _mm512_load_si512(exact + TILE_NUMBERS));
        __m512 value = _mm512_cvtepi32_ps(both);
        if (has_offsets) {
            __m512 more = _mm512_mul_ps(offset, _mm512_set1_ps(head->total));
            value = _mm512_fmadd_ps(value, scale, more);
        } else {
            value = _mm512_mul_ps(value, scale);
        }
        __m512 before = _mm512_load_ps(sums);
        _mm512_store_ps(sums, _mm512_fmadd_ps(value, _mm512_set1_ps(head->scale), before));
    }
}

// Products of a span's second pair of chunks come between the scaling of two blocks.
static ALWAYS_INLINE void run_panel(const struct slice *slice, const struct panel *panel,
                                    bool two_blocks, bool has_offsets) {
    CACHE_ALIGNED int32_t exact[4 * TILE_NUMBERS];
    uint32_t span = slice->span, num = slice->num_chunks;
    zero_sums(two_blocks);
    multiply(slice, panel, 0, two_blocks);
    if (span > 2 && num > 2) multiply(slice, panel, 2, two_blocks);
    for (uint32_t c = 0; c < num; c += span) {
        uint32_t next = c + span;
        store_sums(two_blocks, exact);
        if (next < num) {
            zero_sums(two_blocks);
            multiply(slice, panel, next, two_blocks);
        }
        add_scaled(slice, panel, slice->chunk + c, 0, exact, has_offsets);
        if (span > 2 && next + 2 < num) multiply(slice, panel, next + 2, two_blocks);
        if (two_blocks) {
            add_scaled(slice, panel, slice->chunk + c, 1, exact + 2 * TILE_NUMBERS, has_offsets);
        }
    }
}

static void run_slice(const struct slice *slice, const struct panel *panel) {
    bool two_blocks = slice->num_blocks == 2, has_offsets = slice->item->packed->num_numbers == 2;
    if (two_blocks && has_offsets) {
        run_panel(slice, panel, true, true);
    } else if (two_blocks) {
        run_panel(slice, panel, true, false);
    } else if (has_offsets) {
        run_panel(slice, panel, false, true);
    } else {
        run_panel(slice, panel, false, false);
    }
}

static void begin_sums(const struct slice *slice, const struct panel *panel) {
    for (uint32_t b = 0; b < slice->num_blocks; b++) {
        const float *start = slice->item->start + (size_t)(slice->block + b) * LANES;
        float *sums = panel->sums + (size_t)b * TILE_NUMBERS;
        for (uint32_t r = 0; r < panel->rows; r++, sums += LANES) {
            _mm512_store_ps(sums, _mm512_loadu_ps(start));
        }
    }
}

static void finish(const struct slice *slice, const struct panel *panel) {
    const struct linear_item *item = slice->item;
    for (uint32_t b = 0; b < slice->num_blocks; b++) {
        float *out = item->out + panel->row * item->out_stride + (size_t)(slice->block + b) * LANES;
        const float *sums = panel->sums + (size_t)b * TILE_NUMBERS;
        __mmask16 mask = avx512_first_lanes(b + 1 == slice->num_blocks ? slice->cols : LANES);
        for (uint32_t r = 0; r < panel->rows; r++, out += item->out_stride, sums += LANES) {
            _mm512_mask_storeu_ps(out, mask, _mm512_load_ps(sums));
        }
    }
}

static struct panel panel_of(const struct linear_item *item, uint32_t row, float *sums) {
    uint32_t left = item->rows - row, rows = left < TILE_ROWS ? left : (uint32_t)TILE_ROWS;
    size_t row_bytes = (size_t)spans_all_lines(item->packed, item->chunks) * FIXED_CHUNK_BYTES;
    return (struct panel){.row = row,
                          .rows = rows,
                          .x = item->x + row * row_bytes,
                          .stride = (size_t)rows * FIXED_CHUNK_BYTES,
                          .sums = sums + (size_t)row * 2 * LANES};
}

// All rows are multiplied by a slice of the weights before the next.
static void run_blocks(struct slice *slice, unsigned char *tiles, float *sums,
                       uint32_t *configured) {
    const struct linear_item *item = slice->item;
    for (slice->chunk = 0; slice->chunk < item->chunks; slice->chunk += SLICE_CHUNKS) {
        uint32_t left = item->chunks - slice->chunk;
        slice->num_chunks = left < SLICE_CHUNKS ? left : (uint32_t)SLICE_CHUNKS;
        unpack(slice, tiles);
        for (uint32_t row = 0; row < item->rows; row += TILE_ROWS) {
            struct panel panel = panel_of(item, row, sums);
            if (*configured != panel.rows) {
                const uint32_t n = panel.rows;
                amx_configure((const uint32_t[8]){n, n, n, n, n, n, TILE_ROWS, TILE_ROWS});
                *configured = n;
            }
            if (slice->chunk == 0) begin_sums(slice, &panel);
            run_slice(slice, &panel);
            if (left <= SLICE_CHUNKS) finish(slice, &panel);
        }
    }
}

static void run_item(const struct linear_item *item) {
    CACHE_ALIGNED unsigned char tiles[2 * PAIRS * TILE_BYTES];
    CACHE_ALIGNED float sums[ITEM_ROWS_MAX * 2 * LANES];
    uint32_t configured = 0;
    struct slice slice = {.item = item, .span = spans_chunks(item->packed), .tiles = tiles};
    for (; slice.block < item->num_blocks; slice.block += 2) {
        slice.num_blocks = item->num_blocks - slice.block < 2 ? 1 : 2;
        uint32_t left = item->cols - (slice.block + slice.num_blocks - 1) * LANES;
        slice.cols = left < LANES ? left : (uint32_t)LANES;
        run_blocks(&slice, tiles, sums, &configured);
    }
    _tile_release();
}

void amx_linear_spans(const struct linear_item *item) {
    if (item->rows <= VECTOR_ROWS) {
        avx512_vnni_linear_spans(item);
    } else {
        run_item(item);
    }
}
