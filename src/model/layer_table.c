#include "model/layer_table.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

enum status layer_table_init(struct layer_table *table, const struct model_config *config,
                             struct err *err) {
    *table = (struct layer_table){
        .embedding_scale = 1,
        .logits_scale = 1,
        .ropes = {config->rope},
        .num_ropes = 1,
        .num_layers = config->num_layers,
        .layers = calloc(config->num_layers, sizeof *table->layers),
    };
    if (!table->layers) return err_nomem(err, "layers");
    for (uint32_t i = 0; i < config->num_layers; i++) {
        table->layers[i] = (struct layer){
            .window = config->sliding_window,
            .head_dim = config->head_dim,
            .num_kv_heads = config->num_kv_heads,
            .rotary_dim = config->head_dim,
            .query_scale = 1.0f / sqrtf((float)config->head_dim),
            .residual_scale = 1,
            .is_sparse = config->moe.num_experts && config->moe.is_sparse[i],
        };
    }
    return OK;
}

void layer_table_fini(struct layer_table *table) {
    free(table->layers);
    *table = (struct layer_table){0};
}

bool layer_table_is_even(const struct layer_table *table) {
    const struct layer *first = &table->layers[0];
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        bool is_same = layer->window == first->window && layer->rope == first->rope &&
                       layer->head_dim == first->head_dim &&
                       layer->num_kv_heads == first->num_kv_heads &&
                       layer->query_scale == first->query_scale;
        if (layer->is_sparse || !is_same) return false;
    }
    return true;
}

static enum status check_layer(const struct layer_table *table, uint32_t index, struct err *err) {
    const struct layer *layer = &table->layers[index], *first = &table->layers[0];
    CHECK(layer->rope == ROPE_NONE || layer->rope < table->num_ropes, "rope=%u", layer->rope);
    const struct {
        const char *what;
        bool is_wanted;
    } cases[] = {
        {"norms behind attention and MLP", layer->norm_place != NORM_BEFORE},
        {"a norm over all heads of q and k", layer->head_norm == HEAD_NORM_ROW},
        {"an activation other than silu", layer->activation != ACTIVATION_SILU},
        {"a rotary embedding of a part of each head", layer->rotary_dim != layer->head_dim},
        {"a factor of what is added to the residual", layer->residual_scale != 1},
        {"a soft limit of attention scores", layer->softcap != 0},
        {"attention sinks", layer->has_sinks},
        {"heads of another size than other layers",
         layer->head_dim != first->head_dim || layer->num_kv_heads != first->num_kv_heads},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (!cases[i].is_wanted) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: layer %u has %s, which is not supported",
                       table->family, index, cases[i].what);
    }
    return OK;
}

enum status layer_table_check(const struct layer_table *table, struct err *err) {
    const struct {
        const char *what;
        bool is_wanted;
    } cases[] = {
        {"norms by 1 + weight", table->norm_kind != NORM_WEIGHT},
        {"a factor of the embeddings", table->embedding_scale != 1},
        {"a factor of the logits", table->logits_scale != 1},
        {"a soft limit of the logits", table->logits_softcap != 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (!cases[i].is_wanted) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: the model has %s, which is not supported",
                       table->family, cases[i].what);
    }
    for (uint32_t i = 0; i < table->num_layers; i++) {
        enum status status = check_layer(table, i, err);
        if (status) return status;
    }
    return OK;
}
