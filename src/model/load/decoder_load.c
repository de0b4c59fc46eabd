/* Building a decoder: this rank's slices of the checkpoint's tensors become the backend's linears.
 * loader.h has the steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/code_reader.h"
#include "model/load/conv_load.h"
#include "model/load/delta_load.h"
#include "model/load/latent_load.h"
#include "model/load/layer_inputs_load.h"
#include "model/load/linear_order.h"
#include "model/load/loader.h"
#include "model/load/mamba_load.h"
#include "model/load/norms_load.h"
#include "model/load/xielu_load.h"
#include "model/rope.h"

// An MLP's tensors, and this rank's share [start, start + count) of its intermediate size.
struct mlp {
    const struct mlp_names *names;
    uint32_t size, start, count;
    bool has_bias;
    float gate_scale; // 0: none
    struct weight_format gate_up_format, down_format;
    struct linear **out_gate_up, **out_down;
};

static enum status load_mlp(struct loader *l, uint32_t i, const struct mlp *mlp) {
    const struct mlp_names *names = mlp_names_of(l->decoder->table, mlp->names, l->weights, i);
    bool is_stacked = names->gate == names->up;
    uint32_t size = mlp->size, hidden = l->decoder->config->hidden_size;
    uint32_t rows = is_stacked ? 2 * size : size, up_start = is_stacked ? size : 0;
    bool lacks_gate = !names->gate;
    const struct row_part parts[] = {
        {.module = names->gate,
         .rows = rows,
         .start = mlp->start,
         .count = mlp->count,
         .factor = mlp->gate_scale},
        {.module = names->up, .rows = rows, .start = up_start + mlp->start, .count = mlp->count},
    };
    const struct row_linear gate_up = {parts + lacks_gate, lacks_gate ? 1 : 2, mlp->gate_up_format,
                                       mlp->out_gate_up};
    const struct col_part down = {names->down, hidden,     size,
                                  mlp->start,  mlp->count, mlp->down_format};
    enum status status = loader_load_rows(l, i, &gate_up, 1, hidden, mlp->has_bias);
    return status ? status : loader_load_cols(l, i, &down, mlp->has_bias, mlp->out_down);
}

static enum status load_dense_mlp(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct layer_formats formats = linear_formats_layer(&d->formats, i);
    uint32_t factor = d->table->layers[i].mlp_factor;
    return load_mlp(l, i,
                    &(struct mlp){
                        .names = &d->table->mlp,
                        .size = factor * d->config->intermediate_size,
                        .start = factor * d->shape.intermediate_start,
                        .count = factor * d->shape.intermediate_size,
                        .has_bias = d->table->layers[i].has_mlp_bias,
                        .gate_scale = d->table->gate_scale,
                        .gate_up_format = formats.gate_up,
                        .down_format = formats.down,
                        .out_gate_up = &layer->gate_up,
                        .out_down = &layer->down,
                    });
}

static enum status load_shared_expert(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct layer_formats formats = linear_formats_layer(&d->formats, i);
    const struct expert_names *names = d->table->expert_names;
    struct row_part parts[SHARED_GATES];
    for (uint32_t k = 0; k < SHARED_GATES; k++) {
        parts[k] = (struct row_part){.module = names->shared_gate, .rows = 1, .count = 1};
    }
    const struct row_linear gate = {parts, SHARED_GATES, linear_formats_router(),
                                    &layer->shared_gate};
    enum status status = OK;
    if (names->shared_gate) {
        status = loader_load_rows(l, i, &gate, 1, d->config->hidden_size, false);
    }
    if (status) return status;
    return load_mlp(l, i,
                    &(struct mlp){
                        .names = &names->shared,
                        .size = d->config->moe.shared_intermediate_size,
                        .start = d->shape.shared_start,
                        .count = d->shape.shared_size,
                        .gate_up_format = formats.shared_gate_up,
                        .down_format = formats.shared_down,
                        .out_gate_up = &layer->shared_gate_up,
                        .out_down = &layer->shared_down,
                    });
}

// Takes the matrix `part` (gate, up or down) of an expert, and its bias if it has one.
static enum status take_expert(struct loader *l, uint32_t layer, uint32_t expert, const char *part,
                               uint32_t rows, uint32_t cols, struct weight *out,
                               struct weight *bias) {
    const char *experts = l->decoder->table->expert_names->experts;
    const uint64_t shape[1] = {rows};
    char name[WEIGHT_NAME_BYTES];
    expert_weight_name(name, layer, experts, expert, part, ".weight");
    enum status status = loader_take_matrix(l, name, rows, cols, out);
    if (status || !l->decoder->table->layers[layer].has_expert_bias) return status;
    expert_weight_name(name, layer, experts, expert, part, ".bias");
    return weights_take(l->weights, name, 1, shape, bias, l->err);
}

// Where the matrices of all experts are, and their biases.
struct expert_slices {
    struct matrix_slice *gate, *up, *down; // [num_experts]
    struct matrix_slice *gate_bias, *up_bias, *down_bias; // [num_experts]
};

enum { EXPERT_SLICES = 6 };

static enum status slice_experts(struct loader *l, uint32_t i, const struct expert_slices *out) {
    const struct decoder *d = l->decoder;
    const struct expert_names *names = d->table->expert_names;
    uint32_t size = d->config->moe.intermediate_size, hidden = d->config->hidden_size;
    uint32_t start = d->shape.expert_start, share = d->shape.expert_size;
    for (uint32_t expert = 0; expert < d->config->moe.num_experts; expert++) {
        struct weight weight, bias = {0};
        enum status status = OK;
        if (names->gate) {
            status = take_expert(l, i, expert, names->gate, size, hidden, &weight, &bias);
            if (status) return status;
            out->gate[expert] = loader_rows_of(&weight, start, share);
            out->gate_bias[expert] = loader_bias_of(&bias, start, share);
        }
        status = take_expert(l, i, expert, names->up, size, hidden, &weight, &bias);
        if (status) return status;
        out->up[expert] = loader_rows_of(&weight, start, share);
        out->up_bias[expert] = loader_bias_of(&bias, start, share);
        status = take_expert(l, i, expert, names->down, hidden, size, &weight, &bias);
        if (status) return status;
        out->down[expert] = loader_cols_of(&weight, start, share);
        out->down_bias[expert] = loader_bias_of(&bias, 0, hidden);
    }
    return OK;
}

// The name of a tensor of all experts; false: the checkpoint has one for each.
static bool stacked_name(const struct loader *l, uint32_t i, const char *part,
                         char out[WEIGHT_NAME_BYTES]) {
    const struct expert_names *names = l->decoder->table->expert_names;
    char ending[WEIGHT_NAME_BYTES];
    if (!part) return false;
    expert_weight_name(out, i, names->experts, 0, names->gate, ".weight");
    if (weights_has(l->weights, out)) return false;
    snprintf(ending, sizeof ending, ".%s", part);
    layer_weight_name(out, i, names->experts, ending);
    return weights_has(l->weights, out);
}

static enum status slice_stacked_experts(struct loader *l, uint32_t i, const char *gate_up_name,
                                         const struct expert_slices *out) {
    const struct decoder *d = l->decoder;
    uint32_t count = d->config->moe.num_experts, size = d->config->moe.intermediate_size;
    uint32_t hidden = d->config->hidden_size;
    uint32_t start = d->shape.expert_start, share = d->shape.expert_size;
    char down_name[WEIGHT_NAME_BYTES];
    struct weight gate_up, down;
    enum status status = loader_take_matrix(l, gate_up_name, count * 2 * size, hidden, &gate_up);
    if (status) return status;
    (void)stacked_name(l, i, d->table->expert_names->stacked_down, down_name);
    status = loader_take_matrix(l, down_name, count * hidden, size, &down);
    for (uint32_t e = 0; e < count && !status; e++) {
        out->gate[e] = loader_rows_of(&gate_up, 2 * e * size + start, share);
        out->up[e] = loader_rows_of(&gate_up, (2 * e + 1) * size + start, share);
        out->down[e] = loader_part_of(&down, e * hidden, hidden, start, share);
    }
    return status;
}

// `slices` holds EXPERT_SLICES of each expert.
static enum status load_experts(struct loader *l, uint32_t i, struct matrix_slice *slices,
                                struct experts **out) {
    const struct decoder *d = l->decoder;
    uint32_t count = d->config->moe.num_experts;
    struct matrix_slice *biases = slices + 3 * (size_t)count;
    const struct expert_slices all = {slices, slices + count, slices + 2 * (size_t)count,
                                      biases, biases + count, biases + 2 * (size_t)count};
    const struct layer *layer = &d->table->layers[i];
    char name[WEIGHT_NAME_BYTES];
    enum status status = stacked_name(l, i, d->table->expert_names->stacked_gate_up, name)
                             ? slice_stacked_experts(l, i, name, &all)
                             : slice_experts(l, i, &all);
    if (status) return status;
    const struct experts_shape shape = decoder_experts_shape(d->config, d->table, layer, &d->shape);
    // The sum over ranks has down's bias once.
    const struct experts_spec spec = {.shape = shape,
                                      .gate = shape.lacks_gate ? NULL : all.gate,
                                      .up = all.up,
                                      .down = all.down,
                                      .gate_bias = all.gate_bias,
                                      .up_bias = all.up_bias,
                                      .down_bias = d->comm->rank == 0 ? all.down_bias : NULL,
                                      .activation = layer->activation,
                                      .format = linear_formats_layer(&d->formats, i).experts};
    struct code_reader *readers = NULL;
    uint32_t num_gates = shape.lacks_gate ? 0 : count;
    status =
        code_readers_make(&readers, all.up - num_gates, 2 * count + num_gates, spec.format, l->err);
    if (!status) status = d->backend->moe->experts_create(d->backend, &spec, out, l->err);
    weights_release(l->weights);
    free(readers);
    return status;
}

// A number for each expert.
static enum status load_expert_numbers(struct loader *l, uint32_t i, const char *module,
                                       float **out) {
    const uint64_t shape[1] = {l->decoder->config->moe.num_experts};
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, i, module, "");
    float *values = NULL;
    enum status status = loader_read_floats(l, name, 1, shape, &values);
    if (!status) status = loader_to_device(l->decoder, values, shape[0], out, l->err);
    free(values);
    return status;
}

static enum status load_branches(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    uint32_t hidden = l->decoder->config->hidden_size;
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, i, ROUTER_NORM, "");
    enum status status =
        loader_load_norm(l, name, hidden, 1 / sqrtf((float)hidden), &layer->router_norm);
    return status ? status : load_expert_numbers(l, i, EXPERT_SCALES, &layer->expert_scales);
}

static enum status load_sparse_mlp(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct model_config *c = l->decoder->config;
    uint32_t count = c->moe.num_experts;
    const struct row_part part = {
        .module = l->decoder->table->expert_names->router, .rows = count, .count = count};
    const struct row_linear router = {&part, 1, linear_formats_router(), &layer->router};
    bool has_bias = l->decoder->table->layers[i].has_expert_bias;
    enum status status = loader_load_rows(l, i, &router, 1, c->hidden_size, has_bias);
    if (!status && l->decoder->table->expert_names->choice_bias) {
        status = load_expert_numbers(l, i, l->decoder->table->expert_names->choice_bias,
                                     &layer->choice_bias);
    }
    if (!status && l->decoder->table->layers[i].has_branches) status = load_branches(l, i, layer);
    if (!status && c->moe.shared_intermediate_size) status = load_shared_expert(l, i, layer);
    if (status) return status;
    struct matrix_slice *slices = calloc(count, EXPERT_SLICES * sizeof *slices);
    if (!slices) return err_nomem(l->err, "experts");
    status = load_experts(l, i, slices, &layer->experts);
    free(slices);
    return status;
}

// This rank's sinks.
static enum status load_sinks(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const uint64_t shape[1] = {d->config->num_heads};
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, i, SINKS_MODULE, "");
    float *values = NULL;
    enum status status = loader_read_floats(l, name, 1, shape, &values);
    if (status) return status;
    status = loader_to_device(l->decoder, values + d->shape.head_start, d->shape.num_heads,
                              &layer->sinks, l->err);
    free(values);
    return status;
}

static enum status load_scalar(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const uint64_t shape[1] = {1};
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, i, "layer_scalar", "");
    float *value = NULL;
    enum status status = loader_read_floats(l, name, 1, shape, &value);
    if (!status) layer->scalar = *value;
    free(value);
    return status;
}

// q, k, v and o, and the gates of attention's result.
static enum status load_attention(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct model_config *c = d->config;
    const struct decoder_shape *s = &d->shape;
    const struct layer *described = &d->table->layers[i];
    const struct layer_formats formats = linear_formats_layer(&d->formats, i);
    bool is_stacked = d->table->is_qkv_stacked, has_gate = described->has_output_gate;
    uint32_t dim = described->head_dim;
    struct head_rotation rotation = loader_rotation(d->table, described), none = {0};
    const char *gate_module = d->table->gate_module;
    uint32_t stride = has_gate && !gate_module ? 2 * dim : dim;
    uint32_t kv_heads = described->num_kv_heads;
    uint32_t q = c->num_heads * stride, kv = kv_heads * dim;
    uint32_t kv_start = loader_kv_head_start(d, described) * dim;
    uint32_t kv_count = layer_kv_heads(described, s->world_size) * dim;
    const char *const *modules = d->table->qkv_modules;
    struct row_part parts[] = {
        {modules[0], q, s->head_start * stride, s->num_heads * dim, dim, stride, rotation, 0},
        {modules[1], kv, kv_start, kv_count, dim, dim, rotation, 0},
        {modules[described->has_keys_as_values ? 1 : 2], kv, kv_start, kv_count, 0, 0, none, 0},
    };
    for (uint32_t k = 0, at = 0; is_stacked && k < ARRAY_LEN(parts); k++) {
        uint32_t rows = parts[k].rows;
        parts[k].module = d->table->stacked_qkv;
        parts[k].rows = q + 2 * kv;
        parts[k].start += at;
        at += rows;
    }
    struct row_part gate = parts[0];
    if (gate_module) {
        gate.module = gate_module;
    } else {
        gate.start += dim;
    }
    gate.rotation = none;
    bool has_kv = described->kv_source == KV_OWN;
    const struct row_linear linears[] = {{parts, has_kv ? 3 : 1, formats.qkv, &layer->qkv},
                                         {&gate, 1, formats.gates, &layer->gates}};
    const struct col_part o = {d->table->o_module,  c->hidden_size,     c->num_heads * dim,
                               s->head_start * dim, s->num_heads * dim, formats.o};
    enum status status =
        loader_load_rows(l, i, linears, has_gate ? 2 : 1, c->hidden_size, described->has_qkv_bias);
    if (!status) status = loader_load_cols(l, i, &o, described->has_o_bias, &layer->o);
    if (!status && !has_kv) status = layer_inputs_drop_keys(l, i);
    if (!status && has_kv && described->has_v_norm)
        status = norms_make_ones(l, dim, &layer->v_norm);
    return status || !described->has_sinks ? status : load_sinks(l, i, layer);
}

static enum status load_layer(struct loader *l, uint32_t i) {
    struct decoder_layer *layer = &l->decoder->layers[i];
    const struct layer *described = &l->decoder->table->layers[i];
    layer->scalar = 1;
    enum status status = norms_load(l, i, layer);
    if (!status && described->has_scalar) status = load_scalar(l, i, layer);
    if (!status) status = layer_inputs_load_layer(l, i);
    if (status) return status;
    switch (described->mixer) {
    case MIXER_SHORT_CONV:
        status = conv_load(l, i, layer);
        break;
    case MIXER_GATED_DELTA_NET:
        status = delta_load(l, i, layer);
        break;
    case MIXER_MAMBA:
        status = mamba_load(l, i, layer);
        break;
    case MIXER_LATENT_ATTENTION:
        status = latent_load(l, i, layer);
        break;
    case MIXER_ATTENTION:
        status = load_attention(l, i, layer);
        break;
    case MIXER_NONE:
        break;
    }
    if (!status && described->has_mamba) {
        status = mamba_load(l, i, layer);
    }
    if (!status) status = xielu_load(l, i, layer);
    if (status || described->lacks_mlp) return status;
    return described->is_sparse ? load_sparse_mlp(l, i, layer) : load_dense_mlp(l, i, layer);
}

static enum status load_ends(struct loader *l) {
    struct decoder *d = l->decoder;
    enum status status =
        loader_load_vocabulary(l, "model.embed_tokens", d->config->hidden_size, false,
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
            loader_load_vocabulary(l, "lm_head", d->config->hidden_size, d->table->has_lm_head_bias,
                                   linear_formats_lm_head(&d->formats), &d->lm_head);
    }
    if (!status) status = layer_inputs_load(l);
    if (status) return status;
    if (d->table->has_plain_norms) {
        return norms_make_ones(l, d->config->hidden_size, &d->final_norm);
    }
    return loader_load_hidden_norm(l, d->table->final_norm, d->table->logits_scale, &d->final_norm);
}

static enum status make_rope(struct decoder *d, uint32_t i, struct err *err) {
    const struct layer *layer = &d->table->layers[i];
    uint32_t num_positions = d->limits.max_positions;
    uint32_t dim = layer_rope_dim(layer);
    size_t count = (size_t)num_positions * dim;
    const struct rope_config *rope = layer_table_rope(d->table, i);
    bool scales_q = rope && rope->query_beta != 0;
    float *table = malloc((scales_q ? 2 : 1) * count * sizeof *table);
    if (!table) return err_nomem(err, "rotary embedding table");
    rope_fill_table(rope ? rope : d->table->ropes, dim, rope ? layer->rotary_dim : 0, num_positions,
                    table);
    if (scales_q) rope_scale_table(rope, dim, num_positions, table, table + count);
    enum status status =
        loader_to_device(d, table, (scales_q ? 2 : 1) * count, &d->layers[i].rope, err);
    d->layers[i].owns_rope = !status;
    if (!status && scales_q) d->layers[i].q_rope = d->layers[i].rope + count;
    free(table);
    return status;
}

static enum status make_ropes(struct decoder *d, struct err *err) {
    for (uint32_t i = 0; i < d->table->num_layers; i++) {
        if (!layer_attends(&d->table->layers[i])) continue;
        uint32_t first = layer_table_first_with_rope(d->table, i);
        enum status status = first == i ? make_rope(d, i, err) : OK;
        if (status) return status;
        d->layers[i].rope = d->layers[first].rope;
        d->layers[i].q_rope = d->layers[first].q_rope;
    }
    return OK;
}

static enum status make_workspace(struct decoder *d, struct err *err) {
    decoder_workspace_layout(&d->workspace, NULL, d->config, d->table, &d->shape, &d->limits,
                             d->backend);
    enum status status =
        d->backend->ops->alloc(d->backend, d->workspace.size_bytes, &d->workspace_memory, err);
    if (status) return status;
    decoder_workspace_layout(&d->workspace, d->workspace_memory, d->config, d->table, &d->shape,
                             &d->limits, d->backend);
    return OK;
}

static enum status make_states(struct decoder *d, struct err *err) {
    size_t rows = (size_t)d->limits.max_num_seqs + d->limits.num_snapshots,
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
        .num_kv_heads = layer_kv_heads(&d->table->layers[0], d->shape.world_size),
        .head_dim = d->table->layers[0].head_dim,
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
    if (d->backend->queue) {
        status = d->backend->queue->weights_finish(d->backend, options->spare_bytes, err);
    }
    if (status) goto fail;
    if ((status = make_ropes(d, err))) goto fail;
    if (d->table->scales_expert_inputs) {
        status = norms_make_ones(&loader, d->limits.max_num_tokens, &d->expert_ones);
        if (status) goto fail;
    }
    if ((status = make_workspace(d, err))) goto fail;
    if ((status = make_states(d, err))) goto fail;
    linear_order_tell(d);
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
        struct linear *const linears[] = {layer->qkv,
                                          layer->gates,
                                          layer->o,
                                          layer->mamba_in,
                                          layer->mamba_out,
                                          layer->query_latent,
                                          layer->query_nope,
                                          layer->query_rope,
                                          layer->shared_gate_up,
                                          layer->shared_down,
                                          layer->shared_gate,
                                          layer->input_gate,
                                          layer->input_projection,
                                          layer->gate_up,
                                          layer->down,
                                          layer->router};
        void *const vectors[] = {layer->input_end_norm,   layer->conv_taps,
                                 layer->delta.conv,       layer->delta.decay,
                                 layer->delta.dt_bias,    layer->delta.norm,
                                 layer->mamba.conv,       layer->mamba.conv_bias,
                                 layer->mamba.decay,      layer->mamba.dt_bias,
                                 layer->mamba.skip,       layer->mamba.norm,
                                 layer->choice_bias,      layer->expert_scales,
                                 layer->router_norm,      layer->experts_norm,
                                 layer->shared_post_norm, layer->experts_post_norm,
                                 layer->input_norm,       layer->mlp_norm,
                                 layer->input_post_norm,  layer->mlp_post_norm,
                                 layer->q_norm,           layer->k_norm,
                                 layer->v_norm,           layer->sinks};
        for (size_t k = 0; k < ARRAY_LEN(linears); k++) ops->linear_destroy(d->backend, linears[k]);
        for (size_t k = 0; k < ARRAY_LEN(vectors); k++) ops->release(d->backend, vectors[k]);
        if (layer->latent) d->backend->latent->destroy(d->backend, layer->latent);
        if (layer->experts) d->backend->moe->experts_destroy(d->backend, layer->experts);
        if (layer->owns_rope) ops->release(d->backend, layer->rope);
    }
    if (d->lm_head != d->embedding) ops->linear_destroy(d->backend, d->lm_head);
    ops->linear_destroy(d->backend, d->embedding);
    ops->linear_destroy(d->backend, d->layer_embedding);
    ops->linear_destroy(d->backend, d->layer_projection);
    ops->release(d->backend, d->layer_projection_norm);
    ops->release(d->backend, d->final_norm);
    ops->release(d->backend, d->expert_ones);
    ops->release(d->backend, d->workspace_memory);
    ops->release(d->backend, d->state_memory);
    free(d->layers);
    free(d);
}
