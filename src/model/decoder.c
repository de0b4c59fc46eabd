/* The pass itself. Everything that a family or a rank changes is data here: null norms, slices,
 * traits. */
#include <math.h>

#include "base/check.h"
#include "model/decoder_internal.h"

static void attention_block(struct decoder *d, const struct decoder_layer *layer,
                            uint32_t layer_index, struct kv_cache *cache,
                            const struct decoder_input *in) {
    const struct backend_ops *ops = d->backend->ops;
    struct backend_stream *stream = d->backend->stream;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t head_dim = d->config->head_dim;

    ops->linear(d->backend, stream,
                &(struct linear_args){
                    .linear = layer->qkv, .x = w->hidden, .out = w->qkv, .rows = in->num_tokens});
    ops->attention_prepare(d->backend, stream,
                           &(struct attention_prepare_args){
                               .qkv = w->qkv,
                               .q_norm = layer->q_norm,
                               .k_norm = layer->k_norm,
                               .rope = d->rope,
                               .positions = in->positions,
                               .slot_mapping = in->slot_mapping,
                               .cache = cache,
                               .layer = layer_index,
                               .num_tokens = in->num_tokens,
                               .num_heads = d->shape.num_heads,
                               .num_kv_heads = d->shape.num_kv_heads,
                               .head_dim = head_dim,
                               .eps = d->config->rms_norm_eps,
                           });
    ops->attention(d->backend, stream,
                   &(struct attention_args){
                       .qkv = w->qkv,
                       .cache = cache,
                       .query_start = in->query_start,
                       .context_len = in->context_len,
                       .block_tables = in->block_tables,
                       .out = w->attended,
                       .layer = layer_index,
                       .num_tokens = in->num_tokens,
                       .num_seqs = in->num_seqs,
                       .num_heads = d->shape.num_heads,
                       .num_kv_heads = d->shape.num_kv_heads,
                       .head_dim = head_dim,
                       .block_table_stride = in->block_table_stride,
                       .max_query_len = in->max_query_len,
                       .max_context_len = in->max_context_len,
                       .scale = 1.0f / sqrtf((float)head_dim),
                   });
    ops->linear(
        d->backend, stream,
        &(struct linear_args){
            .linear = layer->o, .x = w->attended, .out = w->projected, .rows = in->num_tokens});
    comm_all_reduce(d->comm, d->backend, w->projected,
                    (size_t)in->num_tokens * d->config->hidden_size);
}

static void dense_mlp(struct decoder *d, const struct decoder_layer *layer, uint32_t num_tokens) {
    const struct backend_ops *ops = d->backend->ops;
    struct backend_stream *stream = d->backend->stream;
    const struct decoder_workspace *w = &d->workspace;

    ops->linear(
        d->backend, stream,
        &(struct linear_args){
            .linear = layer->gate_up, .x = w->hidden, .out = w->gate_up, .rows = num_tokens});
    ops->silu_mul(d->backend, stream,
                  &(struct silu_mul_args){.gate_up = w->gate_up,
                                          .out = w->activated,
                                          .rows = num_tokens,
                                          .cols = d->shape.intermediate_size});
    ops->linear(
        d->backend, stream,
        &(struct linear_args){
            .linear = layer->down, .x = w->activated, .out = w->projected, .rows = num_tokens});
}

static void sparse_mlp(struct decoder *d, const struct decoder_layer *layer, uint32_t num_tokens) {
    const struct backend_ops *ops = d->backend->ops;
    struct backend_stream *stream = d->backend->stream;
    const struct decoder_workspace *w = &d->workspace;
    const struct moe_config *moe = &d->config->moe;

    ops->logits(
        d->backend, stream,
        &(struct logits_args){
            .linear = layer->router, .x = w->hidden, .out = w->router_logits, .rows = num_tokens});
    ops->route(d->backend, stream,
               &(struct route_args){.logits = w->router_logits,
                                    .ids = w->expert_ids,
                                    .weights = w->expert_weights,
                                    .num_tokens = num_tokens,
                                    .num_experts = moe->num_experts,
                                    .top_k = moe->num_experts_per_tok,
                                    .normalize = moe->norm_topk_prob});
    ops->experts(d->backend, stream,
                 &(struct experts_args){.experts = layer->experts,
                                        .x = w->hidden,
                                        .ids = w->expert_ids,
                                        .weights = w->expert_weights,
                                        .out = w->projected,
                                        .scratch = w->experts_scratch,
                                        .num_tokens = num_tokens,
                                        .top_k = moe->num_experts_per_tok});
}

static void mlp_block(struct decoder *d, const struct decoder_layer *layer, uint32_t num_tokens) {
    if (layer->experts) {
        sparse_mlp(d, layer, num_tokens);
    } else {
        dense_mlp(d, layer, num_tokens);
    }
    comm_all_reduce(d->comm, d->backend, d->workspace.projected,
                    (size_t)num_tokens * d->config->hidden_size);
}

// out = norm(residual), after residual += x where x is given.
static void norm(struct decoder *d, const void *x, void *residual, const float *weight, void *out,
                 uint32_t rows) {
    d->backend->ops->rms_norm(d->backend, d->backend->stream,
                              &(struct rms_norm_args){.x = x ? x : residual,
                                                      .residual = x ? residual : NULL,
                                                      .weight = weight,
                                                      .out = out,
                                                      .rows = rows,
                                                      .cols = d->config->hidden_size,
                                                      .eps = d->config->rms_norm_eps});
}

static void gather(struct decoder *d, const void *x, const int32_t *index, void *out,
                   uint32_t rows) {
    d->backend->ops->gather_rows(
        d->backend, d->backend->stream,
        &(struct gather_rows_args){
            .x = x, .index = index, .out = out, .rows = rows, .cols = d->config->hidden_size});
}

const float *decoder_forward(struct decoder *d, struct kv_cache *cache,
                             const struct decoder_input *in) {
    const struct decoder_workspace *w = &d->workspace;
    uint32_t num_tokens = in->num_tokens;
    CHECK(num_tokens > 0 && num_tokens <= d->limits.max_num_tokens, "num_tokens=%u", num_tokens);
    CHECK(in->num_logits <= d->limits.max_num_logits, "num_logits=%u", in->num_logits);

    d->backend->ops->embed(d->backend, d->backend->stream,
                           &(struct embed_args){.table = d->embedding,
                                                .tokens = in->tokens,
                                                .num_tokens = num_tokens,
                                                .vocab_start = (int32_t)d->shape.vocab_start,
                                                .out = w->residual,
                                                .previous = in->previous});
    comm_all_reduce(d->comm, d->backend, w->residual, (size_t)num_tokens * d->config->hidden_size);

    if (d->backend->ops->attention_plan) {
        d->backend->ops->attention_plan(d->backend, d->backend->stream,
                                        &(struct attention_plan_args){
                                            .cache = cache,
                                            .query_start = in->query_start,
                                            .context_len = in->context_len,
                                            .block_table_stride = in->device_stride,
                                            .num_seqs = in->num_seqs,
                                        });
    }
    for (uint32_t i = 0; i < d->config->num_layers; i++) {
        const struct decoder_layer *layer = &d->layers[i];
        // The MLP output of the layer below joins the residual stream here, in the norm that reads
        // it.
        norm(d, i ? w->projected : NULL, w->residual, layer->input_norm, w->hidden, num_tokens);
        attention_block(d, layer, i, cache, in);
        norm(d, w->projected, w->residual, layer->attention_norm, w->hidden, num_tokens);
        mlp_block(d, layer, num_tokens);
    }
    if (in->num_logits == 0) return NULL;

    // Only the rows that will be sampled pass the last norm and the vocabulary projection.
    gather(d, w->residual, in->logit_index, w->last_residual, in->num_logits);
    gather(d, w->projected, in->logit_index, w->last_projected, in->num_logits);
    norm(d, w->last_projected, w->last_residual, d->final_norm, w->last_hidden, in->num_logits);
    d->backend->ops->logits(
        d->backend, d->backend->stream,
        &(struct logits_args){
            .linear = d->lm_head, .x = w->last_hidden, .out = w->logits, .rows = in->num_logits});
    comm_all_gather(d->comm, d->backend, w->logits, w->all_logits, in->num_logits,
                    d->config->vocab_size);
    return w->all_logits;
}
