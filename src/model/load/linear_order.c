#include "model/load/linear_order.h"

#include "base/compiler.h"

// What runs before the next linear of a step: a linear, or experts.
struct behind {
    struct backend *backend;
    struct linear *linear;
    struct experts *experts;
};

static void then_linear(struct behind *behind, struct linear *linear) {
    const struct backend_ops *ops = behind->backend->ops;
    if (!linear) return;
    if (behind->experts) {
        behind->backend->moe->experts_set_next(behind->backend, behind->experts, linear);
    } else if (behind->linear) {
        ops->linear_set_next(behind->backend, behind->linear, linear);
    }
    behind->linear = linear;
    behind->experts = NULL;
}

// Before experts it is not known which of their weights are read.
void linear_order_tell(struct decoder *d) {
    struct behind behind = {.backend = d->backend};
    if (!d->backend->ops->linear_set_next) return;
    for (uint32_t i = 0; i < d->config->num_layers; i++) {
        const struct decoder_layer *layer = &d->layers[i];
        struct linear *early_gates = layer->mamba_in ? NULL : layer->gates;
        struct linear *late_gates = layer->mamba_in ? layer->gates : NULL;
        struct linear *const mixer[] = {layer->qkv,        early_gates,       layer->query_latent,
                                        layer->query_nope, layer->query_rope, layer->o,
                                        layer->mamba_in,   late_gates,        layer->mamba_out,
                                        layer->gate_up,    layer->down};
        struct linear *const shared[] = {layer->shared_gate_up, layer->shared_down,
                                         layer->shared_gate};
        bool has_branches = d->table->layers[i].has_branches; // the shared expert comes first
        for (size_t k = 0; k < ARRAY_LEN(mixer); k++) then_linear(&behind, mixer[k]);
        for (size_t k = 0; has_branches && k < ARRAY_LEN(shared); k++) {
            then_linear(&behind, shared[k]);
        }
        then_linear(&behind, layer->router);
        behind.experts = layer->experts;
        for (size_t k = 0; !has_branches && k < ARRAY_LEN(shared); k++) {
            then_linear(&behind, shared[k]);
        }
        then_linear(&behind, layer->input_gate);
        then_linear(&behind, layer->input_projection);
    }
}
