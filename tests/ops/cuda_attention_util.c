#include "ops/cuda_attention_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Of results whose norms were summed in another order.
#define ON_THE_WAY_NMSE 1e-5

enum { LAYERS = 2, LAYER = 1, PIECE = 1024, SKIPPED_TOKENS = 8, TURNS = 4 };

struct run {
    struct backend *backend;
    const struct inputs *in;
    const struct variant *variant;
    struct kv_cache *cache;
    struct tensor rope, q_norm, k_norm;
    int32_t *tables; // [num_seqs][stride]
    uint32_t stride, num_blocks;
};

// The tokens of one call of attention_prepare.
struct tokens {
    uint32_t num;
    float *rows; // [num][row_floats]
    int32_t *positions, *slots; // [num]
};

static void fill_rope(float *rope, uint32_t num_positions, uint32_t head_dim) {
    for (uint32_t position = 0; position < num_positions; position++) {
        for (uint32_t i = 0; i < head_dim / 2; i++) {
            double angle = position * pow(10000.0, -2.0 * i / head_dim);
            rope[(size_t)position * head_dim + i] = (float)cos(angle);
            rope[(size_t)position * head_dim + head_dim / 2 + i] = (float)sin(angle);
        }
    }
}

struct inputs inputs_make(const struct shape *shape, const struct work *work) {
    struct inputs in = {.shape = *shape, .work = work};
    uint32_t head_dim = shape->head_dim;
    in.row_floats = ((size_t)shape->num_heads + 2 * (size_t)shape->num_kv_heads) * head_dim;
    in.qkv = test_alloc(work->num_seqs * sizeof *in.qkv);
    struct ops_rng rng = ops_rng_of(head_dim + shape->num_heads);
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        in.qkv[s] = bf16_values(&rng, work->seqs[s].context * in.row_floats, 2);
        in.num_queries += work->seqs[s].queries;
        if (work->seqs[s].context > in.max_context) in.max_context = work->seqs[s].context;
    }
    in.rope = test_alloc((size_t)in.max_context * head_dim * sizeof *in.rope);
    fill_rope(in.rope, in.max_context, head_dim);
    in.q_norm = test_alloc(head_dim * sizeof *in.q_norm);
    in.k_norm = test_alloc(head_dim * sizeof *in.k_norm);
    for (uint32_t d = 0; d < head_dim; d++) {
        in.q_norm[d] = 1 + 0.5f * ops_rng_float(&rng);
        in.k_norm[d] = 1 + 0.5f * ops_rng_float(&rng);
    }
    return in;
}

void inputs_free(struct inputs *in) {
    for (uint32_t s = 0; s < in->work->num_seqs; s++) free(in->qkv[s]);
    free(in->qkv);
    free(in->rope);
    free(in->q_norm);
    free(in->k_norm);
}

static struct tokens tokens_make(const struct run *run, uint32_t num) {
    return (struct tokens){.num = num,
                           .rows = test_alloc(num * run->in->row_floats * sizeof(float)),
                           .positions = test_alloc(num * sizeof(int32_t)),
                           .slots = test_alloc(num * sizeof(int32_t))};
}

static void tokens_free(struct tokens *tokens) {
    free(tokens->rows);
    free(tokens->positions);
    free(tokens->slots);
}

// Token `i` becomes the one at `position` of sequence `s`.
static void tokens_set(const struct run *run, struct tokens *tokens, uint32_t i, uint32_t s,
                       uint32_t position) {
    const struct inputs *in = run->in;
    uint32_t block_size = in->shape.block_size;
    int32_t block = run->tables[(size_t)s * run->stride + position / block_size];
    memcpy(tokens->rows + i * in->row_floats, in->qkv[s] + position * in->row_floats,
           in->row_floats * sizeof *tokens->rows);
    tokens->positions[i] = (int32_t)position;
    tokens->slots[i] = block * (int32_t)block_size + (int32_t)(position % block_size);
}

// The tokens on the device, and what attention_prepare is asked of them.
struct prepared {
    struct tensor qkv, positions, slots;
    struct attention_prepare_args args;
};

static struct prepared prepared_make(const struct run *run, const struct tokens *tokens,
                                     uint32_t layer) {
    struct backend *backend = run->backend;
    const struct shape *shape = &run->in->shape;
    struct prepared p = {0};
    p.qkv = tensor_of(backend, tokens->rows, tokens->num * run->in->row_floats);
    p.positions = tensor_raw(backend, tokens->positions, tokens->num * sizeof *tokens->positions);
    p.slots = tensor_raw(backend, tokens->slots, tokens->num * sizeof *tokens->slots);
    p.args = (struct attention_prepare_args){.qkv = p.qkv.dev,
                                             .q_norm = shape->norm ? run->q_norm.dev : NULL,
                                             .k_norm = shape->norm ? run->k_norm.dev : NULL,
                                             .rope = run->rope.dev,
                                             .positions = p.positions.dev,
                                             .slot_mapping = p.slots.dev,
                                             .cache = run->cache,
                                             .layer = layer,
                                             .num_tokens = tokens->num,
                                             .num_heads = shape->num_heads,
                                             .num_kv_heads = shape->num_kv_heads,
                                             .head_dim = shape->head_dim,
                                             .eps = 1e-6f};
    return p;
}

static void prepared_free(struct prepared *p) {
    tensor_free(&p->slots);
    tensor_free(&p->positions);
    tensor_free(&p->qkv);
}

static void prepare_only(const struct run *run, const struct tokens *tokens, uint32_t layer) {
    struct prepared p = prepared_make(run, tokens, layer);
    run->backend->ops->attention_prepare(run->backend, run->backend->stream, &p.args);
    prepared_free(&p);
}

static void write_nans(const struct run *run) {
    struct tokens tokens = tokens_make(run, PIECE);
    memset(tokens.rows, 0xff, PIECE * run->in->row_floats * sizeof *tokens.rows);
    uint32_t num_slots = run->num_blocks * run->in->shape.block_size;
    for (uint32_t first = 0; first < num_slots; first += PIECE) {
        for (uint32_t i = 0; i < PIECE; i++) {
            tokens.slots[i] = first + i < num_slots ? (int32_t)(first + i) : -1;
        }
        for (uint32_t layer = 0; layer < LAYERS; layer++) prepare_only(run, &tokens, layer);
    }
    tokens_free(&tokens);
}

// What the steps before wrote of sequence `s`.
static void write_past(const struct run *run, uint32_t s) {
    const struct seq *seq = &run->in->work->seqs[s];
    uint32_t past = seq->context - seq->queries;
    for (uint32_t first = 0; first < past; first += PIECE) {
        struct tokens tokens = tokens_make(run, past - first < PIECE ? past - first : PIECE);
        for (uint32_t i = 0; i < tokens.num; i++) tokens_set(run, &tokens, i, s, first + i);
        prepare_only(run, &tokens, LAYER);
        tokens_free(&tokens);
    }
}

static void write_nothing(const struct run *run) {
    struct tokens tokens = tokens_make(run, SKIPPED_TOKENS);
    memset(tokens.rows, 0xff, SKIPPED_TOKENS * run->in->row_floats * sizeof *tokens.rows);
    for (uint32_t i = 0; i < SKIPPED_TOKENS; i++) tokens.slots[i] = -1;
    prepare_only(run, &tokens, LAYER);
    tokens_free(&tokens);
}

static void deal_blocks(struct run *run) {
    const struct work *work = run->in->work;
    uint32_t block_size = run->in->shape.block_size, used = 0;
    struct ops_rng rng = ops_rng_of(99);
    run->stride = run->in->max_context / block_size + 2 + run->variant->more_stride;
    run->num_blocks = 2;
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        run->num_blocks += (work->seqs[s].context + block_size - 1) / block_size;
    }
    int32_t *order = test_alloc(run->num_blocks * sizeof *order);
    for (uint32_t i = 0; i < run->num_blocks; i++) {
        uint32_t other = ops_rng_below(&rng, i + 1);
        order[i] = order[other];
        order[other] = (int32_t)i;
    }
    run->tables = test_alloc((size_t)work->num_seqs * run->stride * sizeof *run->tables);
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        uint32_t own = (work->seqs[s].context + block_size - 1) / block_size;
        int32_t *table = run->tables + (size_t)s * run->stride;
        for (uint32_t i = 0; i < run->stride; i++) {
            table[i] = i < own ? order[used + i] : order[run->num_blocks - 1]; // nobody's
        }
        used += own;
    }
    free(order);
}

static struct run run_start(struct backend *backend, const struct inputs *in,
                            const struct variant *variant) {
    struct run run = {.backend = backend, .in = in, .variant = variant};
    const struct shape *shape = &in->shape;
    size_t head_bytes = shape->head_dim * sizeof(float);
    struct err err = {0};
    deal_blocks(&run);
    run.rope = tensor_raw(backend, in->rope, in->max_context * head_bytes);
    run.q_norm = tensor_raw(backend, in->q_norm, head_bytes);
    run.k_norm = tensor_raw(backend, in->k_norm, head_bytes);
    const struct kv_cache_spec spec = {.num_layers = LAYERS,
                                       .num_blocks = run.num_blocks,
                                       .block_size = shape->block_size,
                                       .num_kv_heads = shape->num_kv_heads,
                                       .head_dim = shape->head_dim,
                                       .num_heads = shape->num_heads,
                                       .max_num_seqs = in->work->num_seqs + variant->num_padding,
                                       .max_num_tokens = in->num_queries + variant->num_padding};
    if (backend->ops->kv_cache_create(backend, &spec, &run.cache, &err))
        fail_msg("%s", err.message);
    write_nans(&run);
    return run;
}

static void run_end(struct run *run) {
    run->backend->ops->kv_cache_destroy(run->backend, run->cache);
    tensor_free(&run->rope);
    tensor_free(&run->q_norm);
    tensor_free(&run->k_norm);
    free(run->tables);
}

// The step's batch as an engine lays it out: the sequences of the variant, then padding.
struct batch {
    struct tokens tokens;
    uint32_t num_seqs, num_results; // tokens that are no padding
    uint32_t max_query_len, max_context_len;
    int32_t *query_start, *context_len, *tables;
};

static bool takes_part(const struct variant *variant, uint32_t s) {
    return variant->only == 0 || variant->only == s + 1;
}

static struct batch batch_make(const struct run *run) {
    const struct work *work = run->in->work;
    uint32_t num_padding = run->variant->num_padding, rows = work->num_seqs + num_padding, n = 0;
    struct batch batch = {.max_query_len = 1, .max_context_len = 1};
    batch.tokens = tokens_make(run, run->in->num_queries + num_padding);
    batch.query_start = test_alloc((rows + 1) * sizeof *batch.query_start);
    batch.context_len = test_alloc(rows * sizeof *batch.context_len);
    batch.tables = test_alloc((size_t)rows * run->stride * sizeof *batch.tables);
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        const struct seq *seq = &work->seqs[s];
        if (!takes_part(run->variant, s)) continue;
        for (uint32_t i = 0; i < seq->queries; i++, n++) {
            tokens_set(run, &batch.tokens, n, s, seq->context - seq->queries + i);
        }
        memcpy(batch.tables + (size_t)batch.num_seqs * run->stride,
               run->tables + (size_t)s * run->stride, run->stride * sizeof *batch.tables);
        batch.context_len[batch.num_seqs++] = (int32_t)seq->context;
        batch.query_start[batch.num_seqs] = (int32_t)n;
        if (seq->queries > batch.max_query_len) batch.max_query_len = seq->queries;
        if (seq->context > batch.max_context_len) batch.max_context_len = seq->context;
    }
    batch.num_results = n;
    if (run->variant->unslotted) {
        for (uint32_t i = 0; i < n; i++) batch.tokens.slots[i] = -1;
    }
    for (uint32_t i = 0; i < num_padding; i++, n++) {
        memset(batch.tokens.rows + n * run->in->row_floats, 0xff,
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
}

// Each sequence for itself: one wrong row of thousands must not drown among the others' results.
static void check_near(const struct batch *batch, const float *got, const float *want, size_t row,
                       const char *what) {
    for (uint32_t s = 0; s < batch->num_seqs && batch->context_len[s]; s++) {
        size_t at = (size_t)batch->query_start[s] * row;
        double error = ops_nmse_f32(got + at, want + at, row);
        if (!(error <= ON_THE_WAY_NMSE)) {
            fail_msg("%s, %d positions: nmse %g", what, batch->context_len[s], error);
        }
    }
}

// The step again, with q prepared by itself and nothing written: what the cache has now. `values`:
// of the step with keys and values written on the way. A norm's sum may go in another order, so
// results are near, not the same; without slots the new token's row still is not a number.
static void check_cache(const struct run *run, const struct batch *batch,
                        const struct prepared *prepared, const struct attention_args *args,
                        const float *values) {
    struct backend *backend = run->backend;
    size_t row = (size_t)args->num_heads * args->head_dim;
    struct tensor out = tensor_nan(backend, batch->tokens.num * row);
    int32_t *none = test_alloc(batch->tokens.num * sizeof *none);
    memset(none, 0xff, batch->tokens.num * sizeof *none);
    struct tensor slots = tensor_raw(backend, none, batch->tokens.num * sizeof *none);
    struct attention_prepare_args prepare = prepared->args;
    prepare.slot_mapping = slots.dev;
    backend->ops->attention_prepare(backend, backend->stream, &prepare);
    struct attention_args again = *args;
    again.prepare = NULL;
    again.out = out.dev;
    backend->ops->attention(backend, backend->stream, &again);
    float *got = tensor_read(&out);
    if (run->variant->unslotted) {
        for (size_t i = 0; i < batch->num_results * row; i++) assert_true(isnan(got[i]));
    } else {
        check_near(batch, got, values, row, "the cache after preparing on the way");
    }
    free(got);
    free(none);
    tensor_free(&slots);
    tensor_free(&out);
}

// Several layers' worth of norm and attention, the norm's weights doubling from turn to turn;
// waited for after each op, or not.
static float *run_turns(const struct run *run, const struct batch *batch,
                        const struct attention_args *args, const struct tensor *out, bool waits) {
    struct backend *backend = run->backend;
    struct err err = {0};
    size_t cols = run->in->row_floats;
    struct tensor x = tensor_of(backend, batch->tokens.rows, batch->tokens.num * cols);
    struct tensor qkv = tensor_nan(backend, batch->tokens.num * cols);
    struct tensor weights[TURNS];
    float *ones = test_alloc(cols * sizeof *ones);
    struct attention_prepare_args prepare = *args->prepare;
    struct attention_args turn = *args;
    turn.qkv = prepare.qkv = qkv.dev;
    turn.prepare = &prepare;
    for (int i = 0; i < TURNS; i++) {
        for (size_t c = 0; c < cols; c++) ones[c] = (float)(1 << i) / 4;
        weights[i] = tensor_raw(backend, ones, cols * sizeof *ones);
    }
    for (int i = 0; i < TURNS; i++) {
        backend->ops->rms_norm(backend, backend->stream,
                               &(struct rms_norm_args){.x = x.dev,
                                                       .weight = weights[i].dev,
                                                       .out = qkv.dev,
                                                       .rows = batch->tokens.num,
                                                       .cols = (uint32_t)cols,
                                                       .eps = 1e-6f});
        if (waits) assert_int_equal(backend->ops->synchronize(backend, backend->stream, &err), OK);
        backend->ops->attention(backend, backend->stream, &turn);
        if (waits) assert_int_equal(backend->ops->synchronize(backend, backend->stream, &err), OK);
    }
    float *values = tensor_read(out);
    for (int i = 0; i < TURNS; i++) tensor_free(&weights[i]);
    free(ones);
    tensor_free(&qkv);
    tensor_free(&x);
    return values;
}

// What attention reads before the kernel in front has ended is nothing that this one writes.
static void check_turns(const struct run *run, const struct batch *batch,
                        const struct attention_args *args, const struct tensor *out) {
    float *want = run_turns(run, batch, args, out, true);
    float *got = run_turns(run, batch, args, out, false);
    ops_assert_same_bits(got, want, batch->num_results, (size_t)args->num_heads * args->head_dim,
                         "turns that were not waited for");
    free(got);
    free(want);
}

static float *run_step(const struct run *run, const struct batch *batch) {
    struct backend *backend = run->backend;
    const struct shape *shape = &run->in->shape;
    size_t row = (size_t)shape->num_heads * shape->head_dim;
    bool on_the_way = run->variant->on_the_way;
    struct prepared prepared = prepared_make(run, &batch->tokens, LAYER);
    if (!on_the_way) backend->ops->attention_prepare(backend, backend->stream, &prepared.args);
    struct tensor out = tensor_nan(backend, batch->tokens.num * row);
    struct tensor query_start =
        tensor_raw(backend, batch->query_start, (batch->num_seqs + 1) * sizeof(int32_t));
    struct tensor context_len =
        tensor_raw(backend, batch->context_len, batch->num_seqs * sizeof(int32_t));
    struct tensor tables =
        tensor_raw(backend, batch->tables, (size_t)batch->num_seqs * run->stride * sizeof(int32_t));
    struct tensor stride = tensor_raw(backend, &run->stride, sizeof run->stride);
    if (backend->ops->attention_plan) {
        backend->ops->attention_plan(
            backend, backend->stream,
            &(struct attention_plan_args){.cache = run->cache,
                                          .query_start = query_start.dev,
                                          .context_len = context_len.dev,
                                          .block_table_stride = stride.dev,
                                          .slot_mapping = prepared.args.slot_mapping,
                                          .num_seqs = batch->num_seqs,
                                          .max_query_len = batch->max_query_len});
    }
    const struct attention_args args = {.qkv = prepared.qkv.dev,
                                        .prepare = on_the_way ? &prepared.args : NULL,
                                        .cache = run->cache,
                                        .query_start = query_start.dev,
                                        .context_len = context_len.dev,
                                        .block_tables = tables.dev,
                                        .out = out.dev,
                                        .layer = LAYER,
                                        .num_tokens = batch->tokens.num,
                                        .num_seqs = batch->num_seqs,
                                        .num_heads = shape->num_heads,
                                        .num_kv_heads = shape->num_kv_heads,
                                        .head_dim = shape->head_dim,
                                        .block_table_stride = run->stride,
                                        .max_query_len = batch->max_query_len,
                                        .max_context_len = batch->max_context_len,
                                        .scale = 1.0f / sqrtf((float)shape->head_dim)};
    // Twice: a plan serves every layer, so it must be as good after its first use.
    backend->ops->attention(backend, backend->stream, &args);
    float *first = tensor_read(&out);
    backend->ops->attention(backend, backend->stream, &args);
    float *values = tensor_read(&out);
    ops_assert_same_bits(values, first, batch->num_results, row, "the plan's second use");
    free(first);
    if (on_the_way) {
        check_cache(run, batch, &prepared, &args, values);
        check_turns(run, batch, &args, &out);
    }
    tensor_free(&stride);
    tensor_free(&tables);
    tensor_free(&context_len);
    tensor_free(&query_start);
    tensor_free(&out);
    prepared_free(&prepared);
    return values;
}

float *attention_on(struct backend *backend, const struct inputs *in,
                    const struct variant *variant) {
    struct run run = run_start(backend, in, variant);
    for (uint32_t s = 0; s < in->work->num_seqs; s++) {
        if (takes_part(variant, s)) write_past(&run, s);
    }
    if (variant->skipped) write_nothing(&run);
    struct batch batch = batch_make(&run);
    float *values = run_step(&run, &batch);
    batch_free(&batch);
    run_end(&run);
    return values;
}

float *queries_on(struct backend *backend, const struct inputs *in) {
    const struct variant variant = {0};
    struct run run = run_start(backend, in, &variant);
    struct batch batch = batch_make(&run);
    struct prepared prepared = prepared_make(&run, &batch.tokens, LAYER);
    backend->ops->attention_prepare(backend, backend->stream, &prepared.args);
    size_t row = (size_t)in->shape.num_heads * in->shape.head_dim;
    float *all = tensor_read(&prepared.qkv),
          *values = test_alloc(batch.num_results * row * sizeof *values);
    for (uint32_t i = 0; i < batch.num_results; i++) {
        memcpy(values + i * row, all + i * in->row_floats, row * sizeof *values);
    }
    free(all);
    prepared_free(&prepared);
    batch_free(&batch);
    run_end(&run);
    return values;
}
