/* Building a decoder: this rank's slices of the checkpoint's tensors become the backend's linears.
 * loader.h has the steps. */
#include <stdlib.h>

#include "base/check.h"
#include "model/code_reader.h"
#include "model/loader.h"
#include "model/rope.h"

static enum status load_head_norms(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct layer *described = &d->table->layers[i];
    if (described->head_norm == HEAD_NORM_NONE) return OK;
    bool is_each = described->head_norm == HEAD_NORM_EACH;
    uint32_t q = is_each ? 1 : d->config->num_heads, k = is_each ? 1 : d->config->num_kv_heads;
    uint32_t dim = described->head_dim;
    enum status status = loader_load_layer_norm(l, i, "self_attn.q_norm", q * dim, &layer->q_norm);
    return status ? status
                  : loader_load_layer_norm(l, i, "self_attn.k_norm", k * dim, &layer->k_norm);
}

// Where a norm is behind attention, "post_attention_layernorm" is that one, else the MLP's.
static enum status load_norms(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    static const char after_attention[] = "post_attention_layernorm";
    uint32_t hidden = l->decoder->config->hidden_size;
    enum norm_place place = l->decoder->table->layers[i].norm_place;
    const struct {
        const char *module;
        bool is_there;
        float **out;
    } norms[] = {
        {"input_layernorm", place != NORM_AFTER, &layer->input_norm},
        {after_attention, place == NORM_BEFORE, &layer->mlp_norm},
        {after_attention, place != NORM_BEFORE, &layer->input_post_norm},
        {"pre_feedforward_layernorm", place == NORM_AROUND, &layer->mlp_norm},
        {"post_feedforward_layernorm", place != NORM_BEFORE, &layer->mlp_post_norm},
    };
    for (size_t k = 0; k < ARRAY_LEN(norms); k++) {
        if (!norms[k].is_there) continue;
        enum status status = loader_load_layer_norm(l, i, norms[k].module, hidden, norms[k].out);
        if (status) return status;
    }
    return load_head_norms(l, i, layer);
}

static enum status load_dense_mlp(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct model_config *c = l->decoder->config;
    const struct decoder_shape *s = &l->decoder->shape;
    bool has_bias = l->decoder->table->layers[i].has_mlp_bias;
    uint32_t start = s->intermediate_start, count = s->intermediate_size,
             all = c->intermediate_size;
    const struct layer_formats formats = linear_formats_layer(&l->decoder->formats, i);
    const struct weight_format format = formats.gate_up;
    const struct row_part apart[] = {{gate_up_modules[0], all, start, count, format, 0, 0},
                                     {gate_up_modules[1], all, start, count, format, 0, 0}};
    const struct row_part stacked[] = {
        {STACKED_GATE_UP_MODULE, 2 * all, start, count, format, 0, 0},
        {STACKED_GATE_UP_MODULE, 2 * all, all + start, count, format, 0, 0}};
    const struct row_part *gate_up = l->decoder->table->is_stacked ? stacked : apart;
    const struct col_part down = {DOWN_MODULE,           c->hidden_size,       c->intermediate_size,
                                  s->intermediate_start, s->intermediate_size, formats.down};
    enum status status =
        loader_load_rows(l, i, gate_up, 2, c->hidden_size, has_bias, &layer->gate_up);
    return status ? status : loader_load_cols(l, i, &down, has_bias, &layer->down);
}

// Takes the matrix `part` (gate, up or down) of an expert.
static enum status take_expert(struct loader *l, uint32_t layer, uint32_t expert, const char *part,
                               uint32_t rows, uint32_t cols, struct weight *out) {
    char name[WEIGHT_NAME_BYTES];
    expert_weight_name(name, layer, l->decoder->table->expert_names->experts, expert, part);
    return loader_take_matrix(l, name, rows, cols, out);
}

// `slices` holds three matrices of each expert.
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
        gate[expert] = loader_rows_of(&weight, start, share);
        status = take_expert(l, i, expert, names->up, size, hidden, &weight);
        if (status) return status;
        up[expert] = loader_rows_of(&weight, start, share);
        status = take_expert(l, i, expert, names->down, hidden, size, &weight);
        if (status) return status;
        down[expert] = loader_cols_of(&weight, start, share);
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
    const struct row_part router = {
        l->decoder->table->expert_names->router, count, 0, count, linear_formats_router(), 0, 0};
    enum status status = loader_load_rows(l, i, &router, 1, c->hidden_size, false, &layer->router);
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
    const struct weight_format format = formats.qkv;
    uint32_t q = c->num_heads * dim, kv = c->num_kv_heads * dim, rotary = described->rotary_dim;
    uint32_t q_start = s->head_start * dim, q_count = s->num_heads * dim;
    uint32_t kv_start = s->kv_head_start * dim, kv_count = s->num_kv_heads * dim;
    const struct row_part apart[] = {
        {qkv_modules[0], q, q_start, q_count, format, dim, rotary},
        {qkv_modules[1], kv, kv_start, kv_count, format, dim, rotary},
        {qkv_modules[2], kv, kv_start, kv_count, format, 0, 0},
    };
    const struct row_part stacked[] = {
        {STACKED_QKV_MODULE, q + 2 * kv, q_start, q_count, format, dim, rotary},
        {STACKED_QKV_MODULE, q + 2 * kv, q + kv_start, kv_count, format, dim, rotary},
        {STACKED_QKV_MODULE, q + 2 * kv, q + kv + kv_start, kv_count, format, 0, 0},
    };
    const struct row_part *qkv = d->table->is_stacked ? stacked : apart;
    const struct col_part o = {O_MODULE,           c->hidden_size,
                               c->num_heads * dim, s->head_start * dim,
                               s->num_heads * dim, formats.o};
    enum status status;
    if ((status = load_norms(l, i, layer))) return status;
    if ((status =
             loader_load_rows(l, i, qkv, 3, c->hidden_size, described->has_qkv_bias, &layer->qkv)))
        return status;
    if ((status = loader_load_cols(l, i, &o, described->has_o_bias, &layer->o))) return status;
    if (described->is_sparse) return load_sparse_mlp(l, i, layer);
    return load_dense_mlp(l, i, layer);
}

// nano-vllm: VocabParallelEmbedding, ParallelLMHead.
static enum status load_vocabulary(struct loader *l, const char *name, struct weight_format format,
                                   struct linear **out) {
    const struct decoder *d = l->decoder;
    struct weight weight;
    enum status status =
        loader_take_matrix(l, name, d->config->vocab_size, d->config->hidden_size, &weight);
    if (status) return status;
    struct matrix_slice slice = loader_rows_of(&weight, d->shape.vocab_start, d->shape.vocab_size);
    const struct linear_spec spec = {&slice, NULL, 1, format};
    return loader_create_linear(l, &spec, out);
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
    return loader_load_norm(l, "model.norm.weight", d->config->hidden_size, d->table->logits_scale,
                            &d->final_norm);
}

// `rope`: index of the table of layers' ropes; num_ropes: no rotation.
static enum status make_rope(struct decoder *d, uint32_t rope, struct err *err) {
    uint32_t head_dim = d->config->head_dim, num_positions = d->limits.max_positions;
    uint32_t rotary_dim = model_config_rotary_dim(d->config);
    size_t count = (size_t)num_positions * head_dim;
    float *table = malloc(count * sizeof *table);
    if (!table) return err_nomem(err, "rotary embedding table");
    bool rotates = rope < d->table->num_ropes;
    rope_fill_table(&d->table->ropes[rotates ? rope : 0], head_dim, rotates ? rotary_dim : 0,
                    num_positions, table);
    enum status status = loader_to_device(d, table, count, &d->ropes[rope], err);
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
    loader_tell(&loader, loader.num_parameters);
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
        ops->release(d->backend, layer->input_post_norm);
        ops->release(d->backend, layer->mlp_post_norm);
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
