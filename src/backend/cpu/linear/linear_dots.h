/* The loops around a kernel of dot products in registers, for instruction sets without tiles.
 * Blocks are processed in groups. With many rows the depth is cut into slices. A group's weights of
 * a slice stay in the L1 cache while all rows are multiplied by them. Between slices the sums are
 * stored in `out`, which changes no bit of them. */
#ifndef BACKEND_CPU_LINEAR_DOTS_H
#define BACKEND_CPU_LINEAR_DOTS_H

#include "backend/cpu/linear/narrow.h"
#include "base/check.h"

enum {
    DOTS_ROWS_MAX = 8,
    DOTS_BLOCKS_MAX = 8,
    DOTS_SLICE_CHUNKS = 8, // many rows: all are multiplied by this many chunks before the next
    DOTS_UNPACKED_TILES = 16, // weights are unpacked this many tiles at a time
};

// sums[r][b][lane] (+)= dot products over the chunks.
struct linear_dots {
    const unsigned char *x; // [chunks][rows of the tile][64], at the first row
    size_t x_stride; // bytes from one chunk to the next
    const unsigned char *weights; // [num_blocks][chunks][1 KiB]; of the kernel int4 [512]
    const unsigned char *scales; // of the kernel int4: [num_blocks][chunks][2][16]
    size_t block_bytes;
    const float *start; // [num_blocks][16] initial sums of bf16, if is_first
    const int32_t *sum128; // [num_blocks][16] as in struct linear_item, of bytes
    void *sums; // [rows][num_blocks * 16] float or int32, rows sums_stride elements apart
    size_t sums_stride;
    const struct packed_shape *packed; // of the kernel packed: weights are whole blocks
    // Of the kernel values: the blocks that `weights` are values of.
    const unsigned char *packed_weights;
    size_t packed_block_bytes;
    uint32_t first_chunk, depth_chunks; // where the depth's chunks begin, and how many it has
    uint32_t rows, num_blocks, chunks;
    bool is_first; // else the sums continue from `sums`
};

// The kernels of an instruction set.
struct dots_kernels {
    void (*bf16)(const struct linear_dots *dots); // NULL: x is never bf16, or weights are packed
    void (*int8)(const struct linear_dots *dots);
    // 4-bit weights are multiplied as they are, or unpacked for the kernel int8; one of these two.
    void (*int4)(const struct linear_dots *dots);
    void (*unpack_int4)(const unsigned char *quads, const unsigned char *scales,
                        unsigned char *out); // one tile
    // Packed weights times bf16 as they are, over the whole depth; and one chunk of them as a tile
    // of bf16, for more than rows_max rows. Both, if bf16.
    void (*packed)(const struct linear_dots *dots);
    void (*unpack)(const struct packed_chunk *chunk, enum weight_code code, unsigned char *out);
    // The same for formats that packed_is_unscaled: tiles of values, whose sums are scaled. NULL:
    // they are rounded.
    void (*values)(const struct linear_dots *dots);
    void (*unpack_values)(const struct packed_chunk *chunk, enum weight_code code,
                          unsigned char *out);
    uint32_t rows_max; // <= DOTS_ROWS_MAX
    uint32_t num_blocks[DOTS_ROWS_MAX + 1]; // of a group, by its number of rows; <= DOTS_BLOCKS_MAX
};

// How far ahead weights are fetched. Each block is a stream from memory, and a single stream needs
// more than one of several. At its end each of several continues with the block that is `blocks`
// later.
static inline size_t linear_dots_ahead(const struct linear_dots *dots, uint32_t chunk,
                                       uint32_t blocks, size_t tile_bytes) {
    uint32_t tiles = blocks > 1 ? 1 : 4;
    bool is_end = blocks > 1 && chunk + tiles >= dots->chunks;
    return tiles * tile_bytes +
           (is_end ? blocks * dots->block_bytes - dots->chunks * tile_bytes : 0);
}

// Some blocks of an item, over all its rows.
struct dots_group {
    const struct linear_item *item;
    const struct dots_kernels *kernels;
    uint32_t block, num_blocks;
    unsigned char *unpacked; // [DOTS_UNPACKED_TILES][1 KiB]
};

static inline bool dots_is_unpacked(const struct dots_group *group) {
    const struct linear_item *item = group->item;
    if (weight_format_is_packed(item->format)) return item->rows > group->kernels->rows_max;
    return linear_item_is_int4(item) && !group->kernels->int4;
}

static inline bool dots_is_unscaled(const struct dots_group *group) {
    const struct linear_item *item = group->item;
    return group->kernels->values && weight_format_is_packed(item->format) &&
           packed_is_unscaled(item->packed, false);
}

static inline void dots_use_packed(const struct dots_group *group, uint32_t chunk,
                                   struct linear_dots *dots) {
    const struct linear_item *item = group->item;
    const unsigned char *block = item->weights + group->block * item->block_bytes;
    dots->packed = item->packed;
    dots->weights = block;
    dots->block_bytes = item->block_bytes;
    if (!dots_is_unpacked(group)) return;
    unsigned char *out = group->unpacked;
    bool is_unscaled = dots_is_unscaled(group);
    CHECK(group->kernels->unpack, "block=%u", group->block);
    for (uint32_t b = 0; b < dots->num_blocks; b++, block += item->block_bytes) {
        struct packed_chunk from;
        packed_chunk_init(&from);
        for (uint32_t c = 0; c < dots->chunks; c++, out += TILE_BYTES) {
            packed_chunk_at(item->packed, block, chunk + c, &from);
            if (is_unscaled) {
                group->kernels->unpack_values(&from, item->packed->code, out);
            } else {
                group->kernels->unpack(&from, item->packed->code, out);
            }
        }
    }
    dots->packed_weights = dots->weights;
    dots->packed_block_bytes = item->block_bytes;
    dots->block_bytes = (size_t)dots->chunks * TILE_BYTES;
    dots->weights = group->unpacked;
}

// Points `dots` at the weights of a slice, which are unpacked first where the kernels need that.
static inline void dots_use_weights(const struct dots_group *group, uint32_t chunk,
                                    struct linear_dots *dots) {
    const struct linear_item *item = group->item;
    if (weight_format_is_packed(item->format)) {
        dots_use_packed(group, chunk, dots);
        return;
    }
    if (linear_item_is_int4(item) && !dots_is_unpacked(group)) {
        struct narrow_int4 from = narrow_int4_of(item, group->block, chunk);
        dots->block_bytes = item->block_bytes;
        dots->weights = from.quads;
        dots->scales = from.scales;
        return;
    }
    if (!linear_item_is_int4(item)) {
        dots->block_bytes = item->block_bytes;
        dots->weights =
            item->weights + group->block * item->block_bytes + (size_t)chunk * TILE_BYTES;
        return;
    }
    unsigned char *out = group->unpacked;
    CHECK(group->kernels->unpack_int4, "block=%u", group->block);
    for (uint32_t b = 0; b < dots->num_blocks; b++) {
        struct narrow_int4 from = narrow_int4_of(item, group->block + b, chunk);
        for (uint32_t c = 0; c < dots->chunks; c++, out += TILE_BYTES) {
            group->kernels->unpack_int4(from.quads + (size_t)c * INT4_TILE_BYTES,
                                        from.scales + (size_t)c * INT4_SCALE_BYTES, out);
        }
    }
    dots->block_bytes = (size_t)dots->chunks * TILE_BYTES;
    dots->weights = group->unpacked;
}

// One slice for rows row .. row + dots.rows - 1, whose sums are at dots.sums.
static inline void dots_rows(const struct dots_group *group, struct linear_dots dots, uint32_t row,
                             uint32_t chunk) {
    const struct linear_item *item = group->item;
    dots.x_stride = (size_t)narrow_tile_rows(item, row) * CHUNK_BYTES;
    dots.x = item->x + (size_t)(row / TILE_ROWS) * item->chunks * TILE_BYTES +
             chunk * dots.x_stride + (size_t)(row % TILE_ROWS) * CHUNK_BYTES;
    dots.start = item->start + (size_t)group->block * LANES;
    dots.is_first = chunk == 0;
    if (!linear_item_is_bytes(item)) {
        if (dots_is_unpacked(group) && dots_is_unscaled(group)) {
            dots.first_chunk = chunk;
            dots.depth_chunks = item->chunks;
            group->kernels->values(&dots);
        } else if (!weight_format_is_packed(item->format) || dots_is_unpacked(group)) {
            CHECK(group->kernels->bf16, "rows=%u", dots.rows); // else x is never bf16
            group->kernels->bf16(&dots);
        } else {
            CHECK(group->kernels->packed, "rows=%u", dots.rows);
            group->kernels->packed(&dots);
        }
        return;
    }
    dots.sum128 = item->sum128 + (size_t)group->block * LANES;
    if (linear_item_is_int4(item) && !dots_is_unpacked(group)) {
        CHECK(group->kernels->int4, "rows=%u", dots.rows);
        group->kernels->int4(&dots);
    } else {
        CHECK(group->kernels->int8, "rows=%u", dots.rows);
        group->kernels->int8(&dots);
    }
    if (chunk + dots.chunks < item->chunks) return;
    for (uint32_t r = 0; r < dots.rows; r++) {
        float *sums = (float *)dots.sums + r * dots.sums_stride;
        for (uint32_t b = 0; b < dots.num_blocks; b++, sums += LANES) {
            narrow_finish(item, row + r, group->block + b, sums);
        }
    }
}

// How many rows from `row` on the kernel takes at once. They are of one tile, whose rows are shared
// out about equally.
static inline uint32_t dots_row_count(const struct dots_group *group, uint32_t row) {
    uint32_t left = group->item->rows - row, in_tile = TILE_ROWS - row % TILE_ROWS;
    if (left > in_tile) left = in_tile;
    uint32_t parts = (left + group->kernels->rows_max - 1) / group->kernels->rows_max;
    return (left + parts - 1) / parts;
}

static inline void dots_whole_blocks(const struct dots_group *group, uint32_t step) {
    const struct linear_item *item = group->item;
    for (uint32_t chunk = 0; chunk < item->chunks; chunk += step) {
        uint32_t left = item->chunks - chunk;
        struct linear_dots dots = {.num_blocks = group->num_blocks,
                                   .chunks = left < step ? left : step,
                                   .sums_stride = item->out_stride};
        dots_use_weights(group, chunk, &dots);
        for (uint32_t row = 0; row < item->rows; row += dots.rows) {
            dots.rows = dots_row_count(group, row);
            dots.sums = item->out + row * item->out_stride + (size_t)group->block * LANES;
            dots_rows(group, dots, row, chunk);
        }
    }
}

// The last block when it has fewer than 16 outputs: its sums are kept in a buffer, as a row of
// `out` has no room for 16.
static inline void dots_partial_block(const struct dots_group *group, uint32_t step,
                                      uint32_t cols) {
    const struct linear_item *item = group->item;
    float sums[DOTS_ROWS_MAX * LANES];
    struct linear_dots dots = {.num_blocks = 1, .sums = sums, .sums_stride = LANES};
    for (uint32_t row = 0; row < item->rows; row += dots.rows) {
        dots.rows = dots_row_count(group, row);
        for (uint32_t chunk = 0; chunk < item->chunks; chunk += step) {
            uint32_t left = item->chunks - chunk;
            dots.chunks = left < step ? left : step;
            dots_use_weights(group, chunk, &dots);
            dots_rows(group, dots, row, chunk);
        }
        for (uint32_t r = 0; r < dots.rows; r++) {
            memcpy(item->out + (row + r) * item->out_stride + (size_t)group->block * LANES,
                   sums + (size_t)r * LANES, cols * sizeof *sums);
        }
    }
}

// How many chunks of some blocks are unpacked at a time: whole groups, if their sums are scaled.
static inline uint32_t dots_unpacked_chunks(const struct dots_group *group) {
    uint32_t chunks = DOTS_UNPACKED_TILES / group->num_blocks;
    if (!dots_is_unscaled(group) || packed_is_one_group(group->item->packed)) return chunks;
    uint32_t span = 1u << group->item->packed->span_shift;
    CHECK(chunks >= span, "blocks=%u", group->num_blocks);
    return chunks / span * span;
}

static inline void linear_dots_run(const struct linear_item *item,
                                   const struct dots_kernels *kernels) {
    CACHE_ALIGNED unsigned char unpacked[DOTS_UNPACKED_TILES * TILE_BYTES];
    struct dots_group group = {.item = item, .kernels = kernels, .unpacked = unpacked};
    uint32_t most = kernels->num_blocks[dots_row_count(&group, 0)];
    uint32_t partial = item->cols % LANES;
    uint32_t whole = item->num_blocks - (partial != 0);
    for (; group.block < whole; group.block += group.num_blocks) {
        uint32_t left = whole - group.block;
        group.num_blocks = left < most ? left : most;
        uint32_t step = item->rows > kernels->rows_max ? DOTS_SLICE_CHUNKS : item->chunks;
        if (dots_is_unpacked(&group)) step = dots_unpacked_chunks(&group);
        dots_whole_blocks(&group, step);
    }
    if (!partial) return;
    group.num_blocks = 1;
    uint32_t step = dots_is_unpacked(&group) ? (uint32_t)DOTS_UNPACKED_TILES : item->chunks;
    dots_partial_block(&group, step, partial);
}

#endif
