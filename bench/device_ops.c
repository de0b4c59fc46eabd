/* Measures single ops of a device as an engine calls them, with random inputs in the shapes of
 * Qwen3-0.6B and 8B and, for experts, Qwen3-30B-A3B. There are so many copies of the weights that
 * they come from memory, as in a step. If the device can, calls are recorded as one graph (CUDA
 * graphs). The median of several runs counts.
 *
 *   bench_device_ops [DEVICE [CSV [small|attention|experts]]]     defaults: cuda, none
 *   small: small shapes, to try the program; attention, experts: only this
 *
 * Prints, and writes to CSV: op, shape, microseconds, TB/s and TFLOP/s. The rates count only the
 * bytes and operations that the op cannot do without.
 *
 * The ops:
 *   linear             a product by itself
 *   logits             a product by itself, to float32
 *   project_in         a norm of the residual and the product of it; nothing is added first.
 *                      For gate_up also SiLU and the multiplication
 *   project_out        a product, added to the residual
 *   decode attention   attention, with attention_prepare if the device does both as one op
 *   prefill attention  attention alone; attention_prepare has a line of its own
 * Devices without fusion have lines of linear instead of project_in and project_out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kv_cache_dtype.h"
#include "base/compiler.h"
#include "device_work.h"

enum {
    BLOCK_SIZE = 256,
    LAYERS = 2, // layers of the cache
    EXPERTS = 128,
    TOP_K = 8,
};
static const size_t beyond_caches = (size_t)256 << 20; // bytes

static struct matrix_slice noise_matrix(const struct bench *bench, uint32_t rows, uint32_t cols) {
    return (struct matrix_slice){.source = {.data = bench->noise},
                                 .dtype = DTYPE_BF16,
                                 .rows = rows,
                                 .cols = cols,
                                 .row_stride = cols};
}

static uint32_t copies_of(size_t bytes) {
    size_t copies = beyond_caches / bytes + 1;
    return copies < WORK_COPIES_MAX ? (uint32_t)copies : WORK_COPIES_MAX;
}

static void take_linears(struct work *w, uint32_t out, uint32_t in) {
    struct backend *b = w->bench->backend;
    struct err err = {0};
    const struct matrix_slice part = noise_matrix(w->bench, out, in);
    const struct linear_spec spec = {&part, NULL, 1, WEIGHTS_NATIVE};
    w->num_copies = copies_of((size_t)out * in * sizeof(uint16_t));
    for (uint32_t i = 0; i < w->num_copies; i++) {
        if (b->ops->linear_create(b, &spec, &w->linears[i], &err)) work_stop(err.message);
    }
    work_weights_finish(w);
}

static void call_linear(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    w->args.linear.linear = w->linears[number % w->num_copies];
    b->ops->linear(b, &w->args.linear);
}
static void call_project_in(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    w->args.project_in.linear = w->linears[number % w->num_copies];
    if (!b->fusion->project_in(b, &w->args.project_in)) work_stop("project_in: not done");
}
static void call_project_out(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    w->args.project_out.linear = w->linears[number % w->num_copies];
    if (!b->fusion->project_out(b, &w->args.project_out)) work_stop("project_out: not done");
}

struct linear_case {
    const char *name;
    uint32_t out, in;
    bool is_gated, is_added;
};

static void take_project_in(struct work *w, const struct linear_case *c, uint32_t rows) {
    size_t num_results = (size_t)rows * (c->is_gated ? c->out / 2 : c->out);
    w->args.project_in = (struct project_in_args){
        .residual = work_activations(w, (size_t)rows * c->in),
        .norm = work_floats(w, c->in, 1),
        .out = work_activations(w, num_results),
        .hidden = work_activations(w, (size_t)rows * c->in),
        .gate_up = work_activations(w, (size_t)rows * c->out),
        .rows = rows,
        .is_gated = c->is_gated,
        .eps = 1e-6f,
    };
}

static void take_project_out(struct work *w, const struct linear_case *c, uint32_t rows) {
    w->args.project_out = (struct project_out_args){
        .x = work_activations(w, (size_t)rows * c->in),
        .residual = work_activations(w, (size_t)rows * c->out),
        .projected = work_activations(w, (size_t)rows * c->out),
        .rows = rows,
    };
}

// is_fused: as project_in or project_out, like in a layer; else a plain linear.
static void measure_linear(struct bench *bench, const struct linear_case *given, uint32_t rows,
                           bool is_fused) {
    struct linear_case c = *given;
    struct work w = {.bench = bench};
    c.out /= bench->shrink, c.in /= bench->shrink;
    uint32_t columns = c.is_gated ? c.out / 2 : c.out;
    double bytes = 2.0 * ((double)c.out * c.in + (double)rows * c.in + (double)rows * columns);
    double flops = 2.0 * rows * c.out * c.in;
    char shape[64];
    snprintf(shape, sizeof shape, "%s %u x [%u][%u]", c.name, rows, c.out, c.in);
    take_linears(&w, c.out, c.in);
    if (is_fused && c.is_added) {
        take_project_out(&w, &c, rows);
        work_measure(&w, call_project_out, "project_out", shape, bytes, flops);
    } else if (is_fused) {
        take_project_in(&w, &c, rows);
        work_measure(&w, call_project_in, "project_in", shape, bytes, flops);
    } else {
        w.args.linear = (struct linear_args){.x = work_activations(&w, (size_t)rows * c.in),
                                             .out = work_activations(&w, (size_t)rows * c.out),
                                             .rows = rows};
        work_measure(&w, call_linear, "linear", shape, bytes, flops);
    }
    work_end(&w);
}

static void measure_linears(struct bench *bench) {
    static const struct linear_case cases[] = {
        {"0.6B qkv", 4096, 1024, false, false},    {"0.6B o", 1024, 2048, false, true},
        {"0.6B gate_up", 6144, 1024, true, false}, {"0.6B down", 1024, 3072, false, true},
        {"8B qkv", 6144, 4096, false, false},      {"8B o", 4096, 4096, false, true},
        {"8B gate_up", 24576, 4096, true, false},  {"8B down", 4096, 12288, false, true}};
    static const uint32_t counts[] = {1, 8, 16, 32, 64, 128, 256, 2048, 16384};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t n = 0; n < ARRAY_LEN(counts); n++) {
            if (bench->shrink > 1 && counts[n] > 256) continue;
            bool has_fusion = bench->backend->fusion != NULL;
            bool is_plain = !cases[i].is_gated && !cases[i].is_added;
            if (has_fusion) measure_linear(bench, &cases[i], counts[n], true);
            if (!has_fusion || is_plain) measure_linear(bench, &cases[i], counts[n], false);
        }
    }
}

static void measure_logits(struct bench *bench, uint32_t rows) {
    struct work w = {.bench = bench};
    uint32_t out = 151936 / bench->shrink, in = 1024 / bench->shrink;
    char shape[64];
    snprintf(shape, sizeof shape, "lm_head %u x [%u][%u]", rows, out, in);
    take_linears(&w, out, in);
    w.args.linear = (struct linear_args){.x = work_activations(&w, (size_t)rows * in),
                                         .out = work_take(&w, (size_t)rows * out * sizeof(float)),
                                         .rows = rows,
                                         .out_is_float = true};
    work_measure(&w, call_linear, "logits", shape,
                 2.0 * ((double)out + rows) * in + 4.0 * (double)rows * out, 2.0 * rows * out * in);
    work_end(&w);
}

static void call_norm(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    (void)number;
    b->ops->rms_norm(b, &w->args.norm);
}
static void call_silu(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    (void)number;
    b->ops->silu_mul(b, &w->args.silu);
}

static void measure_rows(struct bench *bench, uint32_t rows) {
    uint32_t cols = 4096 / bench->shrink;
    size_t count = (size_t)rows * cols;
    char shape[64];
    snprintf(shape, sizeof shape, "%u x %u", rows, cols);
    struct work norm = {.bench = bench};
    norm.args.norm = (struct rms_norm_args){.x = work_activations(&norm, count),
                                            .weight = work_floats(&norm, cols, 1),
                                            .out = work_activations(&norm, count),
                                            .rows = rows,
                                            .cols = cols,
                                            .eps = 1e-6f};
    work_measure(&norm, call_norm, "rms_norm", shape, 4.0 * (double)count, 0);
    work_end(&norm);
    struct work silu = {.bench = bench};
    silu.args.silu = (struct silu_mul_args){.gate_up = work_activations(&silu, 2 * count),
                                            .out = work_activations(&silu, count),
                                            .rows = rows,
                                            .cols = cols};
    work_measure(&silu, call_silu, "silu_mul", shape, 6.0 * (double)count, 0);
    work_end(&silu);
}

// Sequences of equal length. The last `queries` tokens of each are new.
struct attention_case {
    uint32_t num_seqs, context, queries, num_heads, num_kv_heads;
    uint32_t head_dim; // 0: 128
    enum dtype kv_dtype; // DTYPE_NONE: the device's own
};

static void call_prepare(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    (void)number;
    b->ops->attention_prepare(b, &w->args.attention);
}
// attention_begin is called once for all CALLS. A real step has 28 or 36 layers, more than CALLS.
// The first call uses layer 0 of the cache, all others layer 1.
static void call_attention(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    const struct backend_fusion *fusion = b->fusion;
    if (number == 0 && b->ops->attention_begin) b->ops->attention_begin(b, w->cache, &w->step);
    w->args.attention.layer = number ? 1 : 0;
    bool is_decode = w->step.max_query_len == 1;
    if (is_decode && fusion && fusion->attend && fusion->attend(b, &w->args.attention)) return;
    b->ops->attention(b, &w->args.attention);
}

// Uploads the indices of the step: positions and slots of its tokens, tables of its sequences.
static void take_indices(struct work *w, const struct attention_case *c, uint32_t stride) {
    uint32_t num_tokens = c->num_seqs * c->queries;
    size_t num_table = (size_t)c->num_seqs * stride;
    size_t num_words = 2 * (size_t)num_tokens + num_table + 3 * c->num_seqs + 1;
    int32_t *host = malloc(num_words * 4);
    if (!host) work_stop("out of memory");
    int32_t *positions = host, *slots = positions + num_tokens, *table = slots + num_tokens;
    int32_t *starts = table + num_table, *lengths = starts + c->num_seqs + 1;
    int32_t *rows = lengths + c->num_seqs;
    for (uint32_t s = 0; s < c->num_seqs; s++) {
        for (uint32_t i = 0; i < stride; i++) {
            table[(size_t)s * stride + i] = (int32_t)(s + i * c->num_seqs); // scattered
        }
        for (uint32_t q = 0; q < c->queries; q++) {
            uint32_t position = c->context - c->queries + q;
            int32_t block = table[(size_t)s * stride + position / BLOCK_SIZE];
            positions[s * c->queries + q] = (int32_t)position;
            slots[s * c->queries + q] = block * BLOCK_SIZE + (int32_t)(position % BLOCK_SIZE);
        }
        starts[s] = (int32_t)(s * c->queries);
        lengths[s] = (int32_t)c->context;
        rows[s] = (int32_t)s;
    }
    starts[c->num_seqs] = (int32_t)num_tokens;
    int32_t *dev = work_take(w, num_words * 4);
    work_put(w, dev, host, num_words * 4);
    free(host);
    w->step = (struct step){
        .num_tokens = num_tokens,
        .num_seqs = c->num_seqs,
        .table_stride = stride,
        .max_query_len = c->queries,
        .max_context_len = c->context,
        .num_prompts = c->queries > 1 ? c->num_seqs : 0,
        .prompt_positions = c->queries > 1 ? c->num_seqs * c->context : 0,
        .positions = dev,
        .slot_mapping = dev + num_tokens,
        .block_tables = dev + 2 * (size_t)num_tokens,
        .query_start = dev + 2 * (size_t)num_tokens + num_table,
        .context_len = dev + 2 * (size_t)num_tokens + num_table + c->num_seqs + 1,
        .table_row = dev + 2 * (size_t)num_tokens + num_table + 2 * c->num_seqs + 1,
    };
}

// Writes random keys and values to all positions of both layers, by attention_prepare.
static void fill_cache(struct work *w, const struct attention_case *c, uint32_t num_blocks) {
    struct backend *b = w->bench->backend;
    struct attention_args args = w->args.attention;
    struct step step = {0};
    struct work fill = {.bench = w->bench};
    uint32_t chunk = 4096, total = num_blocks * BLOCK_SIZE;
    size_t row = ((size_t)c->num_heads + 2 * c->num_kv_heads) * c->head_dim;
    int32_t *slots = malloc(2 * chunk * sizeof *slots), *dev = work_take(&fill, 2 * chunk * 4);
    if (!slots) work_stop("out of memory");
    args.qkv = work_activations(&fill, chunk * row);
    args.step = &step;
    step.slot_mapping = dev;
    step.positions = dev + chunk;
    for (uint32_t first = 0; first < total; first += chunk) {
        step.num_tokens = total - first < chunk ? total - first : chunk;
        for (uint32_t i = 0; i < step.num_tokens; i++) {
            slots[i] = (int32_t)(first + i);
            slots[chunk + i] = (int32_t)(i % c->context);
        }
        work_put(w, dev, slots, 2 * chunk * sizeof *slots);
        for (args.layer = 0; args.layer < LAYERS; args.layer++) {
            b->ops->attention_prepare(b, &args);
        }
    }
    free(slots);
    struct err err = {0};
    if (b->ops->synchronize(b, &err)) work_stop(err.message);
    work_end(&fill);
}

// False: the device has no kernels for this head_dim.
static bool take_attention(struct work *w, const struct attention_case *c) {
    struct backend *b = w->bench->backend;
    struct err err = {0};
    uint32_t num_tokens = c->num_seqs * c->queries;
    uint32_t stride = (c->context + BLOCK_SIZE - 1) / BLOCK_SIZE;
    const struct kv_cache_spec spec = {.num_layers = LAYERS,
                                       .num_blocks = stride * c->num_seqs,
                                       .block_size = BLOCK_SIZE,
                                       .num_kv_heads = c->num_kv_heads,
                                       .head_dim = c->head_dim,
                                       .num_heads = c->num_heads,
                                       .dtype = c->kv_dtype,
                                       .limits = {.max_num_tokens = num_tokens,
                                                  .max_num_seqs = c->num_seqs,
                                                  .max_positions = c->context,
                                                  .max_blocks_per_seq = stride}};
    enum status status = b->ops->kv_cache_create(b, &spec, &w->cache, &err);
    if (status == ERR_UNSUPPORTED) return false;
    if (status) work_stop(err.message);
    take_indices(w, c, stride);
    size_t row = ((size_t)c->num_heads + 2 * c->num_kv_heads) * c->head_dim;
    float *norm = work_floats(w, c->head_dim, 1);
    w->args.attention = (struct attention_args){
        .step = &w->step,
        .cache = w->cache,
        .num_heads = c->num_heads,
        .num_kv_heads = c->num_kv_heads,
        .head_dim = c->head_dim,
        .qkv = work_activations(w, num_tokens * row),
        .out = work_activations(w, (size_t)num_tokens * c->num_heads * c->head_dim),
        .q_norm = norm,
        .k_norm = norm,
        .rope = work_floats(w, (size_t)c->context * c->head_dim, 0.7f),
        .eps = 1e-6f,
        .scale = 1 / sqrtf((float)c->head_dim),
    };
    fill_cache(w, c, spec.num_blocks);
    return true;
}

static void measure_attention(struct bench *bench, const struct attention_case *given) {
    struct attention_case c = *given;
    struct work w = {.bench = bench};
    char shape[96], op[64];
    if (c.kv_dtype && !backend_has_kv_cache_dtype(bench->backend, c.kv_dtype)) return;
    if (!c.head_dim) c.head_dim = 128;
    if (bench->shrink > 1) c.num_seqs = (c.num_seqs + 15) / 16;
    if (!take_attention(&w, &c)) return;
    bool is_decode = c.queries == 1;
    int length = snprintf(shape, sizeof shape, "%u x %u of %u, %u over %u", c.num_seqs, c.queries,
                          c.context, c.num_heads, c.num_kv_heads);
    if (c.head_dim != 128) {
        snprintf(shape + length, sizeof shape - (size_t)length, " of %u", c.head_dim);
    }
    // A query sees all tokens before the new ones and, on average, half of the new ones.
    double seen = c.context - (c.queries - 1) / 2.0, heads = (double)c.num_seqs * c.num_heads;
    double bytes = c.kv_dtype == DTYPE_F8_E4M3 ? c.head_dim + sizeof(float) : c.head_dim * 2.0;
    double kv = 2 * bytes * c.num_seqs * c.context * c.num_kv_heads;
    snprintf(op, sizeof op, "%s attention%s", is_decode ? "decode" : "prefill",
             c.kv_dtype == DTYPE_F8_E4M3 ? " of fp8" : "");
    work_measure(&w, call_attention, op, shape, kv, 4.0 * heads * c.queries * seen * c.head_dim);
    size_t row = ((size_t)c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
    if (!is_decode) {
        work_measure(&w, call_prepare, "attention_prepare", shape,
                     4.0 * (double)w.step.num_tokens * (double)row, 0);
    }
    work_end(&w);
}

static void call_experts(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    w->args.experts.experts = w->experts[number % w->num_copies];
    b->moe->experts(b, &w->args.experts);
}

static void take_experts(struct work *w, const struct experts_shape *shape) {
    struct backend *b = w->bench->backend;
    struct matrix_slice gate[EXPERTS], down[EXPERTS];
    struct err err = {0};
    for (int i = 0; i < EXPERTS; i++) {
        gate[i] = noise_matrix(w->bench, shape->intermediate, shape->hidden);
        down[i] = noise_matrix(w->bench, shape->hidden, shape->intermediate);
    }
    const struct experts_spec spec = {
        .shape = *shape, .gate = gate, .up = gate, .down = down, .format = WEIGHTS_NATIVE};
    w->num_copies = 2;
    for (uint32_t i = 0; i < w->num_copies; i++) {
        if (b->moe->experts_create(b, &spec, &w->experts[i], &err)) work_stop(err.message);
    }
    work_weights_finish(w);
}

static void measure_experts(struct bench *bench, uint32_t num_tokens) {
    struct work w = {.bench = bench};
    struct backend *b = bench->backend;
    const struct experts_shape shape = {.num_experts = EXPERTS,
                                        .hidden = 2048 / bench->shrink,
                                        .intermediate = 768 / bench->shrink};
    size_t num_pairs = (size_t)num_tokens * TOP_K, count = (size_t)num_tokens * shape.hidden;
    bool is_used[EXPERTS] = {false};
    int32_t *ids = malloc(num_pairs * sizeof *ids);
    int num_used = 0;
    if (!ids) work_stop("out of memory");
    for (size_t i = 0; i < num_pairs; i++) { // a token's experts are distinct, as the step is odd
        uint32_t token = (uint32_t)(i / TOP_K), step = 2 * (token * 2654435761u >> 26) + 1;
        ids[i] = (int32_t)((token * 40503u + i % TOP_K * step) % EXPERTS);
        num_used += !is_used[ids[i]];
        is_used[ids[i]] = true;
    }
    take_experts(&w, &shape);
    int32_t *dev_ids = work_take(&w, num_pairs * sizeof *ids);
    work_put(&w, dev_ids, ids, num_pairs * sizeof *ids);
    free(ids);
    w.args.experts = (struct experts_args){
        .x = work_activations(&w, count),
        .ids = dev_ids,
        .weights = work_floats(&w, num_pairs, 1.0f / TOP_K),
        .out = work_activations(&w, count),
        .scratch = work_take(&w, b->moe->experts_scratch_bytes(b, &shape, num_tokens, TOP_K)),
        .num_tokens = num_tokens,
        .top_k = TOP_K};
    char text[64];
    snprintf(text, sizeof text, "%u tokens, %d experts", num_tokens, num_used);
    double matrix = 3.0 * shape.hidden * shape.intermediate;
    work_measure(&w, call_experts, "experts", text, 2 * matrix * num_used,
                 2 * matrix * (double)num_pairs);
    work_end(&w);
}

static void call_sample(struct work *w, uint32_t number) {
    struct backend *b = w->bench->backend;
    (void)number;
    b->sampler->sample(b, &w->args.sample);
}

// With penalties every row also reads its token counts.
static void measure_sample(struct bench *bench, uint32_t num_rows, bool penalizes) {
    struct work w = {.bench = bench};
    struct backend *b = bench->backend;
    uint32_t vocab = 151936 / bench->shrink;
    size_t count = (size_t)num_rows * vocab;
    float *logits = malloc(count * sizeof *logits);
    struct sample_row *rows = calloc(num_rows, sizeof *rows);
    if (!logits || !rows) work_stop("out of memory");
    for (size_t i = 0; i < count; i++) logits[i] = 100 * bf16_to_f32(bench->noise[i % 99991]);
    for (uint32_t i = 0; i < num_rows; i++) {
        rows[i] = (struct sample_row){.temperature = 0.6f,
                                      .top_p = 1,
                                      .seed_low = i,
                                      .num_top = -1,
                                      .counts_slot = penalizes ? i + 1 : 0,
                                      .repetition_penalty = penalizes ? 1.05f : 1};
    }
    void *dev_logits = work_take(&w, count * sizeof *logits),
         *dev_rows = work_take(&w, num_rows * sizeof *rows);
    work_put(&w, dev_logits, logits, count * sizeof *logits);
    work_put(&w, dev_rows, rows, num_rows * sizeof *rows);
    free(logits);
    free(rows);
    size_t scratch = b->sampler->scratch_floats(b, vocab, num_rows) * sizeof(float);
    struct token_counts *counts = NULL;
    struct err err = {0};
    if (b->sampler->counts_create(b, num_rows, vocab, 1, &counts, &err)) work_stop(err.message);
    const int32_t id = 1;
    for (uint32_t i = 0; i < num_rows; i++) b->sampler->counts_begin(b, counts, i + 1, &id, 1, 1);
    w.args.sample =
        (struct sample_args){.logits = dev_logits,
                             .rows = dev_rows,
                             .counts = counts,
                             .results = work_take(&w, num_rows * sizeof(struct sample_result)),
                             .num_rows = num_rows,
                             .vocab_size = vocab,
                             .scratch = work_take(&w, scratch)};
    char shape[64];
    snprintf(shape, sizeof shape, "%u x %u, temperature%s", num_rows, vocab,
             penalizes ? ", penalties" : "");
    work_measure(&w, call_sample, "sample", shape, (penalizes ? 8.0 : 4.0) * (double)count, 0);
    b->sampler->counts_destroy(b, counts);
    work_end(&w);
}

static void measure_attentions(struct bench *bench) {
    static const struct attention_case attention[] = {
        {.num_seqs = 256, .context = 1024, .queries = 1, .num_heads = 16, .num_kv_heads = 8},
        {.num_seqs = 64, .context = 1024, .queries = 1, .num_heads = 32, .num_kv_heads = 8},
        {.num_seqs = 8, .context = 768, .queries = 1, .num_heads = 16, .num_kv_heads = 8},
        {.num_seqs = 256, .context = 64, .queries = 1, .num_heads = 16, .num_kv_heads = 8},
        {.num_seqs = 256, .context = 64, .queries = 1, .num_heads = 32, .num_kv_heads = 8},
        {.num_seqs = 64, .context = 256, .queries = 1, .num_heads = 32, .num_kv_heads = 8},
        {.num_seqs = 16, .context = 1024, .queries = 1024, .num_heads = 16, .num_kv_heads = 8},
        {.num_seqs = 16, .context = 1024, .queries = 1024, .num_heads = 32, .num_kv_heads = 8},
        {.num_seqs = 4, .context = 4096, .queries = 4096, .num_heads = 16, .num_kv_heads = 8},
        {.num_seqs = 1, .context = 16384, .queries = 16384, .num_heads = 16, .num_kv_heads = 8},
        {.num_seqs = 8, .context = 4608, .queries = 512, .num_heads = 16, .num_kv_heads = 8},
        // Gemma 4's layers with a window, and those without.
        {.num_seqs = 64,
         .context = 1024,
         .queries = 1,
         .num_heads = 8,
         .num_kv_heads = 2,
         .head_dim = 256},
        {.num_seqs = 64,
         .context = 1024,
         .queries = 1,
         .num_heads = 8,
         .num_kv_heads = 1,
         .head_dim = 512},
        {.num_seqs = 1,
         .context = 4096,
         .queries = 1,
         .num_heads = 8,
         .num_kv_heads = 1,
         .head_dim = 512},
        {.num_seqs = 64,
         .context = 4096,
         .queries = 1,
         .num_heads = 32,
         .num_kv_heads = 4,
         .head_dim = 512},
        {.num_seqs = 4,
         .context = 4096,
         .queries = 4096,
         .num_heads = 8,
         .num_kv_heads = 2,
         .head_dim = 256},
        {.num_seqs = 4,
         .context = 4096,
         .queries = 4096,
         .num_heads = 8,
         .num_kv_heads = 1,
         .head_dim = 512}};
    for (size_t i = 0; i < ARRAY_LEN(attention); i++) {
        struct attention_case c = attention[i];
        if (bench->shrink > 1 && c.queries > 1024) continue;
        measure_attention(bench, &c);
        c.kv_dtype = DTYPE_F8_E4M3;
        measure_attention(bench, &c);
    }
}

static void measure_all_experts(struct bench *bench) {
    static const uint32_t tokens[] = {1,   4,   8,    16,   32,   64,   128,
                                      256, 512, 1024, 2048, 4096, 8192, 16384};
    for (size_t i = 0; i < ARRAY_LEN(tokens) && bench->backend->moe; i++) {
        if (bench->shrink == 1 || tokens[i] <= 64) measure_experts(bench, tokens[i]);
    }
}

static void measure_all(struct bench *bench) {
    static const uint32_t rows[] = {1, 8, 16, 64, 256};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) measure_logits(bench, rows[i]);
    for (size_t i = 0; i < ARRAY_LEN(rows) && bench->backend->sampler; i++) {
        measure_sample(bench, rows[i], false);
        measure_sample(bench, rows[i], true);
    }
    measure_attentions(bench);
    measure_rows(bench, 256);
    if (bench->shrink == 1) measure_rows(bench, 16384);
    measure_linears(bench);
    measure_all_experts(bench);
}

int main(int argc, char **argv) {
    struct err err = {0};
    bool is_small = argc > 3 && strcmp(argv[3], "small") == 0;
    bool is_attention = argc > 3 && strcmp(argv[3], "attention") == 0;
    bool is_experts = argc > 3 && strcmp(argv[3], "experts") == 0;
    if (argc > 4 || (argc > 3 && !is_small && !is_attention && !is_experts)) {
        work_stop("want [DEVICE [CSV|none [small|attention|experts]]]");
    }
    struct bench bench = {.num_noise = (size_t)151936 * 1024, .shrink = is_small ? 16 : 1};
    const struct backend_options options = {
        .device = argc > 1 ? argv[1] : "cuda", .cpu_isa = "auto", .weight_dtype = DTYPE_BF16};
    if (is_small) bench.num_noise = 2 * WORK_CHUNK;
    bench.noise = malloc(bench.num_noise * sizeof *bench.noise);
    if (!bench.noise) work_stop("out of memory");
    work_make_noise(&bench);
    if (backend_create(&bench.backend, &options, &err)) work_stop(err.message);
    if (argc > 2 && strcmp(argv[2], "none") != 0) {
        bench.csv = fopen(argv[2], "we");
        if (!bench.csv) work_stop("the CSV file cannot be written");
        fputs("op,shape,us,tb_s,tflop_s\n", bench.csv);
    }
    printf("%s\n", bench.backend->description);
    if (is_attention) {
        measure_attentions(&bench);
    } else if (is_experts) {
        measure_all_experts(&bench);
    } else {
        measure_all(&bench);
    }
    bool is_written = !bench.csv || fclose(bench.csv) == 0;
    backend_destroy(bench.backend);
    free(bench.noise);
    return is_written ? 0 : 1;
}
