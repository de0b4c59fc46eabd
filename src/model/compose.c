#include "model/compose.h"

// The backend's fused ops. A backend without that group gets an empty one.
static const struct backend_fusion *fusion_of(const struct backend *backend) {
    static const struct backend_fusion none = {0};
    return backend->fusion ? backend->fusion : &none;
}

void compose_begin(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct backend_ops *ops = d->backend->ops;
    const struct backend_fusion *fusion = fusion_of(d->backend);
    pass->runs_layers =
        d->fused && fusion->takes_layers && fusion->takes_layers(d->fused, pass->cache, pass->step);
    if (pass->runs_layers || !ops->attention_begin) return;
    ops->attention_begin(d->backend, pass->cache, pass->step);
}

// Adds the ranks' partials, and norms the sum to workspace.hidden where `norm` is given.
static void reduce_add(struct pass *pass, const float *norm) {
    struct decoder *d = pass->d;
    comm_reduce_add(d->comm, d->backend,
                    &(struct reduce_add_args){.residual = d->workspace.residual,
                                              .norm = norm,
                                              .out = d->workspace.hidden,
                                              .rows = pass->step->num_tokens,
                                              .cols = d->config->hidden_size,
                                              .eps = d->config->rms_norm_eps,
                                              .is_first = pass->is_first});
    pass->has_unadded = pass->is_first = false;
}

static bool has_partials(const struct pass *pass) {
    return pass->has_unadded && pass->d->comm->world_size > 1;
}

void compose_run_norm(const struct decoder *d, const struct rms_norm_args *args) {
    if (!d->table->is_layer_norm) {
        d->backend->ops->rms_norm(d->backend, args);
        return;
    }
    d->backend->ops->layer_norm(
        d->backend, &(struct layer_norm_args){
                        .x = args->x,
                        .residual = args->residual,
                        .weight = args->weight,
                        .bias = d->table->has_norm_bias ? args->weight + args->cols : NULL,
                        .out = args->out,
                        .rows = args->rows,
                        .cols = args->cols,
                        .eps = args->eps});
}

void compose_norm(struct pass *pass, const float *weight) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    bool is_layer_norm = d->table->is_layer_norm;
    if (has_partials(pass)) {
        reduce_add(pass, is_layer_norm ? NULL : weight);
        if (!is_layer_norm) return;
    }
    compose_run_norm(d, &(struct rms_norm_args){.x = pass->has_unadded ? w->projected : w->residual,
                                                .residual = pass->has_unadded ? w->residual : NULL,
                                                .x_norm = pass->unadded_norm,
                                                .weight = weight,
                                                .out = w->hidden,
                                                .rows = pass->step->num_tokens,
                                                .cols = d->config->hidden_size,
                                                .eps = d->config->rms_norm_eps});
    pass->has_unadded = false;
    pass->unadded_norm = NULL;
}

// out = factor * x, or it is added to out.
static void scale(struct pass *pass, const void *x, void *out, float factor, bool adds) {
    struct decoder *d = pass->d;
    d->backend->ops->scale(
        d->backend,
        &(struct scale_args){.x = x,
                             .out = out,
                             .count = (size_t)pass->step->num_tokens * d->config->hidden_size,
                             .factor = factor,
                             .adds = adds});
}

// out = norm(workspace.projected).
static void norm_whole(struct pass *pass, const float *norm, void *out);

// Call it where no norm follows, because the next norm would add what is still to be added.
void compose_settle(struct pass *pass) {
    const struct decoder_workspace *w = &pass->d->workspace;
    if (has_partials(pass)) reduce_add(pass, NULL);
    if (pass->unadded_norm) norm_whole(pass, pass->unadded_norm, w->projected);
    if (pass->has_unadded) scale(pass, w->projected, w->residual, 1, true);
    pass->has_unadded = false;
    pass->unadded_norm = NULL;
}

void compose_project_in(struct pass *pass, const struct project_in *in) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    const struct backend_ops *ops = d->backend->ops;
    const struct linear *linear = in->linear;
    const float *norm = in->norm;
    uint32_t rows = pass->step->num_tokens;
    bool is_normed = has_partials(pass) || !norm, is_gated = in->is_gated;
    if (!norm) {
        compose_settle(pass);
    } else if (is_normed || pass->unadded_norm || d->table->is_layer_norm) {
        compose_norm(pass, norm);
        is_normed = true;
    }
    void *hidden = norm || in->reads_hidden ? w->hidden : w->residual, *out = in->out;
    const struct project_in_args fused = {
        .linear = linear,
        .residual = w->residual,
        .unadded = pass->has_unadded ? w->projected : NULL,
        .norm = is_normed ? NULL : norm,
        .out = out,
        .hidden = hidden,
        .gate_up = w->gate_up,
        .rows = rows,
        .is_gated = is_gated,
        .activation = in->activation,
        .reader = in->reader,
        .eps = d->config->rms_norm_eps,
    };
    const struct backend_fusion *fusion = fusion_of(d->backend);
    if (fusion->project_in && fusion->project_in(d->backend, &fused)) {
        pass->has_unadded = false;
        return;
    }
    if (!is_normed) compose_norm(pass, norm);
    ops->linear(d->backend, &(struct linear_args){.linear = linear,
                                                  .x = hidden,
                                                  .out = is_gated ? w->gate_up : out,
                                                  .rows = rows});
    if (!is_gated) return;
    ops->silu_mul(d->backend, &(struct silu_mul_args){.gate_up = w->gate_up,
                                                      .out = out,
                                                      .rows = rows,
                                                      .cols = in->gated_size,
                                                      .activation = in->activation});
}

// With several ranks the result is one part of a sum, which comm adds to the residual.
bool compose_is_fused_out(const struct pass *pass, const struct block_end *end) {
    return pass->d->comm->world_size == 1 && !end->norm && end->factor == 1;
}

void compose_project_out(struct pass *pass, const struct linear *linear, const void *x,
                         const struct block_end *end) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t rows = pass->step->num_tokens;
    const struct project_out_args fused = {
        .linear = linear, .x = x, .residual = w->residual, .projected = w->projected, .rows = rows};
    bool is_whole = compose_is_fused_out(pass, end);
    const struct backend_fusion *fusion = fusion_of(d->backend);
    if (is_whole && fusion->project_out && fusion->project_out(d->backend, &fused)) return;
    d->backend->ops->linear(
        d->backend, &(struct linear_args){
                        .linear = linear, .x = x, .out = compose_projected(pass), .rows = rows});
    compose_add_projected(pass, end);
}

void *compose_projected(struct pass *pass) {
    struct decoder *d = pass->d;
    return d->comm->world_size == 1 ? d->workspace.projected : comm_partial(d->comm);
}

// Sums the ranks' partials into workspace.projected, without the residual.
static void reduce_projected(struct pass *pass) {
    struct decoder *d = pass->d;
    comm_reduce_add(d->comm, d->backend,
                    &(struct reduce_add_args){.residual = d->workspace.projected,
                                              .rows = pass->step->num_tokens,
                                              .cols = d->config->hidden_size,
                                              .eps = d->config->rms_norm_eps,
                                              .is_first = true});
}

static void norm_whole(struct pass *pass, const float *norm, void *out) {
    struct decoder *d = pass->d;
    d->backend->ops->rms_norm(d->backend, &(struct rms_norm_args){.x = d->workspace.projected,
                                                                  .weight = norm,
                                                                  .out = out,
                                                                  .rows = pass->step->num_tokens,
                                                                  .cols = d->config->hidden_size,
                                                                  .eps = d->config->rms_norm_eps});
}

void compose_norm_projected(struct pass *pass, const float *norm, void *out) {
    if (pass->d->comm->world_size > 1) reduce_projected(pass);
    norm_whole(pass, norm, out);
}

void compose_sum_wide(struct pass *pass, void *x, uint32_t cols) {
    struct decoder *d = pass->d;
    uint32_t hidden = d->config->hidden_size, most = d->limits.max_num_tokens;
    size_t row_bytes = hidden * dtype_size(d->backend->activation_dtype);
    size_t rows = ((size_t)pass->step->num_tokens * cols + hidden - 1) / hidden;
    for (size_t start = 0; start < rows; start += most) {
        uint32_t len = rows - start < most ? (uint32_t)(rows - start) : most;
        void *piece = (char *)x + start * row_bytes, *part = comm_partial(d->comm);
        d->backend->ops->scale(
            d->backend, &(struct scale_args){
                            .x = piece, .out = part, .count = (size_t)len * hidden, .factor = 1});
        comm_reduce_add(d->comm, d->backend,
                        &(struct reduce_add_args){
                            .residual = piece, .rows = len, .cols = hidden, .is_first = true});
    }
}

// A sum over ranks has rows of hidden_size, of which the last is filled up.
void compose_cut_norm(struct pass *pass, const struct cut_norm_args *args) {
    struct decoder *d = pass->d;
    struct comm *comm = d->comm;
    uint32_t cols = d->config->hidden_size;
    size_t used = (size_t)args->rows * comm->world_size * CUT_NORM_SUMS;
    uint32_t sum_rows = (uint32_t)((used + cols - 1) / cols);
    struct cut_norm_args whole = *args;
    whole.sums = comm_partial(comm);
    whole.count = (size_t)sum_rows * cols;
    whole.rank = comm->rank;
    whole.world_size = comm->world_size;
    d->backend->ops->square_sums(d->backend, &whole);
    whole.sums = d->workspace.hidden;
    comm_reduce_add(comm, d->backend,
                    &(struct reduce_add_args){.residual = whole.sums,
                                              .rows = sum_rows,
                                              .cols = cols,
                                              .eps = args->eps,
                                              .is_first = true});
    d->backend->ops->cut_norm(d->backend, &whole);
}

void compose_add_whole(struct pass *pass, const struct block_end *end) {
    const struct decoder_workspace *w = &pass->d->workspace;
    bool is_next = fusion_of(pass->d->backend)->norms_sums && end->factor == 1;
    if (is_next && pass->d->comm->world_size == 1) { // the next norm does it
        pass->has_unadded = true;
        pass->unadded_norm = end->norm;
        return;
    }
    norm_whole(pass, end->norm, w->projected);
    scale(pass, w->projected, w->residual, end->factor, true);
}

void compose_add_projected(struct pass *pass, const struct block_end *end) {
    struct decoder *d = pass->d;
    void *projected = compose_projected(pass);
    if (pass->is_alone) return;
    if (!end->norm) {
        if (end->factor != 1) scale(pass, projected, projected, end->factor, false);
        pass->has_unadded = true;
        return;
    }
    if (d->comm->world_size > 1) reduce_projected(pass);
    compose_add_whole(pass, end);
}

void compose_scale_embeddings(struct pass *pass, void *embeddings) {
    float factor = pass->d->table->embedding_scale;
    if (factor != 1) scale(pass, embeddings, embeddings, factor, false);
}

void compose_norm_embeddings(struct pass *pass) {
    struct decoder *d = pass->d;
    if (!d->table->norms_embeddings) return;
    compose_settle(pass);
    compose_run_norm(d, &(struct rms_norm_args){.x = d->workspace.residual,
                                                .weight = d->final_norm,
                                                .out = d->workspace.residual,
                                                .rows = pass->step->num_tokens,
                                                .cols = d->config->hidden_size,
                                                .eps = d->config->rms_norm_eps});
}

void compose_scale_residual(struct pass *pass, float factor) {
    void *residual = pass->d->workspace.residual;
    if (factor == 1) return;
    compose_settle(pass);
    scale(pass, residual, residual, factor, false);
}

void compose_end(struct pass *pass) {
    const struct decoder *d = pass->d;
    if (has_partials(pass)) reduce_add(pass, NULL);
    if (pass->unadded_norm) compose_settle(pass);
    if (d->backend->ops->layers_end) d->backend->ops->layers_end(d->backend, pass->step);
}

void compose_attend(const struct pass *pass, const struct attention_args *args) {
    struct backend *backend = pass->d->backend;
    const struct backend_fusion *fusion = fusion_of(backend);
    if (fusion->attend && fusion->attend(backend, args)) return;
    backend->ops->attention_prepare(backend, args);
    backend->ops->attention(backend, args);
}

bool compose_layers(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    if (!pass->runs_layers) return false;
    if (has_partials(pass)) reduce_add(pass, NULL);
    d->backend->fusion->layers(d->backend, d->fused,
                               &(struct layers_args){
                                   .step = pass->step,
                                   .cache = pass->cache,
                                   .residual = w->residual,
                                   .qkv = w->qkv,
                                   .attended = w->attended,
                                   .activated = w->activated,
                                   .rope = d->layers[0].rope,
                                   .scale = d->table->layers[0].query_scale,
                               });
    return true;
}
