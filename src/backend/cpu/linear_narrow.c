/* Running linears whose x is narrow, bf16 or bytes. Every row is converted once, into tiles
 * (kernels.h). Then items of some blocks of outputs times some rows go to the threads.
 *
 * Few rows: an item is some blocks of all rows, so that each weight is read once, by one thread.
 * Many rows: items are about square, because an item reads its rows and its weights from the L2
 * cache or beyond. Items of the same blocks follow each other, so that the later ones find the
 * weights in the shared cache. */
#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "base/check.h"

enum {
    PANEL_ROWS = 32, // two tiles of x; AVX-512's kernels take whole tiles of 16 too
    PANELS_PER_ITEM = ITEM_ROWS_MAX / PANEL_ROWS,
    ITEM_X_BYTES = 1 << 20, // an item's rows: half an L2 cache
    BLOCKS_PER_ITEM = 16,
    ITEMS_PER_THREAD = 2, // at least, where there is enough to cut
    STREAM_BYTES = 64 << 10, // less is not worth an item of its own
    PACK_ELEMENTS = 8192, // fewer are not worth an item of their own when x is converted
};

struct narrow_job {
    const struct cpu_kernels *kernels;
    const struct linear_run *run;
    size_t row_bytes; // of converted x
};

// One item converts some rows of one tile.
static void pack_rows_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct narrow_job *job = arg;
    const struct linear_run *run = job->run;
    const struct linear_group *group = linear_find_group(run, item, true);
    uint32_t in = group->linear->in;
    uint32_t begin = (item - group->first_pack_item) * group->rows_per_pack_item;
    uint32_t left = group->num_rows - begin;
    uint32_t end = begin + (left < group->rows_per_pack_item ? left : group->rows_per_pack_item);
    for (uint32_t row = begin; row < end; row++) {
        uint32_t tile = row / TILE_ROWS * TILE_ROWS, in_tile = group->num_rows - tile;
        if (in_tile > TILE_ROWS) in_tile = TILE_ROWS;
        unsigned char *out = (unsigned char *)run->packed +
                             (size_t)(group->first_row + tile) * job->row_bytes +
                             (size_t)(row - tile) * CHUNK_BYTES;
        size_t stride = (size_t)in_tile * CHUNK_BYTES;
        const float *x = linear_source_row(run, group->first_row + row);
        if (group->linear->kind == LINEAR_BF16) {
            job->kernels->narrow_bf16(x, in, out, stride);
        } else {
            run->x_scale[group->first_row + row] = job->kernels->narrow_int8(x, in, out, stride);
        }
    }
}

// A power of two, so that no item has rows of two tiles.
static uint32_t rows_per_pack_item(uint32_t depth) {
    uint32_t rows = TILE_ROWS;
    while (rows > 1 && rows * depth > PACK_ELEMENTS) rows /= 2;
    return rows;
}

static void narrow_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct narrow_job *job = arg;
    const struct linear_run *run = job->run;
    const struct linear_group *group = linear_find_group(run, item, false);
    const struct linear *linear = group->linear;
    item -= group->first_item;
    uint32_t part = item % group->num_panel_items;
    uint32_t block = item / group->num_panel_items * group->blocks_per_item;
    uint32_t blocks_left = linear->num_blocks - block;
    uint32_t num_blocks =
        blocks_left < group->blocks_per_item ? blocks_left : group->blocks_per_item;
    uint32_t first = part_begin(group->num_panels, group->num_panel_items, part) * PANEL_ROWS;
    uint32_t end = part_begin(group->num_panels, group->num_panel_items, part + 1) * PANEL_ROWS;
    if (end > group->num_rows) end = group->num_rows;
    uint32_t cols_left = linear->out - block * LANES;
    size_t row = group->first_row + first, lane = (size_t)block * LANES;
    bool is_bytes = linear->kind != LINEAR_BF16;
    struct linear_item work = {
        .kind = linear->kind,
        .x = (const unsigned char *)run->packed + row * job->row_bytes,
        .x_scale = is_bytes ? run->x_scale + row : NULL,
        .weights = (const unsigned char *)linear->weights + block * linear->block_bytes,
        .block_bytes = linear->block_bytes,
        .start = linear->start + lane,
        .scale = is_bytes ? linear->scale + lane : NULL,
        .sum128 = is_bytes ? linear->sum128 + lane : NULL,
        .out = run->out + row * linear->out + lane,
        .out_stride = linear->out,
        .rows = end - first,
        .chunks = (uint32_t)(job->row_bytes / CHUNK_BYTES),
        .num_blocks = num_blocks,
        .cols = cols_left < num_blocks * LANES ? cols_left : num_blocks * LANES,
    };
    job->kernels->linear_narrow(&work);
}

static uint32_t ceil_div(uint32_t count, uint32_t size) {
    CHECK(size > 0, "count=%u", count);
    return count / size + (count % size != 0);
}

// Decides how a group's work is cut, as the head of this file says. With several groups, each needs
// fewer items.
static void plan_group(const struct cpu_backend *cpu, struct linear_group *group,
                       uint32_t num_groups, size_t row_bytes) {
    const struct linear *linear = group->linear;
    group->rows_per_pack_item = rows_per_pack_item(linear->depth);
    group->num_panels = ceil_div(group->num_rows, PANEL_ROWS);
    if (group->num_panels == 1) {
        uint32_t least = (uint32_t)(STREAM_BYTES / linear->block_bytes) + 1;
        uint32_t grain = thread_pool_grain(cpu->pool, linear->num_blocks, least);
        group->blocks_per_item = grain > 1 ? (grain + 1) / 2 * 2 : 1;
        group->num_block_items = ceil_div(linear->num_blocks, group->blocks_per_item);
        group->num_panel_items = 1;
        return;
    }
    uint32_t threads = thread_pool_num_threads(cpu->pool);
    uint32_t wanted = threads > 1 ? ceil_div(threads * ITEMS_PER_THREAD, num_groups) : 1;
    uint32_t panels = (uint32_t)(ITEM_X_BYTES / (row_bytes * PANEL_ROWS));
    if (panels > PANELS_PER_ITEM) panels = PANELS_PER_ITEM;
    if (panels < 1) panels = 1;
    if (panels > group->num_panels) panels = group->num_panels;
    uint32_t blocks = linear->num_blocks < BLOCKS_PER_ITEM ? linear->num_blocks : BLOCKS_PER_ITEM;
    while (ceil_div(group->num_panels, panels) * ceil_div(linear->num_blocks, blocks) < wanted) {
        if (blocks > 2 && blocks * LANES >= panels * PANEL_ROWS) {
            blocks = ceil_div(blocks, 2);
        } else if (panels > 1) {
            panels = ceil_div(panels, 2);
        } else if (blocks > 2) {
            blocks = ceil_div(blocks, 2);
        } else {
            break;
        }
    }
    group->blocks_per_item = blocks;
    group->num_block_items = ceil_div(linear->num_blocks, blocks);
    group->num_panel_items = ceil_div(group->num_panels, panels);
}

void linear_narrow_run(struct cpu_backend *cpu, struct linear_run *run) {
    const struct linear *linear = run->groups[0].linear;
    struct narrow_job job = {
        .kernels = cpu->kernels,
        .run = run,
        .row_bytes = (size_t)linear->depth * (linear->kind == LINEAR_BF16 ? 2 : 1),
    };
    uint32_t num_items = 0, num_pack_items = 0;
    for (uint32_t i = 0; i < run->num_groups; i++) {
        struct linear_group *group = &run->groups[i];
        plan_group(cpu, group, run->num_groups, job.row_bytes);
        group->first_item = num_items;
        group->first_pack_item = num_pack_items;
        num_items += group->num_block_items * group->num_panel_items;
        num_pack_items += ceil_div(group->num_rows, group->rows_per_pack_item);
    }
    thread_pool_for(cpu->pool, num_pack_items, pack_rows_item, &job);
    thread_pool_for(cpu->pool, num_items, narrow_item, &job);
}
