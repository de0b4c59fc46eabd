#include "backend/cuda/cuda_attention_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024, SKIPPED_TOKENS = 8 };

// A layer before those that attend, and one behind them, if the cache has layers of several shapes.
static const struct kv_shape other_shape = {1, 32};

// Where a layer begins in a block of such a cache; of LAYERS: where the last one of all does.
static struct kv_place place_of(const struct shape *shape, uint32_t layer) {
    size_t heads = (size_t)layer * shape->num_kv_heads;
    return (struct kv_place){other_shape.num_kv_heads + heads,
                             other_shape.num_kv_heads * other_shape.head_dim +
                                 heads * shape->head_dim};
}

static void add_other_shapes(struct kv_cache_spec *spec, const struct shape *shape) {
    const struct kv_place behind = place_of(shape, LAYERS);
    spec->num_layers = LAYERS + 2;
    spec->num_shapes = 2;
    spec->shapes[0] = other_shape;
    spec->shapes[1] = (struct kv_shape){shape->num_kv_heads, shape->head_dim};
    spec->block_end.num_heads = behind.num_heads + other_shape.num_kv_heads;
    spec->block_end.num_elements =
        behind.num_elements + other_shape.num_kv_heads * other_shape.head_dim;
    if (spec->num_kv_heads < other_shape.num_kv_heads)
        spec->num_kv_heads = other_shape.num_kv_heads;
}

struct tokens tokens_make(const struct run *run, uint32_t num) {
    return (struct tokens){.num = num,
                           .rows = test_alloc(num * run->in->row_floats * sizeof(float)),
                           .positions = test_alloc(num * sizeof(int32_t)),
                           .slots = test_alloc(num * sizeof(int32_t))};
}

void tokens_free(struct tokens *tokens) {
    free(tokens->rows);
    free(tokens->positions);
    free(tokens->slots);
}

void tokens_set(const struct run *run, struct tokens *tokens, uint32_t i, uint32_t s,
                uint32_t position) {
    const struct inputs *in = run->in;
    uint32_t block_size = in->shape.block_size;
    int32_t block = run->tables[(size_t)s * run->stride + position / block_size];
    memcpy(tokens->rows + i * in->row_floats, in->qkv[s] + position * in->row_floats,
           in->row_floats * sizeof *tokens->rows);
    tokens->positions[i] = (int32_t)position;
    tokens->slots[i] = block * (int32_t)block_size + (int32_t)(position % block_size);
}

struct placed placed_make(const struct run *run, const struct tokens *tokens) {
    struct backend *backend = run->backend;
    size_t bytes = tokens->num * sizeof(int32_t), group = run->variant->kv_group;
    int32_t *slots = test_alloc((1 + group) * bytes);
    memset(slots, 0xff, group * bytes);
    memcpy(slots + group * tokens->num, tokens->slots, bytes);
    struct placed p = {.positions = tensor_raw(backend, tokens->positions, bytes),
                       .slots = tensor_raw(backend, slots, (1 + group) * bytes)};
    p.step = (struct step){.num_tokens = tokens->num,
                           .positions = p.positions.dev,
                           .slot_mapping = p.slots.dev,
                           .group_tokens = tokens->num};
    free(slots);
    return p;
}

void placed_free(struct placed *p) {
    tensor_free(&p->slots);
    tensor_free(&p->positions);
}

struct tensor qkv_on(const struct run *run, const struct tokens *tokens, uint32_t layer) {
    const struct shape *shape = &run->in->shape;
    size_t row = run->in->row_floats, count = tokens->num * row;
    size_t first_value = ((size_t)shape->num_heads + shape->num_kv_heads) * shape->head_dim;
    float *rows = test_alloc(count * sizeof *rows);
    for (size_t i = 0; i < count; i++) {
        bool is_twice = layer == FIRST && i % row >= first_value;
        rows[i] = is_twice ? 2 * tokens->rows[i] : tokens->rows[i];
    }
    struct tensor qkv = tensor_of(run->backend, rows, count);
    free(rows);
    return qkv;
}

struct attention_args args_of(const struct run *run, const struct step *step, uint32_t layer,
                              void *qkv, void *out) {
    const struct shape *shape = &run->in->shape;
    return (struct attention_args){.step = step,
                                   .cache = run->cache,
                                   .layer = layer,
                                   .kv_group = run->variant->kv_group,
                                   .place = place_of(shape, layer),
                                   .num_heads = shape->num_heads,
                                   .num_kv_heads = shape->num_kv_heads,
                                   .head_dim = shape->head_dim,
                                   .qkv = qkv,
                                   .out = out,
                                   .q_norm = shape->norm ? run->q_norm.dev : NULL,
                                   .k_norm = shape->norm ? run->k_norm.dev : NULL,
                                   .has_norm_after_rope = run->in->special.has_norm_after_rope,
                                   .rope = run->rope.dev,
                                   .eps = 1e-6f,
                                   .scale = 1.0f / sqrtf((float)shape->head_dim),
                                   .window = run->in->special.window,
                                   .is_chunked = run->in->special.is_chunked,
                                   .softcap = run->in->special.softcap,
                                   .sinks = run->in->special.has_sinks ? run->sinks.dev : NULL};
}

static void prepare_layer(const struct run *run, const struct placed *placed, uint32_t layer,
                          void *qkv) {
    const struct attention_args args = args_of(run, &placed->step, layer, qkv, NULL);
    run->backend->ops->attention_prepare(run->backend, &args);
}

static void prepare_only(const struct run *run, const struct tokens *tokens, uint32_t layer) {
    struct placed p = placed_make(run, tokens);
    struct tensor qkv = qkv_on(run, tokens, layer);
    prepare_layer(run, &p, layer, qkv.dev);
    tensor_free(&qkv);
    placed_free(&p);
}

static void prepare_in_all_layers(const struct run *run, const struct tokens *tokens) {
    for (uint32_t layer = 0; layer < LAYERS; layer++) prepare_only(run, tokens, layer);
}

static void write_nans(const struct run *run) {
    struct tokens tokens = tokens_make(run, CHUNK);
    memset(tokens.rows, 0xff, CHUNK * run->in->row_floats * sizeof *tokens.rows);
    // A layer's values are NaN too when they are doubled or rotated: one tensor serves all chunks.
    struct tensor nans = qkv_on(run, &tokens, FIRST);
    uint32_t num_slots = run->num_blocks * run->in->shape.block_size;
    for (uint32_t first = 0; first < num_slots; first += CHUNK) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            tokens.slots[i] = first + i < num_slots ? (int32_t)(first + i) : -1;
        }
        struct placed p = placed_make(run, &tokens);
        for (uint32_t layer = 0; layer < LAYERS; layer++) prepare_layer(run, &p, layer, nans.dev);
        placed_free(&p);
    }
    tensor_free(&nans);
    tokens_free(&tokens);
}

void write_past(const struct run *run, uint32_t s) {
    const struct seq *seq = &run->in->work->seqs[s];
    uint32_t past = seq->context - seq->queries;
    for (uint32_t first = 0; first < past; first += CHUNK) {
        struct tokens tokens = tokens_make(run, past - first < CHUNK ? past - first : CHUNK);
        for (uint32_t i = 0; i < tokens.num; i++) tokens_set(run, &tokens, i, s, first + i);
        prepare_in_all_layers(run, &tokens);
        tokens_free(&tokens);
    }
}

void write_nothing(const struct run *run) {
    struct tokens tokens = tokens_make(run, SKIPPED_TOKENS);
    memset(tokens.rows, 0xff, SKIPPED_TOKENS * run->in->row_floats * sizeof *tokens.rows);
    for (uint32_t i = 0; i < SKIPPED_TOKENS; i++) tokens.slots[i] = -1;
    prepare_in_all_layers(run, &tokens);
    tokens_free(&tokens);
}

static enum dtype dtype_of(const struct backend *backend, const struct variant *variant) {
    if (variant->kv_dtype) return variant->kv_dtype;
    bool has_floats = backend_has_kv_cache_dtype(backend, DTYPE_F32);
    return has_floats ? DTYPE_F32 : backend->kv_cache_dtype;
}

uint32_t num_step_rows(const struct inputs *in, const struct variant *variant) {
    return (variant->as_drafts ? in->num_queries : in->work->num_seqs) + variant->num_padding;
}

struct run attention_run_start(struct backend *backend, const struct inputs *in,
                               const struct variant *variant) {
    struct run run = {.backend = backend, .in = in, .variant = variant};
    const struct shape *shape = &in->shape;
    size_t head_bytes = shape->head_dim * sizeof(float);
    struct err err = {0};
    run.stride = in->max_context / shape->block_size + 2 + variant->more_stride;
    run.tables = tables_make(in, run.stride, &run.num_blocks);
    run.rope = tensor_raw(backend, in->rope, in->max_context * head_bytes);
    run.q_norm = tensor_raw(backend, in->q_norm, head_bytes);
    run.k_norm = tensor_raw(backend, in->k_norm, head_bytes);
    run.sinks = tensor_raw(backend, in->sinks, shape->num_heads * sizeof *in->sinks);
    struct kv_cache_spec spec = {.num_layers = LAYERS,
                                 .num_blocks = run.num_blocks,
                                 .block_size = shape->block_size,
                                 .num_kv_heads = shape->num_kv_heads,
                                 .head_dim = shape->head_dim,
                                 .num_heads = shape->num_heads,
                                 .limits =
                                     {
                                         .max_num_tokens = in->num_queries + variant->num_padding,
                                         .max_num_seqs = num_step_rows(in, variant),
                                         .max_positions = in->max_context,
                                         .max_blocks_per_seq = run.stride,
                                         .num_kv_groups = 1 + variant->kv_group,
                                     },
                                 .dtype = dtype_of(backend, variant)};
    if (variant->is_among_shapes) add_other_shapes(&spec, shape);
    if (backend->ops->kv_cache_create(backend, &spec, &run.cache, &err))
        fail_msg("%s", err.message);
    write_nans(&run);
    return run;
}

void attention_run_end(struct run *run) {
    run->backend->ops->kv_cache_destroy(run->backend, run->cache);
    tensor_free(&run->rope);
    tensor_free(&run->q_norm);
    tensor_free(&run->k_norm);
    tensor_free(&run->sinks);
    free(run->tables);
}
