/* Running a linear: rows of x are packed into panels of up to panel_rows, [depth][rows], then items
 * of some blocks of outputs times some panels go to the threads.
 *
 * One panel (decode): an item streams its weights once, over the whole depth. Several panels
 * (prefill): the depth is cut so that a piece of the weights stays in the L2 cache and a panel in
 * the L1 while they meet; sums then rest in `out` between the pieces, which changes no bit of them.
 */
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "base/check.h"

enum {
    DEPTH_STEP = 512, // of the prefill: a panel of 12 x 512 floats is 24 KiB
    BLOCKS_PER_ITEM = 16, // 256 outputs: 256 KiB of bf16 at DEPTH_STEP
    BLOCK_GROUP = 8, // most blocks that a kernel keeps in flight
    STREAM_BYTES = 64 << 10, // less is not worth an item of its own
};

struct linear_job {
    void (*kernel)(const struct linear_tile *tile);
    const struct linear *linear;
    const float *x; // [rows][in]
    const float *panels; // [num_panels][depth][rows of the panel], one after the other
    float *packed; // the memory for panels
    float *out; // [rows][out]
    uint32_t rows, num_panels;
    uint32_t depth_step;
    uint32_t blocks_per_item, num_block_items;
    uint32_t num_panel_items;
};

// One panel's piece of the depth. Rows in the outer loop: reading down a column of x would put all
// rows into one cache set when `in` is a power of two.
static void pack_panel_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct linear_job *job = arg;
    uint32_t in = job->linear->in, depth = job->linear->depth;
    uint32_t num_steps = (depth + DEPTH_STEP - 1) / DEPTH_STEP;
    uint32_t panel = item / num_steps, begin = item % num_steps * DEPTH_STEP;
    uint32_t end = depth - begin < DEPTH_STEP ? depth : begin + DEPTH_STEP;
    uint32_t first = part_begin(job->rows, job->num_panels, panel);
    uint32_t rows = part_begin(job->rows, job->num_panels, panel + 1) - first;
    float *out = job->packed + (size_t)first * depth;
    for (uint32_t row = 0; row < rows; row++) {
        const float *x = job->x + (size_t)(first + row) * in;
        uint32_t stop = end < in ? end : in;
        for (uint32_t k = begin; k < stop; k++) out[(size_t)k * rows + row] = x[k];
        for (uint32_t k = stop; k < end; k++) out[(size_t)k * rows + row] = 0;
    }
}

// The last block when it has fewer than 16 outputs: through a buffer, as kernels know whole blocks.
static void run_partial_block(const struct linear_job *job, struct linear_tile tile,
                              uint32_t cols) {
    float *out = tile.out;
    float buffer[PANEL_ROWS_MAX * LANES] = {0};
    for (uint32_t row = 0; row < tile.rows && !tile.start; row++) {
        memcpy(buffer + (size_t)row * LANES, out + row * tile.out_stride, cols * sizeof *out);
    }
    size_t out_stride = tile.out_stride;
    tile.out = buffer;
    tile.out_stride = LANES;
    tile.num_blocks = 1;
    job->kernel(&tile);
    for (uint32_t row = 0; row < tile.rows; row++) {
        memcpy(out + row * out_stride, buffer + (size_t)row * LANES, cols * sizeof *out);
    }
}

// Blocks begin .. end-1 over one piece of the depth for one panel.
static void run_tile(const struct linear_job *job, uint32_t begin, uint32_t end, uint32_t k,
                     uint32_t panel) {
    const struct linear *linear = job->linear;
    size_t k_bytes = LANES * dtype_size(linear->dtype);
    uint32_t first = part_begin(job->rows, job->num_panels, panel);
    uint32_t depth_left = linear->depth - k;
    struct linear_tile tile = {
        .block_bytes = linear->depth * k_bytes,
        .out_stride = linear->out,
        .rows = part_begin(job->rows, job->num_panels, panel + 1) - first,
        .depth = depth_left < job->depth_step ? depth_left : job->depth_step,
    };
    tile.weights = (const char *)linear->weights + begin * tile.block_bytes + k * k_bytes;
    tile.start = k == 0 ? linear->start + (size_t)begin * LANES : NULL;
    tile.x = job->panels + (size_t)first * linear->depth + (size_t)k * tile.rows;
    tile.out = job->out + (size_t)first * linear->out + (size_t)begin * LANES;
    uint32_t partial = end == linear->num_blocks ? linear->out % LANES : 0;
    tile.num_blocks = end - begin - (partial != 0);
    if (tile.num_blocks) job->kernel(&tile);
    if (!partial) return;
    tile.weights = (const char *)tile.weights + tile.num_blocks * tile.block_bytes;
    tile.out += (size_t)tile.num_blocks * LANES;
    if (tile.start) tile.start += (size_t)tile.num_blocks * LANES;
    run_partial_block(job, tile, partial);
}

static void linear_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct linear_job *job = arg;
    const struct linear *linear = job->linear;
    uint32_t block = item % job->num_block_items * job->blocks_per_item;
    uint32_t blocks_left = linear->num_blocks - block;
    uint32_t end =
        block + (blocks_left < job->blocks_per_item ? blocks_left : job->blocks_per_item);
    uint32_t panel_item = item / job->num_block_items;
    uint32_t panel_begin = part_begin(job->num_panels, job->num_panel_items, panel_item);
    uint32_t panel_end = part_begin(job->num_panels, job->num_panel_items, panel_item + 1);
    for (uint32_t k = 0; k < linear->depth; k += job->depth_step) {
        for (uint32_t panel = panel_begin; panel < panel_end; panel++) {
            run_tile(job, block, end, k, panel);
        }
    }
}

// How the work is cut; see the head.
static void plan_items(const struct cpu_backend *cpu, struct linear_job *job) {
    const struct linear *linear = job->linear;
    if (job->num_panels == 1) {
        size_t block_bytes = (size_t)linear->depth * LANES * dtype_size(linear->dtype);
        uint32_t least = (uint32_t)(STREAM_BYTES / block_bytes) + 1;
        uint32_t grain = thread_pool_grain(cpu->pool, linear->num_blocks, least);
        job->blocks_per_item = (grain + BLOCK_GROUP - 1) / BLOCK_GROUP * BLOCK_GROUP;
        job->depth_step = linear->depth;
    } else {
        job->blocks_per_item = BLOCKS_PER_ITEM;
        job->depth_step = DEPTH_STEP;
    }
    job->num_block_items = (linear->num_blocks + job->blocks_per_item - 1) / job->blocks_per_item;
    uint32_t wanted = thread_pool_num_threads(cpu->pool) * 4;
    job->num_panel_items = (wanted + job->num_block_items - 1) / job->num_block_items;
    if (job->num_panel_items > job->num_panels) job->num_panel_items = job->num_panels;
}

// Up to LINEAR_ROWS_MAX rows.
static void run_rows(struct cpu_backend *cpu, const struct linear *linear, const float *x,
                     float *out, uint32_t rows) {
    const struct cpu_kernels *kernels = cpu->kernels;
    struct linear_job job = {
        .kernel = linear->dtype == DTYPE_BF16 ? kernels->linear_bf16 : kernels->linear_f32,
        .linear = linear,
        .x = x,
        .panels = cpu->linear_scratch,
        .packed = cpu->linear_scratch,
        .out = out,
        .rows = rows,
        .num_panels = (rows + kernels->panel_rows - 1) / kernels->panel_rows,
    };
    plan_items(cpu, &job);
    if (rows == 1 && linear->in == linear->depth) {
        job.panels = x; // a single row is a panel already
    } else {
        uint32_t num_steps = (linear->depth + DEPTH_STEP - 1) / DEPTH_STEP;
        thread_pool_for(cpu->pool, job.num_panels * num_steps, pack_panel_item, &job);
    }
    thread_pool_for(cpu->pool, job.num_block_items * job.num_panel_items, linear_item, &job);
}

static void run_linear(struct backend *backend, const struct linear *linear, const float *x,
                       float *out, uint32_t rows) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    if (rows == 0) return;
    uint32_t parts = (rows + LINEAR_ROWS_MAX - 1) / LINEAR_ROWS_MAX;
    for (uint32_t part = 0; part < parts; part++) {
        uint32_t first = part_begin(rows, parts, part);
        uint32_t count = part_begin(rows, parts, part + 1) - first;
        run_rows(cpu, linear, x + (size_t)first * linear->in, out + (size_t)first * linear->out,
                 count);
    }
}

void cpu_linear(struct backend *backend, struct backend_stream *stream,
                const struct linear_args *args) {
    (void)stream;
    run_linear(backend, args->linear, args->x, args->out, args->rows);
}

void cpu_logits(struct backend *backend, struct backend_stream *stream,
                const struct logits_args *args) {
    (void)stream;
    run_linear(backend, args->linear, args->x, args->out, args->rows);
}

struct embed_job {
    const struct embed_args *args;
    uint32_t tokens_per_item;
};

static void embed_token(const struct linear *table, uint32_t id, float *out) {
    size_t block = (size_t)(id / LANES) * table->depth * LANES;
    uint32_t lane = id % LANES;
    if (table->dtype == DTYPE_BF16) {
        const uint16_t *pairs = (const uint16_t *)table->weights + block + lane * 2;
        for (size_t k = 0; k < table->in; k++) out[k] = bf16_to_f32(pairs[k / 2 * 32 + k % 2]);
    } else {
        const float *column = (const float *)table->weights + block + lane;
        for (size_t k = 0; k < table->in; k++) out[k] = column[k * LANES];
    }
}

static void embed_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct embed_job *job = arg;
    const struct embed_args *args = job->args;
    uint32_t begin = item * job->tokens_per_item;
    uint32_t left = args->num_tokens - begin;
    uint32_t end = begin + (left < job->tokens_per_item ? left : job->tokens_per_item);
    for (uint32_t token = begin; token < end; token++) {
        float *out = (float *)args->out + (size_t)token * args->table->in;
        int64_t id = (int64_t)args->tokens[token] - args->vocab_start;
        if (id < 0 || id >= args->table->out) {
            memset(out, 0, args->table->in * sizeof *out);
        } else {
            embed_token(args->table, (uint32_t)id, out);
        }
    }
}

void cpu_embed(struct backend *backend, struct backend_stream *stream,
               const struct embed_args *args) {
    (void)stream;
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct embed_job job = {args, thread_pool_grain(cpu->pool, args->num_tokens, 1)};
    uint32_t num_items = (args->num_tokens + job.tokens_per_item - 1) / job.tokens_per_item;
    thread_pool_for(cpu->pool, num_items, embed_item, &job);
}
