#include "model/recurrent.h"

static struct gated_delta_args args_of(const struct pass *pass, uint32_t layer_index) {
    const struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct delta_weights *delta = &layer->delta;
    struct gated_delta_args args = {.step = pass->step,
                                    .states = layer->states,
                                    .shape = d->shape.delta,
                                    .qkvz = w->qkv,
                                    .gates_linear = layer->gates,
                                    .residual = w->residual,
                                    .input_norm = layer->input_norm,
                                    .out = w->attended,
                                    .conv = delta->conv,
                                    .decay = delta->decay,
                                    .dt_bias = delta->dt_bias,
                                    .norm = delta->norm,
                                    .scratch = w->state_scratch,
                                    .eps = d->config->rms_norm_eps};
    const struct backend_recurrent *ops = d->backend->recurrent;
    bool computes = ops->computes_gates && ops->computes_gates(d->backend, &args);
    if (!computes) args.gates = w->gates;
    return args;
}

bool recurrent_computes_gates(const struct pass *pass, uint32_t layer_index) {
    return !args_of(pass, layer_index).gates;
}

void recurrent_gated_delta(struct pass *pass, uint32_t layer_index) {
    const struct gated_delta_args args = args_of(pass, layer_index);
    pass->d->backend->recurrent->gated_delta(pass->d->backend, &args);
}

void recurrent_short_conv(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    d->backend->recurrent->short_conv(d->backend,
                                      &(struct short_conv_args){.step = pass->step,
                                                                .states = layer->states,
                                                                .bcx = d->workspace.qkv,
                                                                .taps = layer->conv_taps,
                                                                .out = d->workspace.attended,
                                                                .channels = d->shape.conv_size});
}

// The norm of each group. A rank that has a part of the only group norms it with the others.
static void norm_groups(struct pass *pass, const float *weight) {
    struct decoder *d = pass->d;
    const struct mamba_shape *shape = &d->shape.mamba;
    uint32_t cols = shape->num_heads * shape->head_dim, rows = pass->step->num_tokens;
    void *x = d->workspace.attended;
    if (shape->num_heads * d->table->mamba.num_groups !=
        d->table->mamba.num_heads * shape->num_groups) {
        compose_cut_norm(pass, &(struct cut_norm_args){.x = x,
                                                       .rows = rows,
                                                       .stride = cols,
                                                       .cols = {cols},
                                                       .weights = {weight},
                                                       .eps = d->config->rms_norm_eps});
        return;
    }
    d->backend->ops->rms_norm(d->backend, &(struct rms_norm_args){.x = x,
                                                                  .weight = weight,
                                                                  .out = x,
                                                                  .rows = rows,
                                                                  .cols = cols / shape->num_groups,
                                                                  .eps = d->config->rms_norm_eps,
                                                                  .stride = cols,
                                                                  .groups = shape->num_groups,
                                                                  .has_group_weights = true});
}

void recurrent_mamba(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct mamba_weights *mamba = &layer->mamba;
    d->backend->recurrent->mamba(d->backend,
                                 &(struct mamba_args){.step = pass->step,
                                                      .states = layer->states,
                                                      .shape = d->shape.mamba,
                                                      .xbcz = d->workspace.qkv,
                                                      .dt = d->workspace.gates,
                                                      .out = d->workspace.attended,
                                                      .conv = mamba->conv,
                                                      .conv_bias = mamba->conv_bias,
                                                      .decay = mamba->decay,
                                                      .dt_bias = mamba->dt_bias,
                                                      .skip = mamba->skip,
                                                      .scratch = d->workspace.state_scratch,
                                                      .dt_min = d->table->mamba.dt_min,
                                                      .dt_max = d->table->mamba.dt_max});
    if (mamba->norm) norm_groups(pass, mamba->norm);
}
