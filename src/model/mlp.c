#include "model/mlp.h"

// workspace.activated = activation(gate, up) or activation(up).
static void run_in(struct pass *pass, uint32_t layer_index, const struct linear *reader) {
    const struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct layer *described = &d->table->layers[layer_index];
    bool lacks_gate = layer_table_lacks_gate(d->table);
    uint32_t size = described->mlp_factor * d->shape.intermediate_size;
    compose_project_in(pass,
                       &(struct project_in){.linear = layer->gate_up,
                                            .norm = described->is_parallel ? NULL : layer->mlp_norm,
                                            .reads_hidden = described->is_parallel,
                                            .out = d->workspace.activated,
                                            .is_gated = !lacks_gate,
                                            .gated_size = size,
                                            .activation = described->activation,
                                            .reader = lacks_gate ? NULL : reader});
    if (!lacks_gate) return;
    d->backend->ops->activate(
        d->backend, &(struct activate_args){.x = d->workspace.activated,
                                            .count = (size_t)pass->step->num_tokens * size,
                                            .activation = described->activation,
                                            .positive = layer->xielu[0],
                                            .negative = layer->xielu[1]});
}

void mlp_dense(struct pass *pass, uint32_t layer_index) {
    const struct decoder_layer *layer = &pass->d->layers[layer_index];
    const struct block_end end = {layer->mlp_post_norm,
                                  pass->d->table->layers[layer_index].mlp_scale};
    run_in(pass, layer_index, compose_is_fused_out(pass, &end) ? layer->down : NULL);
    compose_project_out(pass, layer->down, pass->d->workspace.activated, &end);
}

void mlp_add_to(struct pass *pass, uint32_t layer_index, void *sum) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t rows = pass->step->num_tokens;
    run_in(pass, layer_index, NULL);
    d->backend->ops->linear(d->backend, &(struct linear_args){.linear = d->layers[layer_index].down,
                                                              .x = w->activated,
                                                              .out = w->projected,
                                                              .rows = rows});
    d->backend->ops->scale(d->backend,
                           &(struct scale_args){.x = w->projected,
                                                .out = sum,
                                                .count = (size_t)rows * d->config->hidden_size,
                                                .factor = 1,
                                                .adds = true});
}
