/* Building a decoder: this rank's slices of the checkpoint's tensors become the backend's linears.
 * Every tensor is taken by name, with the shape that follows from the config. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/code_reader.h"
#include "model/decoder_internal.h"
#include "model/rope.h"

enum { PARTS_MAX = 3 };

// The state of one load.
struct loader {
    struct decoder *decoder;
    struct weights *weights;
    const struct interrupt *interrupt; // NULL: none
    struct err *err;
    struct load_progress progress;
    uint64_t num_loaded, num_parameters; // of the whole model, also where a rank keeps a part
};

// Rows [start, start + count) of a tensor [rows][cols] and, where has_bias, of its bias [rows].
struct row_part {
    const char *module; // "self_attn.q_proj": ".weight" and ".bias" are appended
    uint32_t rows, start, count;
    struct weight_format format;
};

// Columns [start, start + count) of a tensor [rows][cols].
struct col_part {
    const char *module;
    uint32_t rows, cols, start, count;
    struct weight_format format;
};

static void tell(const struct loader *l, uint64_t num_loaded) {
    if (l->progress.on_loaded) {
        l->progress.on_loaded(num_loaded, l->num_parameters, l->progress.user_data);
    }
}

static enum status take_matrix(struct loader *l, const char *name, uint32_t rows, uint32_t cols,
                               struct weight *out) {
    const uint64_t shape[2] = {rows, cols};
    enum status status = interrupt_check(l->interrupt, l->err);
    if (status) return status;
    tell(l, l->num_loaded);
    l->num_loaded += (uint64_t)rows * cols;
    return weights_take(l->weights, name, 2, shape, out, l->err);
}

// The backend has read the spec's slices when this returns.
static enum status create_linear(struct loader *l, const struct linear_spec *spec,
                                 struct linear **out) {
    struct backend *backend = l->decoder->backend;
    enum status status = backend->ops->linear_create(backend, spec, out, l->err);
    weights_release(l->weights);
    return status;
}

static struct matrix_slice rows_of(const struct weight *weight, uint32_t start, uint32_t count) {
    uint64_t cols = weight->rank == 2 ? weight->shape[1] : 1;
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * cols * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = count,
        .cols = (uint32_t)cols,
        .row_stride = cols,
        .reader = weight->reader,
        .first_row = start,
    };
}

static struct matrix_slice cols_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = (uint32_t)weight->shape[0],
        .cols = count,
        .row_stride = weight->shape[1],
        .reader = weight->reader,
        .first_col = start,
    };
}

// The slice [start, start + count) of a bias, which is a matrix of one row.
static struct matrix_slice bias_of(const struct weight *weight, uint32_t start, uint32_t count) {
    return (struct matrix_slice){
        .source = byte_source_skip(weight->source, start * dtype_size(weight->dtype)),
        .dtype = weight->dtype,
        .rows = 1,
        .cols = count,
        .row_stride = count,
    };
}

// Column-parallel: stacks this rank's rows of all parts into one linear, so that q, k and v (or
// gate and up) are one matrix product. nano-vllm: ColumnParallelLinear, MergedColumnParallelLinear,
// QKVParallelLinear.
static enum status load_rows(struct loader *l, uint32_t layer, const struct row_part *parts,
                             uint32_t num_parts, uint32_t cols, bool has_bias,
                             struct linear **out) {
    struct matrix_slice slices[PARTS_MAX], biases[PARTS_MAX];
    CHECK(num_parts <= PARTS_MAX, "num_parts=%u", num_parts);
    for (uint32_t i = 0; i < num_parts; i++) {
        char name[WEIGHT_NAME_BYTES];
        struct weight weight;
        layer_weight_name(name, layer, parts[i].module, ".weight");
        enum status status = take_matrix(l, name, parts[i].rows, cols, &weight);
        if (status) return status;
        slices[i] = rows_of(&weight, parts[i].start, parts[i].count);
        if (!has_bias) continue;
        layer_weight_name(name, layer, parts[i].module, ".bias");
        const uint64_t shape[1] = {parts[i].rows};
        status = weights_take(l->weights, name, 1, shape, &weight, l->err);
        if (status) return status;
        biases[i] = bias_of(&weight, parts[i].start, parts[i].count);
    }
    struct code_reader *readers = NULL;
    enum status status = code_readers_make(&readers, slices, num_parts, parts->format, l->err);
    const struct linear_spec spec = {slices, has_bias ? biases : NULL, num_parts, parts->format};
    if (!status) status = create_linear(l, &spec, out);
    free(readers);
    return status;
}

// Row-parallel: takes columns [start, start + count). The bias is added once to the sum over ranks,
// so only rank 0 has it. nano-vllm: RowParallelLinear.
static enum status load_cols(struct loader *l, uint32_t layer, const struct col_part *part,
                             bool has_bias, struct linear **out) {
    char name[WEIGHT_NAME_BYTES];
    struct weight weight, bias;
    layer_weight_name(name, layer, part->module, ".weight");
    enum status status = take_matrix(l, name, part->rows, part->cols, &weight);
    if (status) return status;
    struct matrix_slice slice = cols_of(&weight, part->start, part->count);
    struct matrix_slice bias_slice;
    if (has_bias) {
        const uint64_t shape[1] = {part->rows};
        layer_weight_name(name, layer, part->module, ".bias");
        status = weights_take(l->weights, name, 1, shape, &bias, l->err);
        if (status) return status;
        bias_slice = bias_of(&bias, 0, part->rows);
    }
    bool adds_bias = has_bias && l->decoder->comm->rank == 0;
    const struct linear_spec spec = {&slice, adds_bias ? &bias_slice : NULL, 1, part->format};
    return create_linear(l, &spec, out);
}

static float element(const char *data, enum dtype dtype, size_t i) {
    const char *p = data + i * dtype_size(dtype);
    uint16_t half;
    float value;
    switch (dtype) {
    case DTYPE_BF16:
        memcpy(&half, p, sizeof half);
        return bf16_to_f32(half);
    case DTYPE_F16:
        memcpy(&half, p, sizeof half);
        return f16_to_f32(half);
    default:
        memcpy(&value, p, sizeof value);
        return value;
    }
}

// Copies host floats to new device memory.
static enum status to_device(struct decoder *d, const float *values, size_t count, float **out,
                             struct err *err) {
    void *dev = NULL;
    enum status status = d->backend->ops->alloc(d->backend, count * sizeof *values, &dev, err);
    if (status) return status;
    *out = dev; // the decoder owns it from here on, also on failure
    d->backend->ops->upload(d->backend, dev, values, count * sizeof *values);
    return d->backend->ops->synchronize(d->backend, err);
}

static enum status load_vector(struct loader *l, const char *name, uint32_t count, float **out) {
    const uint64_t shape[1] = {count};
    struct weight weight;
    enum status status = weights_take(l->weights, name, 1, shape, &weight, l->err);
    if (status) return status;
    float *values = malloc(2 * count * sizeof *values); // the second half: bytes read from a file
    if (!values) return err_nomem(l->err, name);
    const char *data = byte_source_get(&weight.source, 0, count * dtype_size(weight.dtype),
                                       values + count, l->err);
    for (uint32_t i = 0; data && i < count; i++) values[i] = element(data, weight.dtype, i);
    status = data ? to_device(l->decoder, values, count, out, l->err) : ERR_IO;
    free(values);
    return status;
}

static enum status load_layer_vector(struct loader *l, uint32_t layer, const char *module,
                                     uint32_t count, float **out) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, module, ".weight");
    return load_vector(l, name, count, out);
}

static enum status load_norms(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct model_config *c = l->decoder->config;
    const struct layer *described = &l->decoder->table->layers[i];
    enum status status;
    if ((status = load_layer_vector(l, i, "input_layernorm", c->hidden_size, &layer->input_norm)))
        return status;
    if ((status =
             load_layer_vector(l, i, "post_attention_layernorm", c->hidden_size, &layer->mlp_norm)))
        return status;
    if (described->head_norm == HEAD_NORM_NONE) return OK;
    if ((status = load_layer_vector(l, i, "self_attn.q_norm", described->head_dim, &layer->q_norm)))
        return status;
    return load_layer_vector(l, i, "self_attn.k_norm", described->head_dim, &layer->k_norm);
}

static enum status load_dense_mlp(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct model_config *c = l->decoder->config;
    const struct decoder_shape *s = &l->decoder->shape;
    bool has_bias = l->decoder->table->layers[i].has_mlp_bias;
    const struct layer_formats formats = linear_formats_layer(&l->decoder->formats, i);
    const struct row_part gate_up[] = {
        {gate_up_modules[0], c->intermediate_size, s->intermediate_start, s->intermediate_size,
         formats.gate_up},
        {gate_up_modules[1], c->intermediate_size, s->intermediate_start, s->intermediate_size,
         formats.gate_up},
    };
    const struct col_part down = {DOWN_MODULE,           c->hidden_size,       c->intermediate_size,
                                  s->intermediate_start, s->intermediate_size, formats.down};
    enum status status = load_rows(l, i, gate_up, 2, c->hidden_size, has_bias, &layer->gate_up);
    return status ? status : load_cols(l, i, &down, has_bias, &layer->down);
}

// Takes the matrix `part` (gate, up or down) of an expert.
static enum status take_expert(struct loader *l, uint32_t layer, uint32_t expert, const char *part,
                               uint32_t rows, uint32_t cols, struct weight *out) {
    char name[WEIGHT_NAME_BYTES];
    expert_weight_name(name, layer, l->decoder->table->expert_names->experts, expert, part);
    return take_matrix(l, name, rows, cols, out);
}

// `slices` has room for three matrices of each expert.
static enum status load_experts(struct loader *l, uint32_t i, struct matrix_slice *slices,
                                struct experts **out) {
    const struct decoder *d = l->decoder;
    const struct expert_names *names = d->table->expert_names;
    uint32_t count = d->config->moe.num_experts, size = d->config->moe.intermediate_size;
    uint32_t hidden = d->config->hidden_size;
    uint32_t start = d->shape.expert_start, share = d->shape.expert_size;
    struct matrix_slice *gate = slices, *up = slices + count, *down = slices + 2 * (size_t)count;
    for (uint32_t expert = 0; expert < count; expert++) {
        struct weight weight;
        enum status status = take_expert(l, i, expert, names->gate, size, hidden, &weight);
        if (status) return status;
        gate[expert] = rows_of(&weight, start, share);
        status = take_expert(l, i, expert, names->up, size, hidden, &weight);
        if (status) return status;
        up[expert] = rows_of(&weight, start, share);
        status = take_expert(l, i, expert, names->down, hidden, size, &weight);
        if (status) return status;
        down[expert] = cols_of(&weight, start, share);
    }
    const struct experts_spec spec = {.shape = decoder_experts_shape(d->config, &d->shape),
                                      .gate = gate,
                                      .up = up,
                                      .down = down,
                                      .format = linear_formats_layer(&d->formats, i).experts};
    struct code_reader *readers = NULL;
    enum status status = code_readers_make(&readers, slices, 3 * count, spec.format, l->err);
    if (!status) status = d->backend->moe->experts_create(d->backend, &spec, out, l->err);
    weights_release(l->weights);
    free(readers);
    return status;
}

static enum status load_sparse_mlp(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct model_config *c = l->decoder->config;
    uint32_t count = c->moe.num_experts;
    const struct row_part router = {l->decoder->table->expert_names->router, count, 0, count,
                                    linear_formats_router()};
    enum status status = load_rows(l, i, &router, 1, c->hidden_size, false, &layer->router);
    if (status) return status;
    struct matrix_slice *slices = calloc(count, 3 * sizeof *slices);
    if (!slices) return err_nomem(l->err, "experts");
    status = load_experts(l, i, slices, &layer->experts);
    free(slices);
    return status;
}

static enum status load_layer(struct loader *l, uint32_t i) {
    const struct decoder *d = l->decoder;
    const struct model_config *c = d->config;
    const struct decoder_shape *s = &d->shape;
    struct decoder_layer *layer = &l->decoder->layers[i];
    const struct layer *described = &d->table->layers[i];
    uint32_t dim = described->head_dim;
    const struct layer_formats formats = linear_formats_layer(&d->formats, i);
    const struct row_part qkv[] = {
        {qkv_modules[0], c->num_heads * dim, s->head_start * dim, s->num_heads * dim, formats.qkv},
        {qkv_modules[1], c->num_kv_heads * dim, s->kv_head_start * dim, s->num_kv_heads * dim,
         formats.qkv},
        {qkv_modules[2], c->num_kv_heads * dim, s->kv_head_start * dim, s->num_kv_heads * dim,
         formats.qkv},
    };
    const struct col_part o = {O_MODULE,           c->hidden_size,
                               c->num_heads * dim, s->head_start * dim,
                               s->num_heads * dim, formats.o};
    enum status status;
    if ((status = load_norms(l, i, layer))) return status;
    if ((status = load_rows(l, i, qkv, 3, c->hidden_size, described->has_qkv_bias, &layer->qkv)))
        return status;
    if ((status = load_cols(l, i, &o, described->has_o_bias, &layer->o))) return status;
    if (described->is_sparse) return load_sparse_mlp(l, i, layer);
    return load_dense_mlp(l, i, layer);
}

// nano-vllm: VocabParallelEmbedding, ParallelLMHead.
static enum status load_vocabulary(struct loader *l, const char *name, struct weight_format format,
                                   struct linear **out) {
    const struct decoder *d = l->decoder;
    struct weight weight;
    enum status status =
        take_matrix(l, name, d->config->vocab_size, d->config->hidden_size, &weight);
    if (status) return status;
    struct matrix_slice slice = rows_of(&weight, d->shape.vocab_start, d->shape.vocab_size);
    const struct linear_spec spec = {&slice, NULL, 1, format};
    return create_linear(l, &spec, out);
}

static enum status load_ends(struct loader *l) {
    struct decoder *d = l->decoder;
    enum status status = load_vocabulary(l, "model.embed_tokens.weight",
                                         linear_formats_embedding(&d->formats), &d->embedding);
    if (status) return status;
    if (d->config->tie_word_embeddings) {
        // Some checkpoints repeat the embedding under this name. Any other matrix is an error.
        const uint64_t shape[2] = {d->config->vocab_size, d->config->hidden_size};
        status = weights_ignore_copy(l->weights, "lm_head.weight", "model.embed_tokens.weight", 2,
                                     shape, l->err);
        d->lm_head = d->embedding;
    } else {
        status =
            load_vocabulary(l, "lm_head.weight", linear_formats_lm_head(&d->formats), &d->lm_head);
    }
    if (status) return status;
    return load_vector(l, "model.norm.weight", d->config->hidden_size, &d->final_norm);
}

// The angles of no rotation: q and k stay what they are.
static void fill_identity(uint32_t head_dim, uint32_t num_positions, float *table) {
    for (uint32_t position = 0; position < num_positions; position++) {
        float *row = table + (size_t)position * head_dim;
        for (uint32_t i = 0; i < head_dim; i++) row[i] = i < head_dim / 2;
    }
}

// `rope`: index of the table of layers' ropes; num_ropes: no rotation.
static enum status make_rope(struct decoder *d, uint32_t rope, struct err *err) {
    uint32_t head_dim = d->config->head_dim, num_positions = d->limits.max_positions;
    size_t count = (size_t)num_positions * head_dim;
    float *table = malloc(count * sizeof *table);
    if (!table) return err_nomem(err, "rotary embedding table");
    if (rope == d->table->num_ropes) {
        fill_identity(head_dim, num_positions, table);
    } else {
        rope_fill_table(&d->table->ropes[rope], head_dim, num_positions, table);
    }
    enum status status = to_device(d, table, count, &d->ropes[rope], err);
    free(table);
    return status;
}

// Makes the tables that some layer uses.
static enum status make_ropes(struct decoder *d, struct err *err) {
    for (uint32_t i = 0; i < d->table->num_layers; i++) {
        uint32_t rope = decoder_rope_index(d, i);
        if (d->ropes[rope] || d->table->layers[i].mixer != MIXER_ATTENTION) continue;
        enum status status = make_rope(d, rope, err);
        if (status) return status;
    }
    return OK;
}

static enum status make_workspace(struct decoder *d, struct err *err) {
    decoder_workspace_layout(&d->workspace, NULL, d->config, &d->shape, &d->limits, d->backend);
    enum status status =
        d->backend->ops->alloc(d->backend, d->workspace.size_bytes, &d->workspace_memory, err);
    if (status) return status;
    decoder_workspace_layout(&d->workspace, d->workspace_memory, d->config, &d->shape, &d->limits,
                             d->backend);
    return OK;
}

static enum status make_states(struct decoder *d, struct err *err) {
    size_t rows = d->limits.max_num_seqs,
           each = decoder_state_bytes(d->table, &d->shape, d->backend);
    if (!each) return OK;
    enum status status = d->backend->ops->alloc(d->backend, rows * each, &d->state_memory, err);
    if (status) return status;
    char *at = d->state_memory;
    for (uint32_t i = 0; i < d->table->num_layers; i++) {
        size_t bytes = decoder_slot_bytes(&d->table->layers[i], &d->shape, d->backend);
        if (bytes) d->layers[i].states = at;
        at += rows * bytes;
    }
    return OK;
}

static enum status make_fused_model(struct decoder *d, struct err *err) {
    const struct model_config *c = d->config;
    if (!d->backend->fusion || !d->backend->fusion->model_create) return OK;
    struct fused_layer *layers = calloc(c->num_layers, sizeof *layers);
    if (!layers) return err_nomem(err, "fused layers");
    for (uint32_t i = 0; i < c->num_layers; i++) {
        const struct decoder_layer *layer = &d->layers[i];
        layers[i] = (struct fused_layer){
            .qkv = layer->qkv,
            .o = layer->o,
            .gate_up = layer->gate_up,
            .down = layer->down,
            .input_norm = layer->input_norm,
            .mlp_norm = layer->mlp_norm,
            .q_norm = layer->q_norm,
            .k_norm = layer->k_norm,
        };
    }
    const struct fused_model_spec spec = {
        .layers = layers,
        .num_layers = c->num_layers,
        .hidden = c->hidden_size,
        .intermediate = d->shape.intermediate_size,
        .num_heads = d->shape.num_heads,
        .num_kv_heads = d->shape.num_kv_heads,
        .head_dim = c->head_dim,
        .eps = c->rms_norm_eps,
        .is_whole = d->comm->world_size == 1 && layer_table_is_even(d->table),
        .is_even = layer_table_is_even(d->table) &&
                   d->shape.intermediate_size * d->comm->world_size == c->intermediate_size,
        .collective = comm_collective(d->comm),
    };
    enum status status = d->backend->fusion->model_create(d->backend, &spec, &d->fused, err);
    free(layers);
    return status;
}

enum status decoder_create(struct decoder **out, const struct decoder_options *options,
                           struct weights *weights, struct err *err) {
    *out = NULL;
    struct decoder *d = calloc(1, sizeof *d);
    if (!d) return err_nomem(err, "decoder");
    *d = (struct decoder){
        .config = options->config,
        .backend = options->backend,
        .formats = options->formats,
        .comm = options->comm,
        .table = options->table,
        .shape = *options->shape,
        .limits = options->limits,
    };
    struct loader loader = {
        .decoder = d,
        .weights = weights,
        .interrupt = options->interrupt,
        .err = err,
        .progress = options->progress,
        .num_parameters = decoder_num_parameters(d->config, d->table),
    };
    enum status status = OK;
    d->layers = calloc(d->config->num_layers, sizeof *d->layers);
    if (!d->layers) {
        status = err_nomem(err, "decoder layers");
        goto fail;
    }
    if ((status = load_ends(&loader))) goto fail;
    for (uint32_t i = 0; i < d->config->num_layers; i++) {
        if ((status = load_layer(&loader, i))) goto fail;
    }
    if ((status = weights_finish(weights, err))) goto fail;
    if (d->backend->queue) status = d->backend->queue->weights_finish(d->backend, err);
    if (status) goto fail;
    if ((status = make_ropes(d, err))) goto fail;
    if ((status = make_workspace(d, err))) goto fail;
    if ((status = make_states(d, err))) goto fail;
    if ((status = make_fused_model(d, err))) goto fail;
    tell(&loader, loader.num_parameters);
    *out = d;
    return OK;
fail:
    decoder_destroy(d);
    return status;
}

void decoder_destroy(struct decoder *d) {
    if (!d) return;
    const struct backend_ops *ops = d->backend->ops;
    if (d->fused) d->backend->fusion->model_destroy(d->backend, d->fused);
    for (uint32_t i = 0; d->layers && i < d->config->num_layers; i++) {
        struct decoder_layer *layer = &d->layers[i];
        ops->linear_destroy(d->backend, layer->qkv);
        ops->linear_destroy(d->backend, layer->o);
        ops->linear_destroy(d->backend, layer->gate_up);
        ops->linear_destroy(d->backend, layer->down);
        ops->linear_destroy(d->backend, layer->router);
        if (layer->experts) d->backend->moe->experts_destroy(d->backend, layer->experts);
        ops->release(d->backend, layer->input_norm);
        ops->release(d->backend, layer->mlp_norm);
        ops->release(d->backend, layer->q_norm);
        ops->release(d->backend, layer->k_norm);
    }
    if (d->lm_head != d->embedding) ops->linear_destroy(d->backend, d->lm_head);
    ops->linear_destroy(d->backend, d->embedding);
    ops->release(d->backend, d->final_norm);
    for (uint32_t i = 0; i < ARRAY_LEN(d->ropes); i++) ops->release(d->backend, d->ropes[i]);
    ops->release(d->backend, d->workspace_memory);
    ops->release(d->backend, d->state_memory);
    free(d->layers);
    free(d);
}
