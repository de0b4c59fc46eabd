#include "model/latent.h"

void latent_project(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct backend_ops *ops = d->backend->ops;
    uint32_t rows = pass->step->num_tokens;
    const void *x = w->hidden;
    compose_norm(pass, layer->input_norm);
    ops->linear(d->backend, &(struct linear_args){
                                .linear = layer->qkv, .x = w->hidden, .out = w->qkv, .rows = rows});
    if (layer->query_latent) {
        ops->linear(d->backend,
                    &(struct linear_args){
                        .linear = layer->query_latent, .x = x, .out = w->q_latent, .rows = rows});
        ops->rms_norm(d->backend, &(struct rms_norm_args){.x = w->q_latent,
                                                          .weight = layer->q_norm,
                                                          .out = w->q_latent,
                                                          .rows = rows,
                                                          .cols = d->table->latent.query_rank,
                                                          .eps = LATENT_EPS});
        x = w->q_latent;
    }
    const struct linear_args parts[] = {
        {.linear = layer->query_nope, .x = x, .out = w->q_nope, .rows = rows},
        {.linear = layer->query_rope, .x = x, .out = w->q_rope, .rows = rows},
    };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) ops->linear(d->backend, &parts[i]);
}

void latent_attend(struct pass *pass, uint32_t layer_index) {
    struct decoder *d = pass->d;
    const struct decoder_layer *layer = &d->layers[layer_index];
    const struct layer *described = &d->table->layers[layer_index];
    const struct decoder_workspace *w = &d->workspace;
    const struct rope_config *rope = layer_table_rope(d->table, layer_index);
    d->backend->latent->attend(d->backend,
                               &(struct latent_args){.step = pass->step,
                                                     .cache = pass->cache,
                                                     .layer = described->kv_index,
                                                     .kv_group = described->kv_group,
                                                     .place = described->kv_place,
                                                     .latent = layer->latent,
                                                     .q_nope = w->q_nope,
                                                     .q_rope = w->q_rope,
                                                     .kv = w->qkv,
                                                     .norm = layer->k_norm,
                                                     .rope = layer->rope,
                                                     .out = w->attended,
                                                     .scratch = w->latent_scratch,
                                                     .eps = LATENT_EPS,
                                                     .scale = described->query_scale,
                                                     .query_beta = (float)rope->query_beta,
                                                     .query_length = (float)rope->query_length});
}
