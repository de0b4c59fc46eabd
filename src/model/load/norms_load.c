#include "model/load/norms_load.h"

#include <stdlib.h>

static enum status load_head_norms(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct layer *described = &d->table->layers[i];
    uint32_t dim = described->head_dim;
    if (described->head_norm == HEAD_NORM_NONE) return OK;
    struct head_norm_part q = {"self_attn.q_norm",
                               1,
                               0,
                               1,
                               dim,
                               loader_rotation(d->table, described)},
                          k = q;
    if (described->head_norm == HEAD_NORM_ROW) {
        q.num_heads = d->config->num_heads;
        q.start = d->shape.head_start;
        q.count = d->shape.num_heads;
        k.num_heads = described->num_kv_heads;
        k.start = loader_kv_head_start(d, described);
        k.count = layer_kv_heads(described, d->shape.world_size);
    }
    k.module = "self_attn.k_norm";
    enum status status = loader_load_head_norm(l, i, &q, &layer->q_norm);
    if (status || described->kv_source != KV_OWN) return status;
    return loader_load_head_norm(l, i, &k, &layer->k_norm);
}

enum status norms_load(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    static const struct norm_names before = {"input_layernorm", NULL, "post_attention_layernorm",
                                             NULL};
    static const struct norm_names around = {"input_layernorm", "post_attention_layernorm",
                                             "pre_feedforward_layernorm",
                                             "post_feedforward_layernorm"};
    uint32_t hidden = l->decoder->config->hidden_size;
    enum norm_place place = l->decoder->table->layers[i].norm_place;
    const struct norm_names *names = l->decoder->table->norms;
    if (!names) names = place == NORM_BEFORE ? &before : &around;
    bool has_branches = l->decoder->table->layers[i].has_branches;
    const struct {
        const char *module;
        bool is_there;
        float **out;
    } norms[] = {
        {names->attention, place != NORM_AFTER, &layer->input_norm},
        {names->attention_post, place != NORM_BEFORE, &layer->input_post_norm},
        {names->mlp, place != NORM_AFTER, &layer->mlp_norm},
        {names->mlp_post, place != NORM_BEFORE, &layer->mlp_post_norm},
        {EXPERTS_NORM, has_branches, &layer->experts_norm},
        {SHARED_POST_NORM, has_branches, &layer->shared_post_norm},
        {EXPERTS_POST_NORM, has_branches, &layer->experts_post_norm},
    };
    for (size_t k = 0; k < ARRAY_LEN(norms); k++) {
        if (!norms[k].is_there) continue;
        enum status status = loader_load_layer_norm(l, i, norms[k].module, hidden, norms[k].out);
        if (status) return status;
    }
    return load_head_norms(l, i, layer);
}

enum status norms_make_ones(struct loader *l, uint32_t count, float **out) {
    float *ones = malloc(count * sizeof *ones);
    if (!ones) return err_nomem(l->err, "norm without weights");
    for (uint32_t i = 0; i < count; i++) ones[i] = 1;
    enum status status = loader_to_device(l->decoder, ones, count, out, l->err);
    free(ones);
    return status;
}
