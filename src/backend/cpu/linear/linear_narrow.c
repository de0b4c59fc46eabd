/* Running linears whose x is narrow: bf16, 16-bit integers or bytes. Every row is normalised if
 * asked, then converted once, into tiles (kernels.h). Then items of some blocks of outputs times
 * some rows go to the threads.
 *
 * The first items are large and the last ones small, as cores differ in speed and a loop waits for
 * the last item. Threads that wait fetch the weights of the item that they take first in the next
 * loop of this kind.
 *
 * Few rows: an item is some blocks of all rows, so that each weight is read once, by one thread.
 * Many rows: items are about square, because an item reads its rows and its weights from the L2
 * cache or beyond. Items of the same blocks follow each other, so that the later ones find the
 * weights in the shared cache.
 *
 * An item computes a strip of its outputs at a time into the thread's own memory, and the sink
 * takes them from there. So sums that the next op uses at once never travel through memory, and
 * rows that are a power of two apart do not evict each other while tiles are stored. */
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "base/check.h"

enum {
    PANEL_ROWS = 32, // two tiles of x; AVX-512's kernels take whole tiles of 16 too
    PANELS_PER_ITEM = ITEM_ROWS_MAX / PANEL_ROWS,
    ITEM_X_BYTES = 1 << 20, // an item's rows: half an L2 cache
    BLOCKS_PER_ITEM = 16,
    STRIP_BLOCKS = 4, // of many rows, unless the sink wants more
    ITEMS_PER_THREAD = 2, // at least, if all had the size of the first
    LAST_ITEMS_PER_THREAD = 8, // if all had the size of the last
    AHEAD_BYTES = 512 << 10, // that a waiting thread fetches of the weights, of each half if gated
    STREAM_BYTES = 64 << 10, // less is not worth an item of its own
    PACK_ELEMENTS = 8192, // fewer are not worth an item of their own when x is converted
};

struct narrow_job {
    const struct cpu_backend *cpu;
    const struct linear_run *run;
    size_t row_bytes; // of converted x
};

static float *sums_of(const struct cpu_backend *cpu, uint32_t thread) {
    return cpu->linear_sums + (size_t)thread * LINEAR_SUMS;
}

void linear_narrow_part(const struct cpu_backend *cpu, const struct linear *linear, const float *x,
                        uint32_t col, uint32_t count, unsigned char *row, size_t stride) {
    const struct span_row spans = {.shape = &linear->packed,
                                   .out = row,
                                   .stride = stride,
                                   .chunks = linear->depth / PACKED_CHUNK,
                                   .first = col / PACKED_CHUNK};
    if (linear_is_spans(cpu, linear)) {
        cpu->kernels.narrow_spans(x, count, &spans);
    } else {
        cpu->kernels.narrow_bf16(x, 1.0f, count, row + col / (CHUNK_BYTES / 2) * stride, stride);
    }
}

// One item converts some rows of one tile.
static void pack_rows_item(void *arg, uint32_t item, uint32_t thread) {
    const struct narrow_job *job = arg;
    const struct cpu_kernels *kernels = &job->cpu->kernels;
    const struct linear_run *run = job->run;
    const struct linear_group *group = linear_find_group(run, item, true);
    uint32_t in = group->linear->in;
    uint32_t begin = (item - group->first_pack_item) * group->rows_per_pack_item;
    uint32_t left = group->num_rows - begin;
    uint32_t end = begin + (left < group->rows_per_pack_item ? left : group->rows_per_pack_item);
    for (uint32_t row = begin; row < end; row++) {
        unsigned char *packed = (unsigned char *)run->packed + group->first_row * job->row_bytes;
        size_t stride;
        unsigned char *out = packed_row(packed, job->row_bytes, group->num_rows, row, &stride);
        const float *x = linear_source_row(run, group->first_row + row);
        if (run->norm) {
            float *normal = sums_of(job->cpu, thread);
            kernels->rms_norm(x, NULL, run->norm, normal, in, run->eps);
            x = normal;
        }
        if (linear_is_fixed(job->cpu, group->linear)) {
            kernels->narrow_fixed(x, in, group->linear->format.bits, out, stride);
        } else if (!weight_format_has_bytes(group->linear->format)) {
            linear_narrow_part(job->cpu, group->linear, x, 0, in, out, stride);
        } else {
            run->x_scale[group->first_row + row] = kernels->narrow_int8(x, in, out, stride);
        }
    }
}

// A power of two, so that no item has rows of two tiles.
static uint32_t rows_per_pack_item(uint32_t depth) {
    uint32_t rows = TILE_ROWS;
    while (rows > 1 && rows * depth > PACK_ELEMENTS) rows /= 2;
    return rows;
}

// Rows first .. end - 1 of a group by some of its blocks.
struct strip {
    const struct linear_group *group;
    uint32_t first, end;
    uint32_t block, num_blocks;
    uint32_t next; // a block that the thread multiplies next; the linear's num_blocks: none
};

static uint32_t strip_cols(const struct strip *strip) {
    uint32_t left = strip->group->linear->out - strip->block * LANES;
    return left < strip->num_blocks * LANES ? left : strip->num_blocks * LANES;
}

// Few rows may have a kernel of their own, whose results have the same bits.
static void multiply_by(const struct cpu_kernels *kernels, const struct linear_item *item,
                        const struct narrow_job *job, const struct linear *linear) {
    if (linear_is_spans(job->cpu, linear)) {
        kernels->linear_spans(item);
    } else if (linear_is_fixed(job->cpu, linear)) {
        kernels->linear_fixed(item);
    } else if (!linear_item_is_bytes(item)) {
        kernels->linear_pairs(item);
    } else if (linear_item_is_int4(item) && item->rows <= kernels->int4_few_rows) {
        kernels->linear_int4_few(item);
    } else {
        kernels->linear_bytes(item);
    }
}

static void multiply_strip(const struct narrow_job *job, const struct strip *strip, float *out,
                           size_t out_stride) {
    const struct linear_run *run = job->run;
    const struct linear *linear = strip->group->linear;
    size_t row = strip->group->first_row + strip->first, lane = (size_t)strip->block * LANES;
    const unsigned char *weights = linear->weights;
    bool is_bytes = weight_format_has_bytes(linear->format);
    bool counts_weights = linear_is_fixed(job->cpu, linear) || linear_is_spans(job->cpu, linear);
    struct linear_item item = {
        .format = linear->format,
        .packed = &linear->packed,
        .x = (const unsigned char *)run->packed + row * job->row_bytes,
        .x_scale = is_bytes ? run->x_scale + row : NULL,
        .weights = weights + strip->block * linear->block_bytes,
        .next =
            strip->next < linear->num_blocks ? weights + strip->next * linear->block_bytes : NULL,
        .block_bytes = linear->block_bytes,
        .start = linear->start + lane,
        .scale = is_bytes ? linear->scale + lane : NULL,
        .sum128 = is_bytes ? linear->sum128 + lane : NULL,
        .out = out,
        .out_stride = out_stride,
        .rows = strip->end - strip->first,
        .chunks = counts_weights ? linear->depth / PACKED_CHUNK
                                 : (uint32_t)(job->row_bytes / CHUNK_BYTES),
        .num_blocks = strip->num_blocks,
        .cols = strip_cols(strip),
    };
    multiply_by(&job->cpu->kernels, &item, job, linear);
}

void linear_sink_gated(void *arg, const struct linear_part *part) {
    const struct gated_sink *sink = arg;
    const struct cpu_kernels *kernels = &sink->cpu->kernels;
    const struct linear *reader = sink->reader;
    const struct linear_group *group = part->group;
    size_t row_bytes = sink->is_packed ? linear_row_bytes(sink->cpu, reader) : 0, stride;
    for (uint32_t i = 0; i < part->num_rows; i++) {
        float *gate = part->sums + i * part->stride;
        const float *up = part->gated + i * part->stride;
        uint32_t row = part->row + i;
        float *out =
            sink->is_packed ? gate : (float *)sink->out + (size_t)row * reader->in + part->col;
        activate(kernels, sink->activation, gate, up, out, part->num_cols);
        if (!sink->is_packed) continue;
        unsigned char *rows = (unsigned char *)sink->out + group->first_row * row_bytes;
        unsigned char *packed =
            packed_row(rows, row_bytes, group->num_rows, row - group->first_row, &stride);
        linear_narrow_part(sink->cpu, reader, gate, part->col, part->num_cols, packed, stride);
    }
}

static void copy_out(const struct linear_run *run, const struct linear_part *part) {
    size_t out_cols = run->groups[0].linear->out;
    float *out = run->out + part->row * out_cols + part->col;
    for (uint32_t row = 0; row < part->num_rows; row++, out += out_cols) {
        memcpy(out, part->sums + row * part->stride, part->num_cols * sizeof *out);
    }
}

// Multiplies a strip and hands it to the sink. Gated: also the same blocks of the other half.
static void run_strip(const struct narrow_job *job, struct strip strip, uint32_t thread) {
    const struct linear_run *run = job->run;
    uint32_t num_rows = strip.end - strip.first;
    struct linear_part part = {
        .sums = sums_of(job->cpu, thread),
        .stride = (size_t)strip.num_blocks * LANES,
        .group = strip.group,
        .row = strip.group->first_row + strip.first,
        .num_rows = num_rows,
        .col = strip.block * LANES,
        .num_cols = strip_cols(&strip),
    };
    part.gated = part.sums + num_rows * part.stride;
    uint32_t half = strip.group->linear->num_blocks / 2, next = strip.next;
    if (run->is_gated) strip.next = strip.block + half;
    multiply_strip(job, &strip, part.sums, part.stride);
    if (run->is_gated) {
        strip.block += half;
        strip.next = next;
        multiply_strip(job, &strip, part.gated, part.stride);
    }
    if (run->sink) {
        run->sink(run->sink_arg, &part);
    } else {
        copy_out(run, &part);
    }
}

static uint32_t num_blocks_of(const struct linear_run *run, const struct linear *linear) {
    return run->is_gated ? linear->num_blocks / 2 : linear->num_blocks;
}

static const struct linear_cut *find_cut(const struct linear_group *group, uint32_t item) {
    const struct linear_cut *cut = &group->cuts[group->num_cuts - 1];
    while (cut->first_item > item) cut--;
    return cut;
}

static void narrow_item(void *arg, uint32_t item, uint32_t thread) {
    const struct narrow_job *job = arg;
    const struct linear_run *run = job->run;
    const struct linear_group *group = linear_find_group(run, item, false);
    const struct linear_cut *cut = find_cut(group, item - group->first_item);
    item -= group->first_item + cut->first_item;
    uint32_t panel = item % cut->num_panel_items;
    uint32_t block = cut->first_block + item / cut->num_panel_items * cut->blocks_per_item;
    uint32_t end = block + cut->blocks_per_item;
    if (end > cut->end_block) end = cut->end_block;
    struct strip strip = {
        .group = group,
        .first = part_begin(group->num_panels, cut->num_panel_items, panel) * PANEL_ROWS,
        .end = part_begin(group->num_panels, cut->num_panel_items, panel + 1) * PANEL_ROWS,
    };
    if (strip.end > group->num_rows) strip.end = group->num_rows;
    if (group->blocks_per_strip == 0) { // few rows go straight to `out`
        strip.block = block;
        strip.num_blocks = end - block;
        strip.next = group->linear->num_blocks;
        size_t out_cols = group->linear->out, row = group->first_row + strip.first;
        multiply_strip(job, &strip, run->out + row * out_cols + block * LANES, out_cols);
        return;
    }
    for (strip.block = block; strip.block < end; strip.block += strip.num_blocks) {
        uint32_t left = end - strip.block;
        strip.num_blocks = left < group->blocks_per_strip ? left : group->blocks_per_strip;
        strip.next = strip.block + strip.num_blocks;
        if (strip.next >= end) strip.next = group->linear->num_blocks;
        run_strip(job, strip, thread);
    }
}

static uint32_t ceil_div(uint32_t count, uint32_t size) {
    CHECK(size > 0, "count=%u", count);
    return count / size + (count % size != 0);
}

// Size of a work item: so many blocks of outputs and panels of rows.
struct item_size {
    uint32_t blocks, panels;
    uint32_t unit; // blocks is a multiple of this
};

static uint32_t count_items(uint32_t num_blocks, uint32_t num_panels, struct item_size size) {
    return ceil_div(num_panels, size.panels) * ceil_div(num_blocks, size.blocks);
}

// Halves the longer side of an item. False if it is as small as can be.
static bool halve(struct item_size *size) {
    bool is_wide = size->blocks * LANES >= size->panels * PANEL_ROWS || size->panels == 1;
    if (size->blocks > size->unit && is_wide) {
        size->blocks = ceil_div(ceil_div(size->blocks, 2), size->unit) * size->unit;
        return true;
    }
    if (size->panels == 1) return false;
    size->panels = ceil_div(size->panels, 2);
    return true;
}

// Cuts the group into items. If `size` gives fewer than `enough` of them, only half of the blocks
// get items of that size, a quarter of the blocks get items of half that size, and so on.
static void cut_group(struct linear_group *group, uint32_t num_blocks, struct item_size size,
                      uint32_t enough) {
    uint32_t first_item = 0;
    group->num_cuts = 0;
    for (uint32_t block = 0; block < num_blocks;) {
        struct item_size next = size;
        uint32_t left = num_blocks - block, end = num_blocks;
        bool is_last = group->num_cuts + 1 == LINEAR_CUTS_MAX ||
                       count_items(num_blocks, group->num_panels, size) >= enough || !halve(&next);
        if (!is_last) end = block + ceil_div(left, 2 * size.blocks) * size.blocks;
        if (end > num_blocks) end = num_blocks;
        group->cuts[group->num_cuts++] =
            (struct linear_cut){.first_block = block,
                                .end_block = end,
                                .blocks_per_item = size.blocks,
                                .num_panel_items = ceil_div(group->num_panels, size.panels),
                                .first_item = first_item};
        first_item += count_items(end - block, group->num_panels, size);
        block = end;
        size = next;
    }
    group->num_items = first_item;
}

// One panel: an item streams whole blocks. With a sink, its sums fit the thread's memory.
static void plan_few(const struct cpu_backend *cpu, const struct linear_run *run,
                     struct linear_group *group) {
    uint32_t num_blocks = num_blocks_of(run, group->linear);
    uint32_t threads = thread_pool_num_threads(cpu->pool);
    uint32_t unit = ceil_div(STREAM_BYTES, (uint32_t)group->linear->block_bytes);
    if (unit > 1 || run->is_gated) unit = ceil_div(unit, 2) * 2;
    struct item_size size = {.blocks = num_blocks, .panels = 1, .unit = unit};
    if (threads > 1) size.blocks = ceil_div(num_blocks, threads * ITEMS_PER_THREAD);
    size.blocks = ceil_div(size.blocks, unit) * unit;
    uint32_t most = LINEAR_SUMS / (LANES * group->num_rows * (run->is_gated ? 2 : 1)) / 2 * 2;
    if (run->sink && size.blocks > most) size.blocks = most;
    group->blocks_per_strip = run->sink ? size.blocks : 0;
    cut_group(group, num_blocks, size, threads > 1 ? UINT32_MAX : 1);
}

// Decides how a group's work is cut, as the head of this file says. With several groups, each needs
// fewer items.
static void plan_group(const struct cpu_backend *cpu, const struct linear_run *run,
                       struct linear_group *group, size_t row_bytes) {
    const struct linear *linear = group->linear;
    uint32_t num_blocks = num_blocks_of(run, linear);
    group->rows_per_pack_item = rows_per_pack_item(linear->depth);
    group->num_panels = ceil_div(group->num_rows, PANEL_ROWS);
    uint32_t unit = run->blocks_per_part ? run->blocks_per_part : run->is_gated ? 2 : 1;
    if (group->num_panels == 1 && !run->blocks_per_part) {
        plan_few(cpu, run, group);
        return;
    }
    uint32_t threads = thread_pool_num_threads(cpu->pool);
    uint32_t wanted = threads > 1 ? ceil_div(threads * ITEMS_PER_THREAD, run->num_groups) : 1;
    group->blocks_per_strip = run->blocks_per_part ? unit : STRIP_BLOCKS;
    uint32_t panels = (uint32_t)(ITEM_X_BYTES / (row_bytes * PANEL_ROWS));
    uint32_t sums = group->blocks_per_strip * (run->is_gated ? 2 : 1) * LANES * PANEL_ROWS;
    if (panels > LINEAR_SUMS / sums) panels = LINEAR_SUMS / sums;
    if (panels > PANELS_PER_ITEM) panels = PANELS_PER_ITEM;
    if (panels < 1) panels = 1;
    if (panels > group->num_panels) panels = group->num_panels;
    uint32_t blocks = num_blocks < BLOCKS_PER_ITEM ? num_blocks : BLOCKS_PER_ITEM;
    struct item_size size = {ceil_div(blocks, unit) * unit, panels, unit};
    while (count_items(num_blocks, group->num_panels, size) < wanted && halve(&size)) continue;
    cut_group(group, num_blocks, size, wanted * (LAST_ITEMS_PER_THREAD / ITEMS_PER_THREAD));
}

size_t linear_row_bytes(const struct cpu_backend *cpu, const struct linear *linear) {
    if (linear_is_spans(cpu, linear)) {
        uint32_t chunks = linear->depth / PACKED_CHUNK;
        return (size_t)spans_all_lines(&linear->packed, chunks) * CHUNK_BYTES;
    }
    if (linear_is_fixed(cpu, linear)) {
        return (size_t)fixed_all_chunks(linear->depth / PACKED_CHUNK) * CHUNK_BYTES;
    }
    return (size_t)linear->depth * (weight_format_has_bytes(linear->format) ? 1 : 2);
}

static void fetch_lines(const char *at) {
    for (size_t i = 0; i < THREAD_POOL_AHEAD_STEP; i += CHUNK_BYTES)
        __builtin_prefetch(at + i, 0, 2);
}

// Makes threads that wait fetch the weights of their first items: of a run's first group, as
// planned.
static void fetch_ahead(struct cpu_backend *cpu, const struct linear_run *run,
                        const struct linear_group *group) {
    const struct linear *linear = group->linear;
    const struct linear_cut *cut = &group->cuts[0];
    const char *weights = linear->weights;
    size_t item_bytes = cut->blocks_per_item * linear->block_bytes;
    uint32_t num_shares = ceil_div(cut->end_block, cut->blocks_per_item);
    struct thread_pool_ahead ahead = {
        .fetch = fetch_lines,
        .begin = {weights},
        .stride = item_bytes,
        .bytes = item_bytes < AHEAD_BYTES ? item_bytes : AHEAD_BYTES,
        .threads_per_share = cut->num_panel_items,
        .num_threads = num_shares * cut->num_panel_items,
    };
    if (run->is_gated) ahead.begin[1] = weights + linear->num_blocks / 2 * linear->block_bytes;
    thread_pool_set_ahead(cpu->pool, &ahead);
}

// The same for the linear that comes next, if it is known.
static void fetch_next(struct cpu_backend *cpu, const struct linear_run *run) {
    const struct linear *next = run->groups[0].linear->next;
    const struct linear_run plain = {.num_groups = 1}, *how = run->next ? run->next : &plain;
    struct linear_group group = {.linear = next, .num_rows = run->groups[0].num_rows};
    if (!next || !linear_is_narrow(cpu, next)) {
        thread_pool_set_ahead(cpu->pool, &(struct thread_pool_ahead){0});
        return;
    }
    plan_group(cpu, how, &group, linear_row_bytes(cpu, next));
    fetch_ahead(cpu, how, &group);
}

void linear_narrow_run(struct cpu_backend *cpu, struct linear_run *run) {
    const struct linear *linear = run->groups[0].linear;
    struct narrow_job job = {
        .cpu = cpu,
        .run = run,
        .row_bytes = linear_row_bytes(cpu, linear),
    };
    uint32_t num_items = 0, num_pack_items = 0;
    for (uint32_t i = 0; i < run->num_groups; i++) {
        struct linear_group *group = &run->groups[i];
        plan_group(cpu, run, group, job.row_bytes);
        group->first_item = num_items;
        group->first_pack_item = num_pack_items;
        num_items += group->num_items;
        num_pack_items += ceil_div(group->num_rows, group->rows_per_pack_item);
    }
    if (!run->is_packed) {
        fetch_ahead(cpu, run, &run->groups[0]);
        thread_pool_for(cpu->pool, num_pack_items, pack_rows_item, &job);
    }
    fetch_next(cpu, run);
    thread_pool_for(cpu->pool, num_items, narrow_item, &job);
}
