/* The pass itself. Everything that a family or a rank changes is data here: null norms, slices,
 * traits. */
#include <math.h>

#include "base/check.h"
#include "model/decoder_internal.h"

// One run of the forward pass.
struct pass {
    struct decoder *d;
    struct kv_cache *cache;
    const struct decoder_input *in;
    bool is_fused; // linears do on the way what surrounds them
    bool has_pending; // w->projected is not part of the residual stream yet
};

static void linear(struct decoder *d, const struct linear *linear, const void *x, void *out,
                   uint32_t rows) {
    d->backend->ops->linear(
        d->backend, d->backend->stream,
        &(struct linear_args){.linear = linear, .x = x, .out = out, .rows = rows});
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

// w->hidden = norm(residual stream). What a block before left pending joins the stream here, in the
// op that reads it.
static void read_stream(struct pass *pass, const float *weight) {
    const struct decoder_workspace *w = &pass->d->workspace;
    norm(pass->d, pass->has_pending ? w->projected : NULL, w->residual, weight, w->hidden,
         pass->in->num_tokens);
    pass->has_pending = false;
}

// Whether the norm of the residual stream is done on the way into this projection.
static bool takes_norm(const struct pass *pass, const struct linear *projection) {
    const struct backend *backend = pass->d->backend;
    return pass->is_fused && !pass->has_pending &&
           pass->in->num_tokens <= backend->ops->linear_norm_rows(backend, projection);
}

// out = projection(norm(residual stream)).
static void project_in(struct pass *pass, const float *weight, const struct linear *projection,
                       void *out) {
    struct decoder *d = pass->d;
    if (takes_norm(pass, projection)) {
        d->backend->ops->linear_fused(d->backend, d->backend->stream,
                                      &(struct linear_fused_args){.linear = projection,
                                                                  .x = d->workspace.residual,
                                                                  .norm = weight,
                                                                  .out = out,
                                                                  .rows = pass->in->num_tokens,
                                                                  .eps = d->config->rms_norm_eps});
        return;
    }
    read_stream(pass, weight);
    linear(d, projection, d->workspace.hidden, out, pass->in->num_tokens);
}

// The residual stream += projection(x), now or when it is read next.
static void project_out(struct pass *pass, const struct linear *projection, const void *x) {
    struct decoder *d = pass->d;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t rows = pass->in->num_tokens;
    if (pass->is_fused) {
        d->backend->ops->linear_fused(d->backend, d->backend->stream,
                                      &(struct linear_fused_args){.linear = projection,
                                                                  .x = x,
                                                                  .residual = w->residual,
                                                                  .scratch = w->projected,
                                                                  .rows = rows});
        return;
    }
    linear(d, projection, x, w->projected, rows);
    comm_all_reduce(d->comm, d->backend, w->projected, (size_t)rows * d->config->hidden_size);
    pass->has_pending = true;
}

static void attention_block(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_input *in = pass->in;
    const struct backend_ops *ops = d->backend->ops;
    struct backend_stream *stream = d->backend->stream;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t head_dim = d->config->head_dim;

    project_in(pass, layer->input_norm, layer->qkv, w->qkv);
    const struct attention_prepare_args prepare = {
        .qkv = w->qkv,
        .q_norm = layer->q_norm,
        .k_norm = layer->k_norm,
        .rope = d->rope,
        .positions = in->positions,
        .slot_mapping = in->slot_mapping,
        .cache = pass->cache,
        .layer = layer_index,
        .num_tokens = in->num_tokens,
        .num_heads = d->shape.num_heads,
        .num_kv_heads = d->shape.num_kv_heads,
        .head_dim = head_dim,
        .eps = d->config->rms_norm_eps,
    };
    bool on_the_way = d->backend->attention_prepares && in->max_query_len == 1;
    if (!on_the_way) ops->attention_prepare(d->backend, stream, &prepare);
    ops->attention(d->backend, stream,
                   &(struct attention_args){
                       .qkv = w->qkv,
                       .prepare = on_the_way ? &prepare : NULL,
                       .cache = pass->cache,
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
    project_out(pass, layer->o, w->attended);
}

static void dense_mlp(struct pass *pass, const struct decoder_layer *layer) {
    struct decoder *d = pass->d;
    const struct backend_ops *ops = d->backend->ops;
    const struct decoder_workspace *w = &d->workspace;
    uint32_t rows = pass->in->num_tokens;
    if (takes_norm(pass, layer->gate_up)) {
        ops->linear_fused(d->backend, d->backend->stream,
                          &(struct linear_fused_args){.linear = layer->gate_up,
                                                      .x = w->residual,
                                                      .norm = layer->attention_norm,
                                                      .out = w->activated,
                                                      .rows = rows,
                                                      .is_gated = true,
                                                      .eps = d->config->rms_norm_eps});
    } else if (ops->linear_fused) {
        read_stream(pass, layer->attention_norm);
        ops->linear_fused(d->backend, d->backend->stream,
                          &(struct linear_fused_args){.linear = layer->gate_up,
                                                      .x = w->hidden,
                                                      .out = w->activated,
                                                      .scratch = w->gate_up,
                                                      .rows = rows,
                                                      .is_gated = true});
    } else {
        project_in(pass, layer->attention_norm, layer->gate_up, w->gate_up);
        ops->silu_mul(d->backend, d->backend->stream,
                      &(struct silu_mul_args){.gate_up = w->gate_up,
                                              .out = w->activated,
                                              .rows = rows,
                                              .cols = d->shape.intermediate_size});
    }
    project_out(pass, layer->down, w->activated);
}

static void sparse_mlp(struct pass *pass, const struct decoder_layer *layer) {
    struct decoder *d = pass->d;
    uint32_t num_tokens = pass->in->num_tokens;
    const struct backend_ops *ops = d->backend->ops;
    struct backend_stream *stream = d->backend->stream;
    const struct decoder_workspace *w = &d->workspace;
    const struct moe_config *moe = &d->config->moe;

    read_stream(pass, layer->attention_norm);
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
    comm_all_reduce(d->comm, d->backend, w->projected, (size_t)num_tokens * d->config->hidden_size);
    pass->has_pending = true;
}

// All layers of few decodes.
static void decode_layers(struct decoder *d, struct kv_cache *cache,
                          const struct decoder_input *in) {
    const struct decoder_workspace *w = &d->workspace;
    d->backend->ops->decode_layers(d->backend, d->backend->stream,
                                   &(struct decode_layers_args){
                                       .layers = d->decode_layers,
                                       .cache = cache,
                                       .residual = w->residual,
                                       .qkv = w->qkv,
                                       .attended = w->attended,
                                       .activated = w->activated,
                                       .rope = d->rope,
                                       .positions = in->positions,
                                       .slot_mapping = in->slot_mapping,
                                       .context_len = in->context_len,
                                       .block_tables = in->block_tables,
                                       .block_table_stride = in->device_stride,
                                       .num_seqs = in->num_seqs,
                                       .scale = 1.0f / sqrtf((float)d->config->head_dim),
                                   });
}

// All layers op by op.
static void run_layers(struct pass *pass) {
    struct decoder *d = pass->d;
    const struct decoder_input *in = pass->in;
    if (d->backend->ops->attention_plan) {
        d->backend->ops->attention_plan(d->backend, d->backend->stream,
                                        &(struct attention_plan_args){
                                            .cache = pass->cache,
                                            .query_start = in->query_start,
                                            .context_len = in->context_len,
                                            .block_table_stride = in->device_stride,
                                            .slot_mapping = in->slot_mapping,
                                            .num_seqs = in->num_seqs,
                                            .max_query_len = in->max_query_len,
                                        });
    }
    for (uint32_t i = 0; i < d->config->num_layers; i++) {
        attention_block(pass, i);
        if (d->layers[i].experts) {
            sparse_mlp(pass, &d->layers[i]);
        } else {
            dense_mlp(pass, &d->layers[i]);
        }
    }
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

    struct pass pass = {
        .d = d,
        .cache = cache,
        .in = in,
        .is_fused = d->backend->ops->linear_fused && d->comm->world_size == 1,
    };
    if (in->max_query_len == 1 && in->num_seqs <= d->decode_seqs_max) {
        decode_layers(d, cache, in);
    } else {
        run_layers(&pass);
    }
    if (in->num_logits == 0) return NULL;

    // Only the rows that will be sampled pass the last norm and the vocabulary projection. Where
    // those are all rows the copy is not in vain: on a GPU it keeps the projection from beginning
    // while the last layer still runs (gather_rows.cu), which made a step of one sequence 6 %
    // slower.
    gather(d, w->residual, in->logit_index, w->last_residual, in->num_logits);
    if (pass.has_pending) {
        gather(d, w->projected, in->logit_index, w->last_projected, in->num_logits);
    }
    norm(d, pass.has_pending ? w->last_projected : NULL, w->last_residual, d->final_norm,
         w->last_hidden, in->num_logits);
    d->backend->ops->logits(
        d->backend, d->backend->stream,
        &(struct logits_args){
            .linear = d->lm_head, .x = w->last_hidden, .out = w->logits, .rows = in->num_logits});
    comm_all_gather(d->comm, d->backend, w->logits, w->all_logits, in->num_logits,
                    d->config->vocab_size);
    return w->all_logits;
}
