#include "backend/cuda/cuda_attention_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Bound for results whose norms were summed in another order. A code may then be another one.
#define FUSED_NMSE 1e-5
#define FUSED_NMSE_INT8 1e-4
#define FUSED_NMSE_E4M3 1e-3

enum { TURNS = 4, READER_SEQS_MAX = 8 };

// The step's batch in an engine's layout: the variant's sequences, then padding.
struct batch {
    struct tokens tokens;
    uint32_t num_seqs, num_results; // num_results: tokens without padding
    uint32_t num_rows; // of tables
    uint32_t max_query_len, max_context_len, num_prompts, prompt_positions;
    int32_t *query_start, *context_len, *tables, *table_row;
};

static bool takes_part(const struct variant *variant, uint32_t s) {
    return variant->only == 0 || variant->only == s + 1;
}

// The first position that a query sees.
static uint32_t first_seen(const struct special *special, uint32_t position) {
    uint32_t window = special->window;
    if (special->is_chunked) return position / window * window;
    return window && position + 1 > window ? position + 1 - window : 0;
}

// As one sequence, or as one for each of its query tokens.
static void add_seqs(struct batch *batch, const struct seq *seq, bool as_drafts) {
    uint32_t num = as_drafts ? seq->queries : 1, first = batch->num_seqs;
    for (uint32_t i = 0; i < num; i++) {
        uint32_t r = batch->num_seqs++;
        batch->table_row[r] = batch->table_row[first];
        batch->context_len[r] = (int32_t)(seq->context - (num - 1 - i));
        batch->query_start[r + 1] = batch->query_start[r] + (int32_t)(seq->queries / num);
    }
}

static struct batch batch_make(const struct run *run) {
    const struct work *work = run->in->work;
    uint32_t num_padding = run->variant->num_padding, rows = num_step_rows(run->in, run->variant),
             n = 0;
    bool as_drafts = run->variant->as_drafts;
    struct batch batch = {.num_rows = rows, .max_query_len = 1, .max_context_len = 1};
    batch.tokens = tokens_make(run, run->in->num_queries + num_padding);
    batch.query_start = test_alloc((rows + 1) * sizeof *batch.query_start);
    batch.context_len = test_alloc(rows * sizeof *batch.context_len);
    // The first group's tables, if there are two, have only a block of NaN.
    size_t group_entries = (size_t)rows * run->stride, num_groups = 1 + run->variant->kv_group;
    batch.tables = test_alloc(num_groups * group_entries * sizeof *batch.tables);
    for (size_t i = 0; i < num_groups * group_entries; i++) {
        batch.tables[i] = run->tables[run->stride - 1];
    }
    batch.table_row = test_alloc(rows * sizeof *batch.table_row);
    for (uint32_t r = 0; r < rows; r++) batch.table_row[r] = (int32_t)(rows - 1 - r); // any order
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        const struct seq *seq = &work->seqs[s];
        if (!takes_part(run->variant, s)) continue;
        for (uint32_t i = 0; i < seq->queries; i++, n++) {
            tokens_set(run, &batch.tokens, n, s, seq->context - seq->queries + i);
        }
        int32_t *table = batch.tables + (num_groups - 1) * group_entries +
                         (size_t)batch.table_row[batch.num_seqs] * run->stride;
        memcpy(table, run->tables + (size_t)s * run->stride, run->stride * sizeof *table);
        uint32_t seen = first_seen(&run->in->special, seq->context - seq->queries);
        for (uint32_t i = 0; i < seen / run->in->shape.block_size; i++) table[i] = -1;
        if (run->variant->shares == SHARES_ALONE) hide_shared(run->in, s, table, run->stride);
        add_seqs(&batch, seq, as_drafts);
        bool is_told = seq->queries > 1 && !as_drafts && !run->variant->hides_prompts;
        batch.num_prompts += is_told;
        batch.prompt_positions += is_told ? seq->context : 0;
        if (seq->queries > batch.max_query_len) batch.max_query_len = seq->queries;
        if (seq->context > batch.max_context_len) batch.max_context_len = seq->context;
    }
    batch.num_results = n;
    if (run->variant->unslotted) {
        for (uint32_t i = 0; i < n; i++) batch.tokens.slots[i] = -1;
    }
    for (uint32_t i = 0; i < num_padding; i++, n++) {
        memset(batch.tokens.rows + n * run->in->row_floats, run->variant->zero_padding ? 0 : 0xff,
               run->in->row_floats * sizeof *batch.tokens.rows);
        batch.tokens.slots[n] = -1;
        batch.query_start[++batch.num_seqs] = (int32_t)n + 1;
    }
    batch.tokens.num = n;
    return batch;
}

static void batch_free(struct batch *batch) {
    tokens_free(&batch->tokens);
    free(batch->query_start);
    free(batch->context_len);
    free(batch->tables);
    free(batch->table_row);
}

// Compares each sequence by itself, so that one wrong row is not lost among thousands.
static void check_near(const struct batch *batch, const float *got, const float *want, size_t row,
                       double bound, const char *what) {
    for (uint32_t s = 0; s < batch->num_seqs && batch->context_len[s]; s++) {
        size_t at = (size_t)batch->query_start[s] * row;
        double error = ops_nmse_f32(got + at, want + at, row);
        if (!(error <= bound)) {
            fail_msg("%s, %d positions: nmse %g", what, batch->context_len[s], error);
        }
    }
}

// The batch on the device, with the inputs and outputs of attention in all layers.
struct device_batch {
    struct placed tokens;
    struct tensor query_start, context_len, tables, table_row, qkv[LAYERS], out[LAYERS];
    struct tensor prefix_of, shared_seqs;
    struct step step;
};

static struct device_batch device_batch_make(const struct run *run, const struct batch *batch) {
    struct backend *backend = run->backend;
    const struct shape *shape = &run->in->shape;
    size_t row = (size_t)shape->num_heads * shape->head_dim, num_seqs = batch->num_seqs;
    struct device_batch d = {
        .tokens = placed_make(run, &batch->tokens),
        .query_start = tensor_raw(backend, batch->query_start, (num_seqs + 1) * sizeof(int32_t)),
        .context_len = tensor_raw(backend, batch->context_len, num_seqs * sizeof(int32_t)),
        .tables = tensor_raw(backend, batch->tables,
                             (1 + run->variant->kv_group) * batch->num_rows * run->stride *
                                 sizeof(int32_t)),
        .table_row = tensor_raw(backend, batch->table_row, num_seqs * sizeof(int32_t)),
    };
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        d.qkv[layer] = qkv_on(run, &batch->tokens, layer);
        d.out[layer] = tensor_nan(backend, batch->tokens.num * row);
    }
    d.step = d.tokens.step;
    d.step.num_seqs = batch->num_seqs;
    d.step.table_rows = batch->num_rows;
    d.step.table_stride = run->stride;
    d.step.max_query_len = batch->max_query_len;
    d.step.max_context_len = batch->max_context_len;
    d.step.num_prompts = batch->num_prompts;
    d.step.prompt_positions = batch->prompt_positions;
    d.step.query_start = d.query_start.dev;
    d.step.context_len = d.context_len.dev;
    d.step.block_tables = d.tables.dev;
    d.step.table_row = d.table_row.dev;
    if (run->variant->shares) {
        d.step.shared = shared_on(backend, run->in, batch->num_seqs, &d.prefix_of, &d.shared_seqs);
    }
    return d;
}

static void device_batch_free(struct device_batch *d) {
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        tensor_free(&d->out[layer]);
        tensor_free(&d->qkv[layer]);
    }
    if (d->step.shared.num) {
        tensor_free(&d->shared_seqs);
        tensor_free(&d->prefix_of);
    }
    tensor_free(&d->table_row);
    tensor_free(&d->tables);
    tensor_free(&d->context_len);
    tensor_free(&d->query_start);
    placed_free(&d->tokens);
}

static void begin(const struct run *run, const struct step *step) {
    const struct backend_ops *ops = run->backend->ops;
    const struct project_in_args *qkv = run->variant->qkv;
    if (ops->attention_begin) ops->attention_begin(run->backend, run->cache, step);
    if (qkv && run->backend->fusion && run->backend->fusion->project_in) {
        run->backend->fusion->project_in(run->backend, qkv);
    }
}

// A step that attend refuses must be untouched: the separate ops then run on it.
// Returns whether it was not refused.
static bool attend(const struct run *run, const struct attention_args *args) {
    struct backend *backend = run->backend;
    if (run->variant->is_fused) {
        bool is_done = backend->fusion->attend(backend, args);
        bool is_wanted = args->step->max_query_len == 1 && !run->variant->shares;
        bool is_free = run->variant->as_drafts && !run->variant->shares; // to take it or not
        if (!is_free) assert_int_equal(is_done, is_wanted && !args->has_norm_after_rope);
        if (is_done) return true;
    }
    backend->ops->attention_prepare(backend, args);
    backend->ops->attention(backend, args);
    return false;
}

static bool attend_in(const struct run *run, const struct device_batch *d, uint32_t layer) {
    const struct attention_args args =
        args_of(run, &d->step, layer, d->qkv[layer].dev, d->out[layer].dev);
    return attend(run, &args);
}

static double fused_bound(const struct run *run) {
    enum dtype dtype = run->variant->kv_dtype;
    return dtype == DTYPE_I8 ? FUSED_NMSE_INT8 : dtype ? FUSED_NMSE_E4M3 : FUSED_NMSE;
}

// Repeats the step with q prepared separately and without writing, to see what the fused step wrote
// to the cache. `values`: the fused step's results. A norm may be summed in another order, so
// results are near, not equal. If the tokens had no slots, their rows in the cache must still be
// NaN.
static void check_cache(const struct run *run, const struct batch *batch,
                        const struct device_batch *d, const float *values) {
    struct backend *backend = run->backend;
    size_t row = (size_t)run->in->shape.num_heads * run->in->shape.head_dim;
    struct tensor out = tensor_nan(backend, batch->tokens.num * row);
    int32_t *none = test_alloc(batch->tokens.num * sizeof *none);
    memset(none, 0xff, batch->tokens.num * sizeof *none);
    struct tensor slots = tensor_raw(backend, none, batch->tokens.num * sizeof *none);
    struct step step = d->step;
    step.slot_mapping = slots.dev;
    step.group_tokens = 0; // these for all groups
    const struct attention_args args = args_of(run, &step, SECOND, d->qkv[SECOND].dev, out.dev);
    begin(run, &step);
    backend->ops->attention_prepare(backend, &args);
    backend->ops->attention(backend, &args);
    float *got = tensor_read(&out);
    if (run->variant->unslotted) {
        for (size_t i = 0; i < batch->num_results * row; i++) assert_true(isnan(got[i]));
    } else {
        check_near(batch, got, values, row, fused_bound(run),
                   "the cache after preparing on the way");
    }
    free(got);
    free(none);
    tensor_free(&slots);
    tensor_free(&out);
}

// A layer that reads the second layer's keys and values, with rows of q alone. Without a fused step
// the same kernels see the same numbers. `values`: the step's results.
static void check_reader(const struct run *run, const struct batch *batch,
                         const struct device_batch *d, const float *values, bool is_fused) {
    struct backend *backend = run->backend;
    const struct inputs *in = run->in;
    size_t row = (size_t)in->shape.num_heads * in->shape.head_dim, num = batch->tokens.num;
    float *rows = test_alloc(num * row * sizeof *rows);
    for (size_t i = 0; i < num; i++) {
        memcpy(rows + i * row, batch->tokens.rows + i * in->row_floats, row * sizeof *rows);
    }
    struct tensor q = tensor_of(backend, rows, num * row), out = tensor_nan(backend, num * row);
    struct attention_args args = args_of(run, &d->step, SECOND, q.dev, out.dev);
    args.reads_kv = true;
    if (backend->fusion && backend->fusion->attend && backend->fusion->attend(backend, &args)) {
        fail_msg("attend would take k and v from a row of q alone");
    }
    backend->ops->attention_prepare(backend, &args);
    backend->ops->attention(backend, &args);
    float *got = tensor_read(&out);
    if (is_fused) {
        check_near(batch, got, values, row, fused_bound(run), "a layer that reads the cache");
    } else {
        ops_assert_same_bits(got, values, batch->num_results, row, "a layer that reads the cache");
    }
    free(got);
    free(rows);
    tensor_free(&out);
    tensor_free(&q);
}

// Runs the first layer, then TURNS turns of norm and attention. The norm's weights double each
// turn. `waits`: synchronize after each op.
static float *run_turns(const struct run *run, const struct batch *batch,
                        const struct device_batch *d, bool waits) {
    struct backend *backend = run->backend;
    struct err err = {0};
    size_t cols = run->in->row_floats;
    struct tensor x = tensor_of(backend, batch->tokens.rows, batch->tokens.num * cols);
    struct tensor qkv = tensor_nan(backend, batch->tokens.num * cols);
    struct tensor weights[TURNS];
    float *ones = test_alloc(cols * sizeof *ones);
    const struct attention_args args = args_of(run, &d->step, SECOND, qkv.dev, d->out[SECOND].dev);
    for (int i = 0; i < TURNS; i++) {
        for (size_t c = 0; c < cols; c++) ones[c] = (float)(1 << i) / 4;
        weights[i] = tensor_raw(backend, ones, cols * sizeof *ones);
    }
    begin(run, &d->step);
    attend_in(run, d, FIRST);
    for (int i = 0; i < TURNS; i++) {
        backend->ops->rms_norm(backend, &(struct rms_norm_args){.x = x.dev,
                                                                .weight = weights[i].dev,
                                                                .out = qkv.dev,
                                                                .rows = batch->tokens.num,
                                                                .cols = (uint32_t)cols,
                                                                .eps = 1e-6f});
        if (waits) assert_int_equal(backend->ops->synchronize(backend, &err), OK);
        attend(run, &args);
        if (waits) assert_int_equal(backend->ops->synchronize(backend, &err), OK);
    }
    float *values = tensor_read(&d->out[SECOND]);
    for (int i = 0; i < TURNS; i++) tensor_free(&weights[i]);
    free(ones);
    tensor_free(&qkv);
    tensor_free(&x);
    return values;
}

// What attention reads before the previous kernel has ended must not be what that kernel writes.
static void check_turns(const struct run *run, const struct batch *batch,
                        const struct device_batch *d) {
    float *want = run_turns(run, batch, d, true);
    float *got = run_turns(run, batch, d, false);
    ops_assert_same_bits(got, want, batch->num_results,
                         (size_t)run->in->shape.num_heads * run->in->shape.head_dim,
                         "turns that were not waited for");
    free(got);
    free(want);
}

static float *run_step(const struct run *run, const struct batch *batch) {
    struct device_batch d = device_batch_make(run, batch);
    size_t row = (size_t)run->in->shape.num_heads * run->in->shape.head_dim;
    begin(run, &d.step);
    bool is_fused = false;
    for (uint32_t layer = 0; layer < LAYERS; layer++) is_fused = attend_in(run, &d, layer);
    float *first = tensor_read(&d.out[FIRST]), *values = tensor_read(&d.out[SECOND]);
    for (size_t i = 0; i < batch->num_results * row; i++) first[i] /= 2;
    ops_assert_same_bits(values, first, batch->num_results, row, "the second layer");
    free(first);
    // A step that attend refuses has its q prepared in place: a second time would turn it twice.
    if (is_fused) check_cache(run, batch, &d, values);
    bool has_few = run->in->work->num_seqs <= READER_SEQS_MAX; // more would take long
    if (run->backend->ops->gelu_mul && has_few && !run->variant->unslotted) {
        check_reader(run, batch, &d, values, is_fused);
    }
    if (is_fused) check_turns(run, batch, &d); // last: it changes the cache
    device_batch_free(&d);
    return values;
}

float *attention_on(struct backend *backend, const struct inputs *in,
                    const struct variant *variant) {
    struct run run = attention_run_start(backend, in, variant);
    for (uint32_t s = 0; s < in->work->num_seqs; s++) {
        if (takes_part(variant, s)) write_past(&run, s);
    }
    if (variant->skipped) write_nothing(&run);
    struct batch batch = batch_make(&run);
    if (variant->look) variant->look(backend, run.cache, false);
    float *values = run_step(&run, &batch);
    if (variant->look) variant->look(backend, run.cache, true);
    batch_free(&batch);
    attention_run_end(&run);
    return values;
}

float *queries_on(struct backend *backend, const struct inputs *in) {
    const struct variant variant = {0};
    struct run run = attention_run_start(backend, in, &variant);
    struct batch batch = batch_make(&run);
    struct placed placed = placed_make(&run, &batch.tokens);
    struct tensor qkv = qkv_on(&run, &batch.tokens, SECOND);
    const struct attention_args args = args_of(&run, &placed.step, SECOND, qkv.dev, NULL);
    backend->ops->attention_prepare(backend, &args);
    size_t row = (size_t)in->shape.num_heads * in->shape.head_dim;
    float *all = tensor_read(&qkv), *values = test_alloc(batch.num_results * row * sizeof *values);
    for (uint32_t i = 0; i < batch.num_results; i++) {
        memcpy(values + i * row, all + i * in->row_floats, row * sizeof *values);
    }
    free(all);
    tensor_free(&qkv);
    placed_free(&placed);
    batch_free(&batch);
    attention_run_end(&run);
    return values;
}
