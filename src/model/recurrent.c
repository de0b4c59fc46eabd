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
                                               .scratch = d->workspace.delta_scratch,
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
