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
        .num_kv_groups = 1,
        .layers_per_group = config->num_layers,
    };
    if (!table->layers) return err_nomem(err, "layers");
    for (uint32_t i = 0; i < config->num_layers; i++) {
        table->layers[i] = (struct layer){
            .window = config->is_sliding && config->is_sliding[i] ? config->sliding_window : 0,
            .head_dim = config->head_dim,
            .num_kv_heads = config->num_kv_heads,
            .rotary_dim = model_config_rotary_dim(config),
            .query_scale = 1.0f / sqrtf((float)config->head_dim),
            .residual_scale = 1,
            .is_sparse = config->moe.num_experts && config->moe.is_sparse[i],
            .kv_index = i,
        };
    }
    return OK;
}

void layer_table_fini(struct layer_table *table) {
    free(table->layers);
    *table = (struct layer_table){0};
}

bool layer_table_has_windows(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].window) return true;
    }
    return false;
}

static bool has_kv(const struct layer *layer) {
    return layer->mixer == MIXER_ATTENTION;
}

uint32_t layer_table_num_states(const struct layer_table *table) {
    uint32_t num = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) num += !has_kv(&table->layers[i]);
    return num;
}

// The different windows of the layers with KV.
struct windows {
    uint32_t num;
    uint32_t tokens[KV_GROUPS_MAX], num_layers[KV_GROUPS_MAX];
};

// False: there are more than `max`.
static bool count_windows(const struct layer_table *table, uint32_t max, struct windows *out) {
    *out = (struct windows){0};
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (!has_kv(&table->layers[i])) continue;
        uint32_t k = 0;
        while (k < out->num && out->tokens[k] != table->layers[i].window) k++;
        if (k == max) return false;
        if (k == out->num) out->tokens[out->num++] = table->layers[i].window;
        out->num_layers[k]++;
    }
    return true;
}

static uint32_t num_groups_of(const struct windows *windows, uint32_t size) {
    uint32_t num = 0;
    for (uint32_t k = 0; k < windows->num; k++) num += (windows->num_layers[k] + size - 1) / size;
    return num;
}

// The size of groups whose layers with the room of layers that they lack are the fewest; of equal
// ones the largest, which makes the fewest groups.
static uint32_t choose_size(const struct windows *windows, uint32_t num_layers,
                            uint32_t max_groups) {
    uint32_t best = num_layers;
    for (uint32_t size = num_layers; size > 0; size--) {
        uint32_t num = num_groups_of(windows, size);
        if (num <= max_groups && num * size < num_groups_of(windows, best) * best) best = size;
    }
    return best;
}

static void put_into_one_group(struct layer_table *table, uint32_t window) {
    table->num_kv_groups = 1;
    table->layers_per_group = 0;
    table->kv_windows[0] = window;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (!has_kv(&table->layers[i])) continue;
        table->layers[i].kv_group = 0;
        table->layers[i].kv_index = table->layers_per_group++;
    }
}

void layer_table_plan_kv(struct layer_table *table, uint32_t max_positions, uint32_t max_groups) {
    CHECK(max_groups > 0 && max_groups <= KV_GROUPS_MAX, "max_groups=%u", max_groups);
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].window >= max_positions) table->layers[i].window = 0;
    }
    struct windows windows;
    bool are_few = count_windows(table, max_groups, &windows);
    if (!are_few || windows.num == 1) {
        put_into_one_group(table, are_few ? windows.tokens[0] : 0);
        return;
    }
    uint32_t num_kv_layers = table->num_layers - layer_table_num_states(table);
    uint32_t size = choose_size(&windows, num_kv_layers, max_groups);
    CHECK(size > 0, "no layer has KV");
    table->layers_per_group = size;
    table->num_kv_groups = 0;
    for (uint32_t k = 0; k < windows.num; k++) {
        uint32_t num = 0;
        for (uint32_t i = 0; i < table->num_layers; i++) {
            struct layer *layer = &table->layers[i];
            if (!has_kv(layer) || layer->window != windows.tokens[k]) continue;
            layer->kv_group = table->num_kv_groups + num / size;
            layer->kv_index = num++ % size;
            table->kv_windows[layer->kv_group] = layer->window;
        }
        table->num_kv_groups += (num + size - 1) / size;
    }
}

bool layer_table_is_even(const struct layer_table *table) {
    const struct layer *first = &table->layers[0];
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        bool is_same = layer->rope == first->rope && layer->head_dim == first->head_dim &&
                       layer->num_kv_heads == first->num_kv_heads &&
                       layer->query_scale == first->query_scale;
        bool is_plain = !layer->is_sparse && has_kv(layer) && !layer->window &&
                        layer->softcap == 0 && layer->norm_place == NORM_BEFORE &&
                        layer->head_norm != HEAD_NORM_ROW && layer->activation == ACTIVATION_SILU &&
                        layer->residual_scale == 1;
        if (!is_same || !is_plain || layer->has_sinks || layer->has_output_gate) return false;
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
        {"a norm over all heads, which are rotated in part",
         layer->rotary_dim != layer->head_dim && layer->head_norm == HEAD_NORM_ROW},
        {"experts with gelu", layer->is_sparse && layer->activation == ACTIVATION_GELU_TANH},
        {"linear attention with a rotary embedding", !has_kv(layer) && layer->rope != ROPE_NONE},
        {"linear attention over a window", !has_kv(layer) && layer->window},
        {"a soft limit of attention scores", layer->softcap != 0},
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
    if (layer_table_num_states(table) == table->num_layers) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: a model without any layer of softmax attention is not supported",
                       table->family);
    }
    return OK;
}

enum status layer_table_check_ranks(const struct layer_table *table, uint32_t world_size,
                                    struct err *err) {
    for (uint32_t i = 0; i < table->num_layers && world_size > 1; i++) {
        if (table->layers[i].head_norm != HEAD_NORM_ROW) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has a norm over all heads, which cannot be cut among %u ranks; want "
                       "tensor_parallel_size 1",
                       table->family, world_size);
    }
    return OK;
}
