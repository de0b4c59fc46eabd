/* The forward pass. Families and ranks differ only in data: the table of layers, norms that are
 * NULL, slices. */
#include <math.h>

#include "base/check.h"
#include "model/compose.h"
#include "model/latent.h"
#include "model/mlp.h"
#include "model/recurrent.h"

// Norms q and k of a token over all heads, in place.
static void norm_rows(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    uint32_t dim = d->table->layers[layer_index].head_dim;
    uint32_t q = d->shape.num_heads * dim;
    uint32_t k = layer_kv_heads(&d->table->layers[layer_index], d->shape.world_size) * dim;
    char *keys = (char *)d->workspace.qkv + q * dtype_size(d->backend->activation_dtype);
    const struct {
        void *x;
        const float *weight;
        uint32_t cols;
    } parts[] = {{d->workspace.qkv, layer->q_norm, q}, {keys, layer->k_norm, k}};
    if (d->comm->world_size > 1) {
        compose_cut_norm(pass, &(struct cut_norm_args){.x = d->workspace.qkv,
                                                       .rows = pass->step->num_tokens,
                                                       .stride = q + 2 * k,
                                                       .cols = {q, k},
                                                       .weights = {layer->q_norm, layer->k_norm},
                                                       .eps = d->config->rms_norm_eps});
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        d->backend->ops->rms_norm(d->backend,
                                  &(struct rms_norm_args){.x = parts[i].x,
                                                          .weight = parts[i].weight,
                                                          .out = parts[i].x,
                                                          .rows = pass->step->num_tokens,
                                                          .cols = parts[i].cols,
                                                          .eps = d->config->rms_norm_eps,
                                                          .stride = q + 2 * k});
    }
}

// Norms each head of q and of k by weights of its own, in place.
static void norm_own_heads(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct layer *layer = &d->table->layers[layer_index];
    uint32_t dim = layer->head_dim, kv_heads = layer_kv_heads(layer, d->shape.world_size);
    d->backend->ops->layer_norm(
        d->backend, &(struct layer_norm_args){.x = d->workspace.qkv,
                                              .weight = d->layers[layer_index].q_norm,
                                              .out = d->workspace.qkv,
                                              .rows = pass->step->num_tokens,
                                              .cols = dim,
                                              .groups = d->shape.num_heads + kv_heads,
                                              .stride = (d->shape.num_heads + 2 * kv_heads) * dim,
                                              .eps = d->config->rms_norm_eps});
}

// Norms each head of v, in place.
static void norm_values(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct layer *layer = &d->table->layers[layer_index];
    uint32_t dim = layer->head_dim, kv_heads = layer_kv_heads(layer, d->shape.world_size);
    uint32_t before = (d->shape.num_heads + kv_heads) * dim;
    char *values = (char *)d->workspace.qkv + before * dtype_size(d->backend->activation_dtype);
    d->backend->ops->rms_norm(d->backend,
                              &(struct rms_norm_args){.x = values,
                                                      .weight = d->layers[layer_index].v_norm,
                                                      .out = values,
                                                      .rows = pass->step->num_tokens,
                                                      .cols = dim,
                                                      .eps = d->config->rms_norm_eps,
                                                      .stride = before + kv_heads * dim,
                                                      .groups = kv_heads});
}

static void softmax_attention(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct layer *described = &d->table->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    bool norms_each = described->head_norm == HEAD_NORM_EACH;
    if (described->head_norm == HEAD_NORM_ROW) norm_rows(pass, layer_index);
    if (described->head_norm == HEAD_NORM_OWN) norm_own_heads(pass, layer_index);
    if (layer->v_norm) norm_values(pass, layer_index); // of keys and values of its own
    compose_attend(pass, &(struct attention_args){
                             .step = pass->step,
                             .cache = pass->cache,
                             .layer = described->kv_index,
                             .kv_group = described->kv_group,
                             .window = described->window,
                             .is_chunked = d->table->is_chunked && described->window,
                             .num_heads = d->shape.num_heads,
                             .place = described->kv_place,
                             .num_kv_heads = layer_kv_heads(described, d->shape.world_size),
                             .head_dim = described->head_dim,
                             .reads_kv = described->kv_source != KV_OWN,
                             .qkv = w->qkv,
                             .out = w->attended,
                             .q_norm = norms_each ? layer->q_norm : NULL,
                             .k_norm = norms_each ? layer->k_norm : NULL,
                             .has_norm_after_rope = described->has_norm_after_rope,
                             .rope = layer->rope,
                             .q_rope = layer->q_rope,
                             .eps = d->config->rms_norm_eps,
                             .scale = described->query_scale,
                             .softcap = described->softcap,
                             .sinks = layer->sinks,
                         });
}

// What attention, or what takes its place, reads: linears of the normed residual.
static void project_mixer(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    if (layer->latent) {
        latent_project(pass, layer_index);
        return;
    }
    bool is_delta = d->table->layers[layer_index].mixer == MIXER_GATED_DELTA_NET;
    bool has_gates = layer->gates && !(is_delta && recurrent_computes_gates(pass, layer_index));
    if (!has_gates && !d->table->layers[layer_index].is_parallel) {
        compose_project_in(
            pass,
            &(struct project_in){.linear = layer->qkv, .norm = layer->input_norm, .out = w->qkv});
        return;
    }
    compose_norm(pass, layer->input_norm);
    const struct linear_args all[] = {
        {.linear = layer->qkv, .x = w->hidden, .out = w->qkv, .rows = pass->step->num_tokens},
        {.linear = layer->gates,
         .x = w->hidden,
         .out = w->gates,
         .rows = pass->step->num_tokens,
         .out_is_float = !layer_attends(&d->table->layers[layer_index])},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i].linear) d->backend->ops->linear(d->backend, &all[i]);
    }
}

static void mix(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct layer *described = &d->table->layers[layer_index];
    switch (described->mixer) {
    case MIXER_SHORT_CONV:
        recurrent_short_conv(pass, layer_index);
        return;
    case MIXER_GATED_DELTA_NET:
        recurrent_gated_delta(pass, layer_index);
        return;
    case MIXER_MAMBA:
        recurrent_mamba(pass, layer_index);
        return;
    case MIXER_LATENT_ATTENTION:
        latent_attend(pass, layer_index);
        return;
    case MIXER_ATTENTION:
        softmax_attention(pass, layer_index);
        break;
    case MIXER_NONE:
        return;
    }
    if (!described->has_output_gate) return;
    uint32_t cols = d->shape.num_heads * described->head_dim;
    d->backend->ops->sigmoid_mul(d->backend,
                                 &(struct sigmoid_mul_args){.x = d->workspace.attended,
                                                            .gate = d->workspace.gates,
                                                            .rows = pass->step->num_tokens,
                                                            .cols = cols,
                                                            .gate_stride = cols});
}

static bool is_sparse(const struct decoder *d, uint32_t i) {
    return d->layers[i].experts != NULL;
}

// Attention and MLP, or experts, of the same normed residual. Several ranks sum both results at
// once.
static void parallel_block(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct linear *o = d->layers[layer_index].o;
    const struct block_end end = {NULL, d->table->layers[layer_index].residual_scale};
    const void *attended = d->workspace.attended;
    project_mixer(pass, layer_index);
    mix(pass, layer_index);
    if (d->comm->world_size == 1) {
        compose_project_out(pass, o, attended, &end);
        if (!is_sparse(d, layer_index)) {
            mlp_dense(pass, layer_index);
            return;
        }
        compose_settle(pass);
        mlp_sparse_add_to(pass, layer_index, d->workspace.residual);
        return;
    }
    void *sum = compose_projected(pass);
    d->backend->ops->linear(
        d->backend, &(struct linear_args){
                        .linear = o, .x = attended, .out = sum, .rows = pass->step->num_tokens});
    if (is_sparse(d, layer_index)) {
        mlp_sparse_add_to(pass, layer_index, sum);
    } else {
        mlp_add_to(pass, layer_index, sum);
    }
    compose_add_projected(pass, &end);
}

// Several ranks: what comes of Mamba-2, and workspace.projected, which comes of attention.
static void add_to_sum(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct layer *described = &d->table->layers[layer_index];
    uint32_t rows = pass->step->num_tokens;
    size_t count = (size_t)rows * d->config->hidden_size;
    void *sum = compose_projected(pass);
    d->backend->ops->linear(d->backend,
                            &(struct linear_args){.linear = d->layers[layer_index].mamba_out,
                                                  .x = d->workspace.attended,
                                                  .out = sum,
                                                  .rows = rows});
    const struct scale_args scales[] = {
        {.x = sum, .out = sum, .count = count, .factor = described->mamba_scale},
        {.x = d->workspace.projected,
         .out = sum,
         .count = count,
         .factor = described->residual_scale,
         .adds = true},
    };
    for (size_t i = 0; i < ARRAY_LEN(scales); i++) d->backend->ops->scale(d->backend, &scales[i]);
    compose_add_projected(pass, &(struct block_end){NULL, 1});
}

// Attention and Mamba-2 of the same normed residual. Several ranks sum both results at once. With
// `mixes` false only the linears run.
static void hybrid_block(struct pass *pass, uint32_t layer_index, bool mixes) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct layer *described = &d->table->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct block_end end = {NULL, described->residual_scale};
    const struct block_end mamba_end = {NULL, described->mamba_scale};
    uint32_t rows = pass->step->num_tokens;
    bool is_whole = d->comm->world_size == 1;
    const struct linear_args all[] = {
        {.linear = layer->qkv, .x = w->hidden, .out = w->qkv, .rows = rows},
        {.linear = layer->o, .x = w->attended, .out = w->projected, .rows = rows},
        {.linear = layer->mamba_in, .x = w->hidden, .out = w->qkv, .rows = rows},
        {.linear = layer->gates,
         .x = w->hidden,
         .out = w->gates,
         .rows = rows,
         .out_is_float = true},
    };
    compose_norm(pass, layer->input_norm);
    d->backend->ops->linear(d->backend, &all[0]);
    if (mixes) softmax_attention(pass, layer_index);
    if (is_whole) {
        compose_project_out(pass, layer->o, w->attended, &end);
        compose_settle(pass);
    } else {
        d->backend->ops->linear(d->backend, &all[1]);
    }
    for (int i = 2; i < 4; i++) d->backend->ops->linear(d->backend, &all[i]);
    if (mixes) recurrent_mamba(pass, layer_index);
    if (is_whole) {
        compose_project_out(pass, layer->mamba_out, w->attended, &mamba_end);
        return;
    }
    add_to_sum(pass, layer_index);
}

static void attention_block(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct layer *described = &d->table->layers[layer_index];
    project_mixer(pass, layer_index);
    mix(pass, layer_index);
    compose_project_out(pass, layer->o, w->attended,
                        &(struct block_end){layer->input_post_norm, described->residual_scale});
}

static void gather(struct decoder *d, const int32_t *index, uint32_t rows, const void *x,
                   void *out) {
    d->backend->ops->gather_rows(
        d->backend,
        &(struct gather_rows_args){
            .x = x, .index = index, .out = out, .rows = rows, .cols = d->config->hidden_size});
}

// This rank's columns of the logits.
static const float *project_logits(struct decoder *d, uint32_t rows) {
    const struct decoder_workspace *w = &d->workspace;
    float *logits = d->comm->world_size == 1 ? w->logits : comm_logits(d->comm);
    d->backend->ops->linear(d->backend, &(struct linear_args){.linear = d->lm_head,
                                                              .x = w->last_hidden,
                                                              .out = logits,
                                                              .rows = rows,
                                                              .out_is_float = true});
    if (d->table->logits_softcap != 0) {
        d->backend->ops->softcap(d->backend,
                                 &(struct softcap_args){.x = logits,
                                                        .count = (size_t)rows * d->shape.vocab_size,
                                                        .cap = d->table->logits_softcap});
    }
    return logits;
}

const void *decoder_hidden(struct decoder *d, const int32_t *index, uint32_t rows) {
    const struct decoder_workspace *w = &d->workspace;
    CHECK(rows > 0 && rows <= d->limits.max_num_seqs, "rows=%u", rows);
    const void *last = w->last_residual;
    if (rows == d->num_rows && !d->has_unadded) {
        last = w->residual; // every row, in order
    } else {
        gather(d, index, rows, w->residual, w->last_residual);
    }
    if (d->has_unadded) gather(d, index, rows, w->projected, w->last_projected);
    compose_run_norm(d,
                     &(struct rms_norm_args){.x = d->has_unadded ? w->last_projected : last,
                                             .residual = d->has_unadded ? w->last_residual : NULL,
                                             .weight = d->final_norm,
                                             .out = w->last_hidden,
                                             .rows = rows,
                                             .cols = d->config->hidden_size,
                                             .eps = d->config->rms_norm_eps});
    return w->last_hidden;
}

// The last norm and lm_head run only on the rows that are wanted.
const float *decoder_logits(struct decoder *d, const int32_t *index, uint32_t rows) {
    (void)decoder_hidden(d, index, rows);
    return project_logits(d, rows);
}

// Whether what comes before two layers' MLPs takes the same kernels.
static bool mix_alike(const struct decoder *d, uint32_t i, uint32_t k) {
    const struct layer *a = &d->table->layers[i], *b = &d->table->layers[k];
    return a->mixer == b->mixer && a->has_mamba == b->has_mamba && a->head_dim == b->head_dim &&
           a->num_kv_heads == b->num_kv_heads && a->kv_source == b->kv_source &&
           a->mlp_factor == b->mlp_factor;
}

void decoder_warm_up_linears(struct decoder *d, uint32_t rows) {
    CHECK(rows > 0 && rows <= d->limits.max_num_tokens, "rows=%u", rows);
    const struct step step = {.num_tokens = rows};
    const struct decoder_workspace *w = &d->workspace;
    bool is_mlp_done = false;
    for (uint32_t i = 0; i < d->config->num_layers; i++) {
        const struct decoder_layer *layer = &d->layers[i];
        struct pass pass = {.d = d, .step = &step, .is_alone = true};
        uint32_t alike = 0;
        while (alike < i && !mix_alike(d, i, alike)) alike++;
        if (alike == i && layer->mamba_in) {
            hybrid_block(&pass, i, false);
        } else if (alike == i && layer->qkv) { // none before it
            project_mixer(&pass, i);
            compose_project_out(
                &pass, layer->o, w->attended,
                &(struct block_end){layer->input_post_norm, d->table->layers[i].residual_scale});
        }
        if (!layer->down || is_mlp_done) continue;
        mlp_dense(&pass, i);
        is_mlp_done = true; // all dense layers have the same shapes
    }
    project_logits(d, rows < d->limits.max_num_seqs ? rows : d->limits.max_num_seqs);
}

// Tokens of other ranks give zeros here. The sum over ranks then has every token's embedding.
static void embed(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct step *step = pass->step;
    bool is_whole = d->comm->world_size == 1;
    void *out = is_whole ? d->workspace.residual : comm_partial(d->comm);
    d->backend->ops->embed(d->backend,
                           &(struct embed_args){.step = step,
                                                .table = d->embedding,
                                                .vocab_start = (int32_t)d->shape.vocab_start,
                                                .out = out});
    compose_scale_embeddings(pass, out);
    pass->has_unadded = pass->is_first = !is_whole;
    compose_norm_embeddings(pass);
}

// How many layers before layer `i` take the same kernels.
static uint32_t num_alike(const struct decoder *d, uint32_t i) {
    uint32_t num = 0;
    for (uint32_t k = 0; k < i; k++) {
        num += mix_alike(d, i, k) && is_sparse(d, i) == is_sparse(d, k);
    }
    return num;
}

// A token's row of the second embedding, of which a rank has the tokens of its vocabulary.
static void embed_layer_inputs(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct embed_args args = {.step = pass->step,
                                    .table = d->layer_embedding,
                                    .vocab_start = (int32_t)d->shape.vocab_start,
                                    .out = d->workspace.layer_inputs};
    d->backend->ops->embed(d->backend, &args);
    if (d->comm->world_size > 1) {
        compose_sum_wide(pass, args.out, d->table->num_layers * d->table->layer_input_size);
    }
}

// A token's inputs of the layers: (norm(W embedding / sqrt(hidden)) + sqrt(size) * its row of the
// table) / sqrt(2). The norm's weights have the last factor.
static void make_layer_inputs(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    const struct backend_ops *ops = d->backend->ops;
    uint32_t rows = pass->step->num_tokens, size = d->table->layer_input_size;
    uint32_t num_layers = d->table->num_layers;
    size_t count = (size_t)rows * num_layers * size;
    if (!size) return;
    compose_settle(pass); // several ranks: the embeddings
    embed_layer_inputs(pass);
    ops->scale(d->backend, &(struct scale_args){.x = w->layer_inputs,
                                                .out = w->layer_inputs,
                                                .count = count,
                                                .factor = sqrtf((float)size / 2)});
    ops->linear(d->backend, &(struct linear_args){.linear = d->layer_projection,
                                                  .x = w->residual,
                                                  .out = w->layer_projections,
                                                  .rows = rows});
    ops->scale(d->backend,
               &(struct scale_args){.x = w->layer_projections,
                                    .out = w->layer_projections,
                                    .count = count,
                                    .factor = 1 / sqrtf((float)d->config->hidden_size)});
    ops->rms_norm(d->backend, &(struct rms_norm_args){.x = w->layer_projections,
                                                      .weight = d->layer_projection_norm,
                                                      .out = w->layer_projections,
                                                      .rows = rows,
                                                      .cols = size,
                                                      .eps = d->config->rms_norm_eps,
                                                      .stride = num_layers * size,
                                                      .groups = num_layers});
    ops->scale(d->backend, &(struct scale_args){.x = w->layer_projections,
                                                .out = w->layer_inputs,
                                                .count = count,
                                                .factor = 1,
                                                .adds = true});
}

// residual += norm(W2(gelu(W1 residual) * input)), by every rank: the matrices are small.
static void add_layer_input(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    uint32_t rows = pass->step->num_tokens, size = d->table->layer_input_size;
    size_t offset = (size_t)layer_index * size * dtype_size(d->backend->activation_dtype);
    compose_project_in(pass,
                       &(struct project_in){.linear = layer->input_gate, .out = w->layer_gate});
    d->backend->ops->gelu_mul(d->backend,
                              &(struct gelu_mul_args){.gate = w->layer_gate,
                                                      .up = (const char *)w->layer_inputs + offset,
                                                      .out = w->layer_gated,
                                                      .rows = rows,
                                                      .cols = size,
                                                      .up_stride = d->table->num_layers * size});
    d->backend->ops->linear(d->backend, &(struct linear_args){.linear = layer->input_projection,
                                                              .x = w->layer_gated,
                                                              .out = w->projected,
                                                              .rows = rows});
    compose_add_whole(pass, &(struct block_end){layer->input_end_norm, 1});
}

// Runs the layers, but at most `most_of_a_kind` that take the same kernels: the warm-up runs few.
static void run_layers(struct pass *pass, uint32_t most_of_a_kind) {
    const struct decoder *d = pass->d;
    for (uint32_t i = 0; i < d->config->num_layers; i++) {
        if (i >= most_of_a_kind && num_alike(d, i) >= most_of_a_kind) continue;
        const struct layer *described = &d->table->layers[i];
        if (described->is_parallel) {
            parallel_block(pass, i);
        } else {
            if (described->has_mamba) {
                hybrid_block(pass, i, true);
            } else if (described->mixer != MIXER_NONE) {
                attention_block(pass, i);
            }
            if (is_sparse(d, i)) {
                mlp_sparse(pass, i);
            } else if (!described->lacks_mlp) {
                mlp_dense(pass, i);
            }
        }
        if (d->layers[i].input_gate) add_layer_input(pass, i);
        compose_scale_residual(pass, d->layers[i].scalar);
    }
}

static const float *forward(struct decoder *d, struct kv_cache *cache, const struct step *step,
                            uint32_t most_of_a_kind) {
    CHECK(step->num_tokens > 0 && step->num_tokens <= d->limits.max_num_tokens, "num_tokens=%u",
          step->num_tokens);
    CHECK(step->num_logits <= d->limits.max_num_seqs, "num_logits=%u", step->num_logits);

    struct pass pass = {.d = d, .cache = cache, .step = step};
    embed(&pass);
    make_layer_inputs(&pass);
    compose_begin(&pass);
    if (!compose_layers(&pass)) run_layers(&pass, most_of_a_kind);
    compose_end(&pass);
    d->has_unadded = pass.has_unadded;
    d->num_rows = step->num_tokens;
    return step->num_logits ? decoder_logits(d, step->logit_index, step->num_logits) : NULL;
}

const float *decoder_forward(struct decoder *d, struct kv_cache *cache, const struct step *step) {
    return forward(d, cache, step, UINT32_MAX);
}

// Two layers of a kind: from the second on the residual may be in two parts, which other kernels
// read.
const float *decoder_warm_up_step(struct decoder *d, struct kv_cache *cache,
                                  const struct step *step) {
    return forward(d, cache, step, 2);
}
