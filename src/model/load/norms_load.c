#include "model/load/norms_load.h"

#include <stdlib.h>

static const struct norm_names *names_of(const struct layer_table *table, uint32_t i) {
    static const struct norm_names before = {.attention = "input_layernorm",
                                             .mlp = "post_attention_layernorm",
                                             .q = "self_attn.q_norm",
                                             .k = "self_attn.k_norm"};
    static const struct norm_names around = {.attention = "input_layernorm",
                                             .attention_post = "post_attention_layernorm",
                                             .mlp = "pre_feedforward_layernorm",
                                             .mlp_post = "post_feedforward_layernorm",
                                             .q = "self_attn.q_norm",
                                             .k = "self_attn.k_norm"};
    if (table->norms) return table->norms;
    return table->layers[i].norm_place == NORM_BEFORE ? &before : &around;
}

static enum status load_head_norms(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct layer *described = &d->table->layers[i];
    const struct norm_names *names = names_of(d->table, i);
    if (described->head_norm == HEAD_NORM_NONE) return OK;
    struct head_norm_part q = {.module = names->q,
                               .num_heads = 1,
                               .count = 1,
                               .head_dim = described->head_dim,
                               .rotation = loader_rotation(d->table, described)};
    struct head_norm_part k = q;
    if (described->head_norm != HEAD_NORM_EACH) {
        q.num_heads = d->config->num_heads;
        q.start = d->shape.head_start;
        q.count = d->shape.num_heads;
        k.num_heads = described->num_kv_heads;
        k.start = loader_kv_head_start(d, described);
        k.count = layer_kv_heads(described, d->shape.world_size);
    }
    if (d->table->has_plain_head_norms) {
        enum status made = norms_make_ones(l, described->head_dim, &layer->q_norm);
        return made ? made : norms_make_ones(l, described->head_dim, &layer->k_norm);
    }
    k.module = names->k;
    if (described->head_norm == HEAD_NORM_OWN) {
        return loader_load_own_head_norms(l, i, d->table->has_split_head_norms, &q, &k,
                                          &layer->q_norm);
    }
    enum status status = loader_load_head_norm(l, i, &q, &layer->q_norm);
    if (status || described->kv_source != KV_OWN) return status;
    return loader_load_head_norm(l, i, &k, &layer->k_norm);
}

static enum status load_norm(struct loader *l, uint32_t i, const char *module, float **out) {
    const struct decoder *d = l->decoder;
    char name[WEIGHT_NAME_BYTES];
    if (d->table->has_plain_norms) return norms_make_ones(l, d->config->hidden_size, out);
    layer_weight_name(name, i, module, "");
    return loader_load_hidden_norm(l, name, 1, out);
}

enum status norms_load(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    enum norm_place place = l->decoder->table->layers[i].norm_place;
    const struct norm_names *names = names_of(l->decoder->table, i);
    bool has_branches = l->decoder->table->layers[i].has_branches;
    const struct layer *described = &l->decoder->table->layers[i];
    bool has_mixer = described->mixer != MIXER_NONE, has_mlp = !described->lacks_mlp;
    has_mlp = has_mlp && !described->is_parallel; // which has a norm of its own
    const struct {
        const char *module;
        bool is_there;
        float **out;
    } norms[] = {
        {names->attention, place != NORM_AFTER && has_mixer, &layer->input_norm},
        {names->attention_post, place != NORM_BEFORE && has_mixer && names->attention_post,
         &layer->input_post_norm},
        {names->mlp, place != NORM_AFTER && has_mlp, &layer->mlp_norm},
        {names->mlp_post, place != NORM_BEFORE && has_mlp, &layer->mlp_post_norm},
        {EXPERTS_NORM, has_branches, &layer->experts_norm},
        {SHARED_POST_NORM, has_branches, &layer->shared_post_norm},
        {EXPERTS_POST_NORM, has_branches, &layer->experts_post_norm},
    };
    for (size_t k = 0; k < ARRAY_LEN(norms); k++) {
        if (!norms[k].is_there) continue;
        enum status status = load_norm(l, i, norms[k].module, norms[k].out);
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
