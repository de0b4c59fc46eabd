/* y = x W^T in tiles: 2 x 2 tiles of 16 x 16 sums, from two tiles of x and two of the weights. Each
 * KiB loaded gives 16 Ki multiply-adds of bytes, or 8 Ki of bf16. Weights are stored as such tiles
 * of 1 KiB.
 *
 * A sum begins with its bias and adds tile products over ascending chunks of the depth. Neither the
 * number of rows nor a row's place in its tile changes that, so a row's bits do not depend on the
 * batch. For fewer than 16 rows smaller tiles are configured, which take less time.
 *
 * One panel of up to 32 rows: the sums stay in tiles over the whole depth. More rows: the depth is
 * cut into slices, so that two blocks' weights (32 KiB) stay in the L1 cache while all panels are
 * multiplied by them. x and the sums between slices are read with the hint that they are not used
 * again soon; otherwise they evict the weights, which costs a third of the speed. The sums are in a
 * buffer, as rows of `out` may be a power of two apart and would evict each other. While a slice is
 * multiplied, the next one is prefetched. */
#include "backend/cpu/amx/amx_linear.h"
#include "backend/cpu/amx/amx_tiles.h"
#include "backend/cpu/avx512/avx512_dots.h"
#include "backend/cpu/avx512/avx512_pairs.h"
#include "base/check.h"
#include "base/compiler.h"

enum {
    PANEL_ROWS = 2 * TILE_ROWS,
    TILE_FLOATS = TILE_ROWS * LANES,
    SLICE_CHUNKS = 16, // many rows: all are multiplied by this many chunks before the next
    FEW_SLICE_CHUNKS = 8, // one panel: this many chunks are fetched ahead
    FLUSH_DENORMALS = 0x8040, // MXCSR's FTZ and DAZ, as tiles flush denormals
};

// Two blocks of an item, or a single one at its end.
struct blocks {
    const struct linear_item *item;
    uint32_t first;
    uint32_t cols; // outputs of the last of them: 16 or fewer
    bool one_panel; // the sums stay in tiles
    bool unscaled; // amx_is_unscaled
    uint32_t *configured; // rows that the tiles are configured for; 0: not yet
    unsigned char *unpacked; // [2][SLICE_CHUNKS][1 KiB] of 4-bit weights
    float *sums; // [panels][4][16][16]: a panel's tiles 0 to 3 between slices
};

// The weights of a slice, and those to prefetch meanwhile.
struct slice {
    uint32_t chunk, num_chunks;
    const unsigned char *weights[2];
    const char *ahead[2]; // NULL: nothing to prefetch
    uint32_t line_bytes; // bytes of `ahead` to prefetch for each chunk
};

// Tiles 0 and 1 are the sums of the first 16 rows, 2 and 3 of the others. 4 and 5 are x, 6 and 7
// weights. Configuring clears them all.
static void configure(uint32_t rows, uint32_t *configured) {
    if (*configured == rows) return;
    uint32_t first = rows < TILE_ROWS ? rows : TILE_ROWS, second = rows - first;
    const uint32_t of_tile[8] = {first, first, second, second, first, second, TILE_ROWS, TILE_ROWS};
    amx_configure(of_tile);
    *configured = rows;
}

// A panel of x: its one or two tiles of every chunk.
struct panel {
    uint32_t row, rows;
    const unsigned char *x[2]; // at the depth's beginning
    size_t stride[2]; // bytes from one chunk to the next
};

static ALWAYS_INLINE struct panel panel_of(const struct linear_item *item, uint32_t index) {
    struct panel panel = {.row = index * PANEL_ROWS};
    uint32_t left = item->rows - panel.row;
    panel.rows = left < PANEL_ROWS ? left : PANEL_ROWS;
    for (uint32_t tile = 0; tile * TILE_ROWS < panel.rows; tile++) {
        uint32_t row = panel.row + tile * TILE_ROWS;
        panel.x[tile] = item->x + (size_t)row * item->chunks * CHUNK_BYTES;
        panel.stride[tile] = (size_t)narrow_tile_rows(item, row) * CHUNK_BYTES;
    }
    return panel;
}

static ALWAYS_INLINE void load_sums(const float *from, bool two_rows, bool two_blocks) {
    _tile_stream_loadd(0, from, CHUNK_BYTES);
    if (two_blocks) _tile_stream_loadd(1, from + TILE_FLOATS, CHUNK_BYTES);
    if (two_rows) _tile_stream_loadd(2, from + 2 * TILE_FLOATS, CHUNK_BYTES);
    if (two_rows && two_blocks) _tile_stream_loadd(3, from + 3 * TILE_FLOATS, CHUNK_BYTES);
}

static ALWAYS_INLINE void store_sums(float *to, bool two_rows, bool two_blocks) {
    _tile_stored(0, to, CHUNK_BYTES);
    if (two_blocks) _tile_stored(1, to + TILE_FLOATS, CHUNK_BYTES);
    if (two_rows) _tile_stored(2, to + 2 * TILE_FLOATS, CHUNK_BYTES);
    if (two_rows && two_blocks) _tile_stored(3, to + 3 * TILE_FLOATS, CHUNK_BYTES);
}

static ALWAYS_INLINE void store_out(float *out, size_t stride, bool two_rows, bool two_blocks) {
    char *second = (char *)out + TILE_ROWS * stride;
    _tile_stored(0, out, stride);
    if (two_blocks) _tile_stored(1, out + LANES, stride);
    if (two_rows) _tile_stored(2, second, stride);
    if (two_rows && two_blocks) _tile_stored(3, second + LANES * sizeof(float), stride);
}

// Sums of bf16 weights begin with the biases; of integers, and of codes' values, with 0.
static ALWAYS_INLINE void start_sums(const struct blocks *blocks, bool two_rows, bool two_blocks,
                                     bool bf16) {
    if (bf16 && !blocks->unscaled) {
        // Stride 0: the same 16 biases for every row.
        const float *start = blocks->item->start + (size_t)blocks->first * LANES;
        _tile_loadd(0, start, 0);
        if (two_blocks) _tile_loadd(1, start + LANES, 0);
        if (two_rows) _tile_loadd(2, start, 0);
        if (two_rows && two_blocks) _tile_loadd(3, start + LANES, 0);
        return;
    }
    _tile_zero(0);
    if (two_blocks) _tile_zero(1);
    if (two_rows) _tile_zero(2);
    if (two_rows && two_blocks) _tile_zero(3);
}

static ALWAYS_INLINE void fetch(const char *from, uint32_t begin, uint32_t end, bool near) {
    for (uint32_t byte = begin; byte < end; byte += 64) {
        if (near) {
            _mm_prefetch(from + byte, _MM_HINT_T0);
        } else {
            _mm_prefetch(from + byte, _MM_HINT_T1);
        }
    }
}

// Multiplies one panel by a slice. Also prefetches bytes begin .. end - 1 of each chunk to come.
static ALWAYS_INLINE void multiply(const struct slice *slice, const struct panel *panel,
                                   uint32_t begin, uint32_t end, bool two_rows, bool two_blocks,
                                   bool bf16) {
    const unsigned char *w0 = slice->weights[0], *w1 = slice->weights[1];
    const unsigned char *x0 = panel->x[0] + slice->chunk * panel->stride[0], *x1 = NULL;
    if (two_rows) x1 = panel->x[1] + slice->chunk * panel->stride[1];
    for (uint32_t c = 0; c < slice->num_chunks; c++) {
        _tile_loadd(6, w0 + (size_t)c * TILE_BYTES, CHUNK_BYTES);
        _tile_stream_loadd(4, x0 + c * panel->stride[0], CHUNK_BYTES);
        if (two_blocks) _tile_loadd(7, w1 + (size_t)c * TILE_BYTES, CHUNK_BYTES);
        if (two_rows) _tile_stream_loadd(5, x1 + c * panel->stride[1], CHUNK_BYTES);
        if (bf16) {
            _tile_dpbf16ps(0, 4, 6);
            if (two_blocks) _tile_dpbf16ps(1, 4, 7);
            if (two_rows) _tile_dpbf16ps(2, 5, 6);
            if (two_rows && two_blocks) _tile_dpbf16ps(3, 5, 7);
        } else {
            _tile_dpbusd(0, 4, 6);
            if (two_blocks) _tile_dpbusd(1, 4, 7);
            if (two_rows) _tile_dpbusd(2, 5, 6);
            if (two_rows && two_blocks) _tile_dpbusd(3, 5, 7);
        }
        size_t line = (size_t)c * slice->line_bytes;
        bool near = begin == 0 && end == slice->line_bytes; // a single panel
        if (slice->ahead[0]) fetch(slice->ahead[0] + line, begin, end, near);
        if (two_blocks && slice->ahead[1]) fetch(slice->ahead[1] + line, begin, end, near);
    }
}

// Scales of the group that a chunk of a block is in.
static ALWAYS_INLINE __m512 scales_of(const struct blocks *blocks, uint32_t block, uint32_t chunk) {
    const struct linear_item *item = blocks->item;
    const unsigned char *w = item->weights + (blocks->first + block) * item->block_bytes;
    struct packed_chunk packed;
    packed_chunk_init(&packed);
    packed_chunk_at(item->packed, w, chunk, &packed);
    return avx512_group_scales(unpack_kind_of(item->packed->code), packed.scales[0]);
}

// Adds one tile of a group's sums, times its scales, to the sums of the groups before. The first
// group's are added to the biases.
static ALWAYS_INLINE void add_scaled(const struct blocks *blocks, uint32_t chunk, uint32_t rows,
                                     uint32_t block, const float *group, float *sums) {
    __m512 scale = scales_of(blocks, block, chunk);
    __m512 start = _mm512_loadu_ps(blocks->item->start + (size_t)(blocks->first + block) * LANES);
    bool is_first = chunk >> blocks->item->packed->span_shift == 0;
    for (uint32_t r = 0; r < rows; r++, group += LANES, sums += LANES) {
        __m512 before = is_first ? start : _mm512_loadu_ps(sums);
        _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(group), scale, before));
    }
}

// Writes one tile of sums from a buffer to `out`; integers are scaled as struct linear_item says.
static ALWAYS_INLINE void finish_tile(const struct blocks *blocks, uint32_t row, uint32_t rows,
                                      uint32_t block, const float *sums) {
    const struct linear_item *item = blocks->item;
    size_t lane = (size_t)(blocks->first + block) * LANES;
    float *out = item->out + row * item->out_stride + lane;
    __mmask16 mask = (__mmask16)((1u << blocks->cols) - 1);
    if (!linear_item_is_bytes(item)) {
        bool is_scaled = !blocks->unscaled || !packed_is_one_group(item->packed);
        __m512 scale = is_scaled ? _mm512_setzero_ps() : scales_of(blocks, block, 0);
        for (uint32_t r = 0; r < rows; r++, out += item->out_stride) {
            __m512 value = _mm512_loadu_ps(sums + (size_t)r * LANES);
            if (!is_scaled) {
                value = _mm512_fmadd_ps(value, scale, _mm512_loadu_ps(item->start + lane));
            }
            _mm512_mask_storeu_ps(out, mask, value);
        }
        return;
    }
    __m512 scale = _mm512_loadu_ps(item->scale + lane), start = _mm512_loadu_ps(item->start + lane);
    __m512i sum128 = _mm512_loadu_si512(item->sum128 + lane);
    for (uint32_t r = 0; r < rows; r++, out += item->out_stride) {
        __m512i exact = _mm512_loadu_si512(sums + (size_t)r * LANES);
        __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(exact, sum128));
        __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(item->x_scale[row + r]));
        value = _mm512_add_ps(start, _mm512_mul_ps(value, both));
        _mm512_mask_storeu_ps(out, mask, value);
    }
}

// Writes the tiles' complete sums to `out`, directly or through the panel's buffer.
static ALWAYS_INLINE void finish(const struct blocks *blocks, const struct panel *panel,
                                 float *sums, bool two_rows, bool two_blocks, bool bf16) {
    const struct linear_item *item = blocks->item;
    if (bf16 && !blocks->unscaled && blocks->cols == LANES) {
        float *out = item->out + panel->row * item->out_stride + (size_t)blocks->first * LANES;
        store_out(out, item->out_stride * sizeof *out, two_rows, two_blocks);
        return;
    }
    bool is_in_sums = blocks->unscaled && !packed_is_one_group(item->packed);
    if (!is_in_sums) store_sums(sums, two_rows, two_blocks);
    uint32_t first = two_rows ? (uint32_t)TILE_ROWS : panel->rows;
    finish_tile(blocks, panel->row, first, 0, sums);
    if (two_blocks) finish_tile(blocks, panel->row, first, 1, sums + TILE_FLOATS);
    if (!two_rows) return;
    uint32_t row = panel->row + TILE_ROWS, rows = panel->rows - TILE_ROWS;
    finish_tile(blocks, row, rows, 0, sums + 2 * TILE_FLOATS);
    if (two_blocks) finish_tile(blocks, row, rows, 1, sums + 3 * TILE_FLOATS);
}

static ALWAYS_INLINE uint32_t slice_chunks(const struct blocks *blocks) {
    return blocks->one_panel ? FEW_SLICE_CHUNKS : SLICE_CHUNKS;
}

static ALWAYS_INLINE void use_weights(const struct blocks *blocks, uint32_t chunk,
                                      uint32_t num_blocks, struct slice *slice) {
    const struct linear_item *item = blocks->item;
    uint32_t left = item->chunks - chunk, most = slice_chunks(blocks);
    slice->chunk = chunk;
    slice->num_chunks = left < most ? left : most;
    bool is_packed = weight_format_is_packed(item->format), is_int4 = linear_item_is_int4(item);
    slice->line_bytes = is_packed ? item->packed->chunk_bytes
                        : is_int4 ? (uint32_t)INT4_TILE_BYTES
                                  : (uint32_t)TILE_BYTES;
    for (uint32_t b = 0; b < num_blocks; b++) {
        uint32_t block = blocks->first + b;
        const unsigned char *w = item->weights + block * item->block_bytes;
        if (is_packed) {
            unsigned char *out = blocks->unpacked + (size_t)b * SLICE_CHUNKS * TILE_BYTES;
            slice->weights[b] = out;
            struct packed_chunk from;
            packed_chunk_init(&from);
            for (uint32_t c = 0; c < slice->num_chunks; c++, out += TILE_BYTES) {
                packed_chunk_at(item->packed, w, chunk + c, &from);
                if (blocks->unscaled) {
                    avx512_unpack_values(&from, item->packed->code, out);
                } else {
                    avx512_unpack_pairs(&from, item->packed->code, out);
                }
            }
        } else if (is_int4) {
            struct narrow_int4 from = narrow_int4_of(item, block, chunk);
            unsigned char *out = blocks->unpacked + (size_t)b * SLICE_CHUNKS * TILE_BYTES;
            slice->weights[b] = out;
            for (uint32_t c = 0; c < slice->num_chunks; c++, out += TILE_BYTES) {
                avx512_unpack_int4(from.quads + (size_t)c * INT4_TILE_BYTES,
                                   from.scales + (size_t)c * INT4_SCALE_BYTES, out);
            }
        } else {
            slice->weights[b] = w + (size_t)chunk * TILE_BYTES;
        }
        // The next slice of the same blocks, or the first one of the next two.
        const unsigned char *next = NULL;
        if (left > most && is_packed) {
            next = w + packed_codes_at(item->packed, chunk + most);
        } else if (left > most) {
            next = w + (size_t)(chunk + most) * slice->line_bytes;
        } else if (block + num_blocks < item->num_blocks) {
            next = w + num_blocks * item->block_bytes;
        } else if (item->next) {
            next = item->next + b * item->block_bytes;
        }
        slice->ahead[b] = (const char *)next;
    }
    // Compilers do not know that tile loads read what was unpacked.
    __asm__ volatile("" ::: "memory");
}

// Runs one panel over the groups of a slice, whose sums are scaled one after the other.
static ALWAYS_INLINE void run_groups(const struct blocks *blocks, const struct slice *slice,
                                     const struct panel *panel, uint32_t begin, uint32_t end,
                                     bool two_rows, bool two_blocks) {
    CACHE_ALIGNED float group[4 * TILE_FLOATS];
    float *sums = blocks->sums + (size_t)panel->row / PANEL_ROWS * 4 * TILE_FLOATS;
    uint32_t span = 1u << blocks->item->packed->span_shift;
    uint32_t first = two_rows ? (uint32_t)TILE_ROWS : panel->rows, second = panel->rows - first;
    for (uint32_t c = 0; c < slice->num_chunks; c += span) {
        uint32_t left = slice->num_chunks - c, chunk = slice->chunk + c;
        struct slice part = *slice;
        part.chunk = chunk;
        part.num_chunks = left < span ? left : span;
        for (uint32_t b = 0; b < (two_blocks ? 2 : 1); b++) {
            part.weights[b] += (size_t)c * TILE_BYTES;
            if (part.ahead[b]) part.ahead[b] += (size_t)c * slice->line_bytes;
        }
        start_sums(blocks, two_rows, two_blocks, true);
        multiply(&part, panel, begin, end, two_rows, two_blocks, true);
        store_sums(group, two_rows, two_blocks);
        __asm__ volatile("" ::: "memory");
        add_scaled(blocks, chunk, first, 0, group, sums);
        if (two_blocks) {
            add_scaled(blocks, chunk, first, 1, group + TILE_FLOATS, sums + TILE_FLOATS);
        }
        if (!two_rows) continue;
        add_scaled(blocks, chunk, second, 0, group + 2 * TILE_FLOATS, sums + 2 * TILE_FLOATS);
        if (two_blocks) {
            add_scaled(blocks, chunk, second, 1, group + 3 * TILE_FLOATS, sums + 3 * TILE_FLOATS);
        }
    }
    if (slice->chunk + slice->num_chunks == blocks->item->chunks) {
        finish(blocks, panel, sums, two_rows, two_blocks, true);
    }
}

// Runs one panel over a slice. Its sums begin here or come from the buffer, and go back to the
// buffer or, when complete, to `out`.
static ALWAYS_INLINE void run_tiles(const struct blocks *blocks, const struct slice *slice,
                                    const struct panel *panel, uint32_t begin, uint32_t end,
                                    bool two_rows, bool two_blocks, bool bf16) {
    float *sums = blocks->sums + (size_t)panel->row / PANEL_ROWS * 4 * TILE_FLOATS;
    configure(panel->rows, blocks->configured);
    if (blocks->unscaled && !packed_is_one_group(blocks->item->packed)) {
        run_groups(blocks, slice, panel, begin, end, two_rows, two_blocks);
        return;
    }
    if (slice->chunk == 0) {
        start_sums(blocks, two_rows, two_blocks, bf16);
    } else if (!blocks->one_panel) {
        load_sums(sums, two_rows, two_blocks);
    }
    multiply(slice, panel, begin, end, two_rows, two_blocks, bf16);
    if (slice->chunk + slice->num_chunks == blocks->item->chunks) {
        finish(blocks, panel, sums, two_rows, two_blocks, bf16);
    } else if (!blocks->one_panel) {
        store_sums(sums, two_rows, two_blocks);
    }
}

// Slice after slice of the depth, all panels over each.
static ALWAYS_INLINE void run_blocks(const struct blocks *blocks, bool two_blocks, bool bf16) {
    const struct linear_item *item = blocks->item;
    uint32_t num_panels = (item->rows + PANEL_ROWS - 1) / PANEL_ROWS;
    CHECK(num_panels > 0, "rows=%u", item->rows);
    for (uint32_t chunk = 0; chunk < item->chunks; chunk += slice_chunks(blocks)) {
        struct slice slice = {0};
        use_weights(blocks, chunk, two_blocks ? 2 : 1, &slice);
        uint32_t share = (slice.line_bytes / 64 + num_panels - 1) / num_panels * 64;
        for (uint32_t index = 0; index < num_panels; index++) {
            struct panel panel = panel_of(item, index);
            uint32_t begin = index * share, end = begin + share;
            if (begin > slice.line_bytes) begin = slice.line_bytes;
            if (end > slice.line_bytes) end = slice.line_bytes;
            if (panel.rows > TILE_ROWS) {
                run_tiles(blocks, &slice, &panel, begin, end, true, two_blocks, bf16);
            } else {
                run_tiles(blocks, &slice, &panel, begin, end, false, two_blocks, bf16);
            }
        }
    }
}

static ALWAYS_INLINE void run_item(const struct linear_item *item, bool bf16) {
    CACHE_ALIGNED unsigned char unpacked[2 * SLICE_CHUNKS * TILE_BYTES];
    CACHE_ALIGNED float sums[ITEM_ROWS_MAX / PANEL_ROWS * 4 * TILE_FLOATS];
    uint32_t configured = 0, partial = item->cols % LANES;
    uint32_t whole = item->num_blocks - (partial != 0);
    struct blocks blocks = {.item = item,
                            .cols = LANES,
                            .one_panel = item->rows <= PANEL_ROWS,
                            .unscaled = weight_format_is_packed(item->format) &&
                                        amx_is_unscaled(item->packed),
                            .configured = &configured,
                            .unpacked = unpacked,
                            .sums = sums};
    for (; whole - blocks.first >= 2; blocks.first += 2) run_blocks(&blocks, true, bf16);
    for (; blocks.first < item->num_blocks; blocks.first++) {
        blocks.cols = blocks.first < whole ? (uint32_t)LANES : partial;
        run_blocks(&blocks, false, bf16);
    }
    _tile_release();
}

void amx_linear_pairs(const struct linear_item *item) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_DENORMALS);
    if (item->rows <= AMX_LINEAR_FEW_ROWS && weight_format_is_packed(item->format)) {
        amx_linear_few(item);
    } else {
        run_item(item, true);
    }
    _mm_setcsr(before);
}

void amx_linear_bytes(const struct linear_item *item) {
    run_item(item, false);
}
