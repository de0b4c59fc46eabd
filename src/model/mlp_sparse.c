/* The MLP of a layer with experts. */
#include "model/mlp.h"

// x *= sigmoid(shared_gate(hidden)).
static void gate_shared_expert(struct pass *pass, uint32_t layer_index, void *x) {
    struct decoder *d = pass->d;
    const struct linear *gate = d->layers[layer_index].shared_gate;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t rows = pass->step->num_tokens;
    if (!gate) return;
    d->backend->ops->linear(
        d->backend,
        &(struct linear_args){.linear = gate, .x = w->hidden, .out = w->shared_gate, .rows = rows});
    d->backend->ops->sigmoid_mul(d->backend,
                                 &(struct sigmoid_mul_args){.x = x,
                                                            .gate = w->shared_gate,
                                                            .rows = rows,
                                                            .cols = d->config->hidden_size,
                                                            .gate_stride = SHARED_GATES,
                                                            .is_per_row = true});
}

// out = shared expert(hidden).
static void shared_mlp(struct pass *pass, uint32_t layer_index, void *out) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct backend_ops *ops = d->backend->ops;
    uint32_t rows = pass->step->num_tokens;
    const struct linear_args gate_up = {
        .linear = layer->shared_gate_up, .x = w->hidden, .out = w->shared_gate_up, .rows = rows};
    const struct linear_args down = {
        .linear = layer->shared_down, .x = w->shared_activated, .out = out, .rows = rows};
    enum activation activation = d->table->layers[layer_index].activation;
    if (d->table->expert_names->shared.gate) {
        ops->linear(d->backend, &gate_up);
        ops->silu_mul(d->backend, &(struct silu_mul_args){.gate_up = w->shared_gate_up,
                                                          .out = w->shared_activated,
                                                          .rows = rows,
                                                          .cols = d->shape.shared_size,
                                                          .activation = activation});
    } else {
        const struct linear_args up = {.linear = layer->shared_gate_up,
                                       .x = w->hidden,
                                       .out = w->shared_activated,
                                       .rows = rows};
        ops->linear(d->backend, &up);
        ops->activate(d->backend,
                      &(struct activate_args){.x = w->shared_activated,
                                              .count = (size_t)rows * d->shape.shared_size,
                                              .activation = activation});
    }
    ops->linear(d->backend, &down);
}

// projected += workspace.shared.
static void add_shared(struct pass *pass, void *projected) {
    struct decoder *d = pass->d;
    size_t count = (size_t)pass->step->num_tokens * d->config->hidden_size;
    d->backend->ops->scale(
        d->backend,
        &(struct scale_args){
            .x = d->workspace.shared, .out = projected, .count = count, .factor = 1, .adds = true});
}

static struct route_args route_args_of(const struct pass *pass, uint32_t layer_index,
                                       bool normalize) {
    const struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct moe_config *moe = &d->config->moe;
    return (struct route_args){.logits = w->router_logits,
                               .bias = layer->choice_bias,
                               .scales = layer->expert_scales,
                               .ids = w->expert_ids,
                               .weights = w->expert_weights,
                               .num_tokens = pass->step->num_tokens,
                               .num_experts = moe->num_experts,
                               .top_k = moe->num_experts_per_tok,
                               .num_groups = moe->num_groups,
                               .top_groups = moe->top_groups,
                               .group_best = moe->group_best,
                               .is_sigmoid = moe->is_sigmoid,
                               .normalize = normalize,
                               .factor = moe->weights_factor};
}

// Chooses the experts of each row of workspace.hidden.
static void route(struct pass *pass, uint32_t layer_index, bool normalize) {
    struct backend *backend = pass->d->backend;
    const struct route_args args = route_args_of(pass, layer_index, normalize);
    backend->ops->linear(backend,
                         &(struct linear_args){.linear = pass->d->layers[layer_index].router,
                                               .x = pass->d->workspace.hidden,
                                               .out = args.logits,
                                               .rows = args.num_tokens,
                                               .out_is_float = true});
    backend->moe->route(backend, &args);
}

// hidden = residual, where no norm is in front of the MLP.
static void take_residual(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    size_t count = (size_t)pass->step->num_tokens * d->config->hidden_size;
    compose_settle(pass);
    d->backend->ops->scale(
        d->backend,
        &(struct scale_args){.x = w->residual, .out = w->hidden, .count = count, .factor = 1});
}

// The norm in front of a layer's MLP, and the choice of experts.
static void norm_route(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    bool normalize = d->config->moe.norm_topk_prob;
    const struct norm_route_args args = {.router = layer->router,
                                         .norm = layer->mlp_norm,
                                         .residual = d->workspace.residual,
                                         .hidden = d->workspace.hidden,
                                         .route = route_args_of(pass, layer_index, normalize),
                                         .eps = d->config->rms_norm_eps};
    const struct backend_moe *moe = d->backend->moe;
    // An RMS norm of the residual alone.
    bool is_plain = layer->mlp_norm && !pass->has_unadded && !d->table->is_layer_norm;
    if (is_plain && moe->norm_route && moe->norm_route(d->backend, &args)) return;
    if (layer->mlp_norm) {
        compose_norm(pass, layer->mlp_norm);
    } else {
        take_residual(pass);
    }
    route(pass, layer_index, normalize);
}

// The op of the chosen experts of workspace.hidden, and of the shared one if the backend does it
// with them.
static struct experts_args experts_args_of(const struct pass *pass, uint32_t layer_index) {
    const struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct backend_moe *moe = d->backend->moe;
    struct experts_args args = {.experts = layer->experts,
                                .x = w->hidden,
                                .ids = w->expert_ids,
                                .weights = w->expert_weights,
                                .scratch = w->experts_scratch,
                                .num_tokens = pass->step->num_tokens,
                                .top_k = d->config->moe.num_experts_per_tok};
    if (!d->table->layers[layer_index].has_branches && layer->shared_down) {
        args.shared =
            (struct shared_expert){layer->shared_gate_up, layer->shared_down, layer->shared_gate};
    }
    bool takes_shared =
        args.shared.down && moe->takes_shared && moe->takes_shared(d->backend, &args);
    if (!takes_shared) args.shared = (struct shared_expert){0};
    return args;
}

// residual += norm(norm(shared expert(norm(residual))) + norm(experts(norm(residual)))). The router
// has a norm of its own too. A norm of a rank's part would be wrong, so each branch is summed.
static void branched_mlp(struct pass *pass, uint32_t layer_index) {
    const struct decoder_layer *layer = &pass->d->layers[layer_index];
    const struct decoder_workspace *w = &pass->d->workspace;
    compose_norm(pass, layer->mlp_norm);
    shared_mlp(pass, layer_index, compose_projected(pass));
    compose_norm_projected(pass, layer->shared_post_norm, w->shared);
    compose_norm(pass, layer->router_norm);
    route(pass, layer_index, pass->d->config->moe.norm_topk_prob);
    compose_norm(pass, layer->experts_norm);
    struct experts_args args = experts_args_of(pass, layer_index);
    args.out = compose_projected(pass);
    pass->d->backend->moe->experts(pass->d->backend, &args);
    compose_norm_projected(pass, layer->experts_post_norm, w->projected);
    add_shared(pass, w->projected);
    compose_add_whole(pass, &(struct block_end){layer->mlp_post_norm,
                                                pass->d->table->layers[layer_index].mlp_scale});
}

// The chosen expert reads hidden times its weight. Its result is added as it is, times 1.
static void scaled_mlp(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    compose_norm(pass, layer->mlp_norm);
    route(pass, layer_index, false);
    shared_mlp(pass, layer_index, w->shared); // it reads hidden as it is
    d->backend->ops->scale_rows(d->backend,
                                &(struct scale_rows_args){.x = w->hidden,
                                                          .factors = w->expert_weights,
                                                          .rows = pass->step->num_tokens,
                                                          .cols = d->config->hidden_size});
    struct experts_args args = experts_args_of(pass, layer_index);
    args.weights = d->expert_ones;
    args.shared = (struct shared_expert){0};
    args.out = compose_projected(pass);
    d->backend->moe->experts(d->backend, &args);
    add_shared(pass, args.out);
    compose_add_projected(pass, &(struct block_end){NULL, 1});
}

void mlp_sparse(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    if (d->table->scales_expert_inputs) {
        scaled_mlp(pass, layer_index);
        return;
    }
    if (d->table->layers[layer_index].has_branches) {
        branched_mlp(pass, layer_index);
        return;
    }
    const struct block_end end = {layer->mlp_post_norm, d->table->layers[layer_index].mlp_scale};
    const struct backend_moe *moe = d->backend->moe;
    norm_route(pass, layer_index);
    struct experts_args args = experts_args_of(pass, layer_index);
    bool is_all = !layer->shared_down || args.shared.down;
    if (is_all && compose_is_fused_out(pass, &end) && moe->adds_sums &&
        moe->adds_sums(d->backend, &args)) {
        args.out = d->workspace.residual;
        args.is_added = true;
        moe->experts(d->backend, &args);
        return;
    }
    args.out = compose_projected(pass);
    moe->experts(d->backend, &args);
    if (!is_all) {
        shared_mlp(pass, layer_index, d->workspace.shared);
        gate_shared_expert(pass, layer_index, d->workspace.shared);
        add_shared(pass, args.out);
    }
    compose_add_projected(pass, &end);
}

void mlp_sparse_add_to(struct pass *pass, uint32_t layer_index, void *sum) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    bool has_shared = d->layers[layer_index].shared_down;
    struct experts_args args = experts_args_of(pass, layer_index);
    args.shared = (struct shared_expert){0};
    args.out = w->projected;
    route(pass, layer_index, d->config->moe.norm_topk_prob);
    d->backend->moe->experts(d->backend, &args);
    if (has_shared) {
        shared_mlp(pass, layer_index, w->shared);
        gate_shared_expert(pass, layer_index, w->shared);
        add_shared(pass, w->projected);
    }
    d->backend->ops->scale(
        d->backend,
        &(struct scale_args){.x = w->projected,
                             .out = sum,
                             .count = (size_t)pass->step->num_tokens * d->config->hidden_size,
                             .factor = d->table->layers[layer_index].mlp_scale,
                             .adds = true});
}
