#include "model/recurrent.h"

void recurrent_gated_delta(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct delta_weights *delta = &layer->delta;
    d->backend->recurrent->gated_delta(
        d->backend, &(struct gated_delta_args){.step = pass->step,
                                               .states = layer->states,
                                               .shape = d->shape.delta,
                                               .qkvz = d->workspace.qkv,
                                               .gates = d->workspace.gates,
                                               .out = d->workspace.attended,
                                               .conv = delta->conv,
                                               .decay = delta->decay,
                                               .dt_bias = delta->dt_bias,
                                               .norm = delta->norm,
                                               .scratch = d->workspace.state_scratch,
                                               .eps = d->config->rms_norm_eps});
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
    norm_groups(pass, mamba->norm);
}
