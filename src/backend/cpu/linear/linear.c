/* Running linears, and embedding, which reads the rows of one. Here x is float32; linear_narrow.c
 * has narrow x. Each group's rows of x are packed into panels of up to panel_rows, [depth][rows].
 * Then items of some blocks of outputs times some panels go to the threads.
 *
 * One panel (decode): an item streams its weights once, over the whole depth. Several panels
 * (prefill): the depth is cut into slices. A slice of the weights stays in the L2 cache and a panel
 * in the L1 while they are multiplied. Between slices the sums are stored in `out`, which changes
 * no bit of them. Where the instruction set asks for it (widen_bf16), an item of many rows turns a
 * slice of bf16 weights into floats first. Then the loop has nothing but multiply-adds. Packed
 * weights become floats in that way for any number of rows. */
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/linear/linear_packing.h"
#include "backend/cpu/ops.h"
#include "base/check.h"

enum {
    DEPTH_STEP = 512, // of the prefill: a panel of 12 x 512 floats is 24 KiB
    BLOCKS_PER_ITEM = 16, // 256 outputs: 256 KiB of bf16 at DEPTH_STEP
    BLOCK_GROUP = 8, // most blocks that a kernel keeps in flight
    STREAM_BYTES = 64 << 10, // less is not worth an item of its own
    WIDE_BLOCKS = LINEAR_SUMS / (DEPTH_STEP * LANES), // whose floats fit a thread's memory
    WIDE_ROWS = 96, // an item of fewer does not repay the pass over its weights
    PACKED_FEW_BLOCKS = 4, // of one panel: these floats fit the L1 cache
    PACKED_FEW_DEPTH = 64,
};

_Static_assert(WIDE_BLOCKS > 0, "a block's floats fit");

struct linear_job {
    const struct cpu_backend *cpu;
    const struct linear_run *run;
    uint32_t in, depth; // of all groups
};

// Rows of a group's panel.
struct panel {
    uint32_t first, num_rows; // first counts from the group's first row
};

static struct panel panel_of(const struct linear_group *group, uint32_t index) {
    uint32_t first = part_begin(group->num_rows, group->num_panels, index);
    return (struct panel){first, part_begin(group->num_rows, group->num_panels, index + 1) - first};
}

// A single row without padding has the layout of a panel already.
static bool is_direct(const struct linear_group *group) {
    return group->num_rows == 1 && group->linear->in == group->linear->depth;
}

const struct linear_group *linear_find_group(const struct linear_run *run, uint32_t item,
                                             bool packing) {
    uint32_t low = 0, high = run->num_groups; // the group is in [low, high)
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        const struct linear_group *group = &run->groups[middle];
        if ((packing ? group->first_pack_item : group->first_item) <= item) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &run->groups[low];
}

// Numbers 0 .. 15 of a row, for a panel of `rows` rows.
static void pack_line(const float *restrict x, uint32_t rows, float *restrict out) {
    for (size_t k = 0; k < LANES; k++) out[k * rows] = x[k];
}

// Packs one panel's slice of the depth, a cache line of each row at a time: reading down a column
// of x would put all rows into one cache set when `in` is a power of two.
static void pack_panel_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct linear_job *job = arg;
    const struct linear_group *group = linear_find_group(job->run, item, true);
    item -= group->first_pack_item;
    uint32_t in = job->in, depth = job->depth;
    uint32_t num_steps = (depth + DEPTH_STEP - 1) / DEPTH_STEP;
    uint32_t begin = item % num_steps * DEPTH_STEP;
    uint32_t end = depth - begin < DEPTH_STEP ? depth : begin + DEPTH_STEP;
    struct panel panel = panel_of(group, item / num_steps);
    uint32_t rows = panel.num_rows, first = group->first_row + panel.first;
    float *out = (float *)job->run->packed + (size_t)first * depth;
    uint32_t stop = end < in ? end : in, k = begin;
    for (; k + LANES <= stop; k += LANES) {
        for (uint32_t row = 0; row < rows; row++) {
            pack_line(linear_source_row(job->run, first + row) + k, rows,
                      out + (size_t)k * rows + row);
        }
    }
    for (; k < end; k++) {
        for (uint32_t row = 0; row < rows; row++) {
            const float *x = linear_source_row(job->run, first + row);
            out[(size_t)k * rows + row] = k < stop ? x[k] : 0;
        }
    }
}

// Blocks begin .. end-1 of a linear from input `k` on.
struct slice {
    uint32_t begin, end, k, depth;
    const void *weights; // packed: the blocks' beginnings, whatever k is
    size_t block_bytes;
    void (*kernel)(const struct linear_tile *tile); // for these weights
};

static struct slice slice_of(const struct linear_job *job, const struct linear_group *group,
                             uint32_t begin, uint32_t end, uint32_t k) {
    const struct linear *linear = group->linear;
    const struct cpu_kernels *kernels = &job->cpu->kernels;
    uint32_t left = linear->depth - k;
    bool is_packed = weight_format_is_packed(linear->format);
    size_t depth_bytes = is_packed ? 0 : k * (linear->block_bytes / linear->depth);
    return (struct slice){
        .begin = begin,
        .end = end,
        .k = k,
        .depth = left < group->depth_step ? left : group->depth_step,
        .weights = (const char *)linear->weights + begin * linear->block_bytes + depth_bytes,
        .block_bytes = linear->block_bytes,
        .kernel = linear->format.bits == 16 ? kernels->linear_bf16 : kernels->linear_f32,
    };
}

static void unpack_block(const struct cpu_kernels *kernels, const struct linear *linear,
                         const char *block, const struct slice *slice, float *out) {
    const struct packed_shape *shape = &linear->packed;
    struct packed_chunk chunk;
    packed_chunk_init(&chunk);
    for (uint32_t k = slice->k; k < slice->k + slice->depth; k += PACKED_CHUNK) {
        packed_chunk_at(shape, (const unsigned char *)block, k / PACKED_CHUNK, &chunk);
        kernels->unpack(&chunk, shape->code, out);
        out += PACKED_CHUNK * PACKED_LANES;
    }
}

// Puts a slice's weights as floats into `memory`, and runs the kernel of floats from now on.
static void widen_slice(const struct linear_job *job, const struct linear *linear,
                        struct slice *slice, float *memory) {
    CHECK(slice->end - slice->begin <= WIDE_BLOCKS && slice->depth <= DEPTH_STEP, "%u blocks, %u",
          slice->end - slice->begin, slice->depth);
    const struct cpu_kernels *kernels = &job->cpu->kernels;
    const char *weights = slice->weights;
    size_t block_floats = (size_t)slice->depth * LANES;
    for (uint32_t i = 0; i < slice->end - slice->begin; i++, weights += slice->block_bytes) {
        float *out = memory + i * block_floats;
        if (weight_format_is_packed(linear->format)) {
            unpack_block(kernels, linear, weights, slice, out);
        } else {
            kernels->widen_bf16(weights, slice->depth, out);
        }
    }
    slice->weights = memory;
    slice->block_bytes = block_floats * sizeof *memory;
    slice->kernel = kernels->linear_f32;
}

// The last block when it has fewer than 16 outputs: through a buffer, as kernels write whole
// blocks.
static void run_partial_block(const struct slice *slice, struct linear_tile tile, uint32_t cols) {
    float *out = tile.out;
    float buffer[PANEL_ROWS_MAX * LANES] = {0};
    for (uint32_t row = 0; row < tile.rows && !tile.start; row++) {
        memcpy(buffer + (size_t)row * LANES, out + row * tile.out_stride, cols * sizeof *out);
    }
    size_t out_stride = tile.out_stride;
    tile.out = buffer;
    tile.out_stride = LANES;
    tile.num_blocks = 1;
    tile.next_x = NULL;
    slice->kernel(&tile);
    for (uint32_t row = 0; row < tile.rows; row++) {
        memcpy(out + row * out_stride, buffer + (size_t)row * LANES, cols * sizeof *out);
    }
}

// The packed x of a panel from input `k` on.
static const float *panel_x(const struct linear_run *run, const struct linear_group *group,
                            struct panel panel, uint32_t k) {
    size_t first = group->first_row + panel.first;
    return (const float *)run->packed + first * group->linear->depth + (size_t)k * panel.num_rows;
}

// Computes one slice for one panel. Unless it is the last before `panel_end`, the kernel fetches
// the next panel's x meanwhile.
static void run_tile(const struct linear_job *job, const struct linear_group *group,
                     const struct slice *slice, uint32_t panel_index, uint32_t panel_end) {
    const struct linear_run *run = job->run;
    const struct linear *linear = group->linear;
    struct panel panel = panel_of(group, panel_index);
    size_t first = group->first_row + panel.first;
    struct linear_tile tile = {
        .weights = slice->weights,
        .block_bytes = slice->block_bytes,
        .out_stride = linear->out,
        .rows = panel.num_rows,
        .depth = slice->depth,
    };
    tile.start = slice->k == 0 ? linear->start + (size_t)slice->begin * LANES : NULL;
    tile.x = is_direct(group) ? linear_source_row(run, group->first_row) + slice->k
                              : panel_x(run, group, panel, slice->k);
    if (panel_index + 1 < panel_end) {
        tile.next_x = panel_x(run, group, panel_of(group, panel_index + 1), slice->k);
    }
    tile.out = run->out + first * linear->out + (size_t)slice->begin * LANES;
    uint32_t partial = slice->end == linear->num_blocks ? linear->out % LANES : 0;
    tile.num_blocks = slice->end - slice->begin - (partial != 0);
    if (tile.num_blocks) slice->kernel(&tile);
    if (!partial) return;
    tile.weights = (const char *)tile.weights + tile.num_blocks * tile.block_bytes;
    tile.out += (size_t)tile.num_blocks * LANES;
    if (tile.start) tile.start += (size_t)tile.num_blocks * LANES;
    run_partial_block(slice, tile, partial);
}

static void linear_item(void *arg, uint32_t item, uint32_t thread) {
    const struct linear_job *job = arg;
    const struct linear_group *group = linear_find_group(job->run, item, false);
    const struct linear *linear = group->linear;
    item -= group->first_item;
    uint32_t block = item % group->num_block_items * group->blocks_per_item;
    uint32_t blocks_left = linear->num_blocks - block;
    uint32_t end =
        block + (blocks_left < group->blocks_per_item ? blocks_left : group->blocks_per_item);
    uint32_t panel_item = item / group->num_block_items;
    uint32_t panel_begin = part_begin(group->num_panels, group->num_panel_items, panel_item);
    uint32_t panel_end = part_begin(group->num_panels, group->num_panel_items, panel_item + 1);
    struct panel last = panel_of(group, panel_end - 1);
    uint32_t rows = last.first + last.num_rows - panel_of(group, panel_begin).first;
    bool is_packed = weight_format_is_packed(linear->format);
    bool is_wide = is_packed ||
                   (job->cpu->kernels.widen_bf16 && linear->format.bits == 16 && rows >= WIDE_ROWS);
    bool is_few = is_packed && group->num_panels == 1;
    uint32_t step = is_few    ? (uint32_t)PACKED_FEW_BLOCKS
                    : is_wide ? (uint32_t)WIDE_BLOCKS
                              : group->blocks_per_item;
    for (; block < end; block += step) {
        uint32_t stop = end - block < step ? end : block + step;
        for (uint32_t k = 0; k < job->depth; k += group->depth_step) {
            struct slice slice = slice_of(job, group, block, stop, k);
            if (is_wide) {
                widen_slice(job, linear, &slice,
                            job->cpu->linear_sums + (size_t)thread * LINEAR_SUMS);
            }
            for (uint32_t panel = panel_begin; panel < panel_end; panel++) {
                run_tile(job, group, &slice, panel, panel_end);
            }
        }
    }
}

// Decides how a group's work is cut, as the head of this file says. With several groups, each needs
// fewer items.
static void plan_group(const struct cpu_backend *cpu, struct linear_group *group,
                       uint32_t num_groups) {
    const struct linear *linear = group->linear;
    group->num_panels = (group->num_rows + cpu->kernels.panel_rows - 1) / cpu->kernels.panel_rows;
    if (group->num_panels == 1) {
        uint32_t least = (uint32_t)(STREAM_BYTES / linear->block_bytes) + 1;
        uint32_t grain = thread_pool_grain(cpu->pool, linear->num_blocks, least);
        group->blocks_per_item = (grain + BLOCK_GROUP - 1) / BLOCK_GROUP * BLOCK_GROUP;
        bool is_packed = weight_format_is_packed(linear->format);
        group->depth_step = is_packed ? (uint32_t)PACKED_FEW_DEPTH : linear->depth;
    } else {
        group->blocks_per_item = BLOCKS_PER_ITEM;
        group->depth_step = DEPTH_STEP;
    }
    group->num_block_items =
        (linear->num_blocks + group->blocks_per_item - 1) / group->blocks_per_item;
    uint32_t wanted = (thread_pool_num_threads(cpu->pool) * 4 + num_groups - 1) / num_groups;
    group->num_panel_items = (wanted + group->num_block_items - 1) / group->num_block_items;
    if (group->num_panel_items > group->num_panels) group->num_panel_items = group->num_panels;
}

void linear_run(struct cpu_backend *cpu, struct linear_run *run) {
    const struct linear *linear = run->groups[0].linear;
    if (linear_is_narrow(cpu, linear)) {
        linear_narrow_run(cpu, run);
        return;
    }
    struct linear_job job = {
        .cpu = cpu,
        .run = run,
        .in = linear->in,
        .depth = linear->depth,
    };
    uint32_t num_steps = (linear->depth + DEPTH_STEP - 1) / DEPTH_STEP;
    uint32_t num_items = 0, num_pack_items = 0;
    for (uint32_t i = 0; i < run->num_groups; i++) {
        struct linear_group *group = &run->groups[i];
        plan_group(cpu, group, run->num_groups);
        group->first_item = num_items;
        group->first_pack_item = num_pack_items;
        num_items += group->num_block_items * group->num_panel_items;
        if (!is_direct(group)) num_pack_items += group->num_panels * num_steps;
    }
    thread_pool_for(cpu->pool, num_pack_items, pack_panel_item, &job);
    thread_pool_for(cpu->pool, num_items, linear_item, &job);
}

uint32_t linear_rows_max(const struct cpu_backend *cpu, const struct linear *linear) {
    size_t row_bytes = linear->depth * sizeof(float);
    if (linear_is_narrow(cpu, linear)) row_bytes = linear_row_bytes(cpu, linear);
    return (uint32_t)((size_t)LINEAR_SCRATCH_BYTES * linear->depth / row_bytes);
}

// Rows that do not fit the scratch memory at once are cut into equal parts.
static void run_linear(struct backend *backend, const struct linear *linear, const float *x,
                       float *out, uint32_t rows) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    if (rows == 0) return;
    uint32_t rows_max = linear_rows_max(cpu, linear), parts = (rows + rows_max - 1) / rows_max;
    for (uint32_t part = 0; part < parts; part++) {
        uint32_t first = part_begin(rows, parts, part);
        struct linear_group group = {.linear = linear,
                                     .num_rows = part_begin(rows, parts, part + 1) - first};
        linear_run(cpu, &(struct linear_run){.groups = &group,
                                             .num_groups = 1,
                                             .x = x + (size_t)first * linear->in,
                                             .packed = cpu->linear_scratch,
                                             .x_scale = cpu->linear_x_scale,
                                             .out = out + (size_t)first * linear->out});
    }
}

void cpu_linear(struct backend *backend, const struct linear_args *args) {
    run_linear(backend, args->linear, args->x, args->out, args->rows);
}

void cpu_linear_set_next(struct backend *backend, struct linear *linear,
                         const struct linear *next) {
    (void)backend;
    linear->next = next;
}

struct embed_job {
    const struct embed_args *args;
    uint32_t tokens_per_item;
};

static void embed_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct embed_job *job = arg;
    const struct embed_args *args = job->args;
    uint32_t begin = item * job->tokens_per_item;
    uint32_t left = args->step->num_tokens - begin;
    uint32_t end = begin + (left < job->tokens_per_item ? left : job->tokens_per_item);
    for (uint32_t token = begin; token < end; token++) {
        float *out = (float *)args->out + (size_t)token * args->table->in;
        int32_t known = args->step->tokens[token];
        if (known < 0 && args->step->previous) known = args->step->previous[-1 - known].token_id;
        int64_t id = (int64_t)known - args->vocab_start;
        if (id < 0 || id >= args->table->out) {
            memset(out, 0, args->table->in * sizeof *out);
        } else {
            args->table->packing->load_output(args->table, (uint32_t)id, out);
        }
    }
}

void cpu_embed(struct backend *backend, const struct embed_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct embed_job job = {args, thread_pool_grain(cpu->pool, args->step->num_tokens, 1)};
    uint32_t num_items = (args->step->num_tokens + job.tokens_per_item - 1) / job.tokens_per_item;
    thread_pool_for(cpu->pool, num_items, embed_item, &job);
}
