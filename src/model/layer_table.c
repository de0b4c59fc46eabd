#include "model/layer_table.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

enum status layer_table_init(struct layer_table *table, const struct model_config *config,
                             struct err *err) {
    static const char *const qkv_modules[] = {"self_attn.q_proj", "self_attn.k_proj",
                                              "self_attn.v_proj"};
    *table = (struct layer_table){
        .qkv_modules = qkv_modules,
        .stacked_qkv = "self_attn.qkv_proj",
        .mlp = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
        .final_norm = "model.norm",
        .o_module = "self_attn.o_proj",
        .embedding_scale = 1,
        .logits_scale = 1,
        .gate_scale = 1,
        .mamba_scales = {1, 1, 1, 1, 1},
        .ropes = {config->rope},
        .num_ropes = 1,
        .is_rope_interleaved = config->own.has_interleaved_rope,
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
            .mlp_scale = 1,
            .mamba_scale = 1,
            .kv_source = KV_OWN,
            .mlp_factor = 1,
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
    return layer_attends(layer) && layer->kv_source == KV_OWN;
}

bool layer_table_has_latents(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].mixer == MIXER_LATENT_ATTENTION) return true;
    }
    return false;
}

uint32_t layer_table_num_states(const struct layer_table *table) {
    uint32_t num = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) num += layer_has_state(&table->layers[i]);
    return num;
}

// Finds the different shapes of keys and values. Returns how many there are; of more than
// KV_SHAPES_MAX that and one.
static uint32_t find_kv_shapes(const struct layer_table *table, uint32_t world_size,
                               struct kv_shape shapes[KV_SHAPES_MAX]) {
    uint32_t num = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        uint32_t heads = layer_kv_heads(layer, world_size), k = 0;
        if (!has_kv(layer)) continue;
        while (k < num &&
               (shapes[k].num_kv_heads != heads || shapes[k].head_dim != layer->head_dim)) {
            k++;
        }
        if (k < num) continue;
        if (num == KV_SHAPES_MAX) return num + 1;
        shapes[num++] = (struct kv_shape){heads, layer->head_dim};
    }
    return num;
}

bool layer_table_has_own_head_norms(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].head_norm == HEAD_NORM_OWN) return true;
    }
    return false;
}

bool layer_table_has_row_norms(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].head_norm == HEAD_NORM_ROW) return true;
    }
    return false;
}

bool layer_table_has_branches(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].has_branches) return true;
    }
    return false;
}

bool layer_table_shares_kv(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].kv_source != KV_OWN) return true;
    }
    return false;
}

bool layer_table_has_kv_shapes(const struct layer_table *table) {
    struct kv_shape shapes[KV_SHAPES_MAX];
    return find_kv_shapes(table, 1, shapes) > 1;
}

uint32_t layer_table_first_with_rope(const struct layer_table *table, uint32_t i) {
    const struct layer *layer = &table->layers[i];
    for (uint32_t k = 0; k < i; k++) {
        const struct layer *other = &table->layers[k];
        if (layer_attends(other) && other->rope == layer->rope &&
            other->head_dim == layer->head_dim && other->rotary_dim == layer->rotary_dim) {
            return k;
        }
    }
    return layer_attends(layer) ? i : table->num_layers;
}

const struct rope_config *layer_table_rope(const struct layer_table *table, uint32_t i) {
    uint32_t rope = table->layers[i].rope;
    return rope == ROPE_NONE ? NULL : &table->ropes[rope];
}

// How the layers with KV are put into groups, in their order.
struct grouping {
    uint32_t world_size, max_groups;
    bool keeps_all; // windows do not count
    size_t capacity; // of a group, in elements of keys at one position
    uint32_t num_windows, num_groups;
    // The last group of each window: its number and, where the next layer goes, its place.
    struct {
        uint32_t tokens, group, kv_index;
        struct kv_place place;
    } windows[KV_GROUPS_MAX];
};

// Puts a layer behind the others of its window, or into a new group where it does not fit there.
// False: it fits nowhere.
static bool group_layer(struct grouping *g, struct layer *layer) {
    uint32_t heads = layer_kv_heads(layer, g->world_size), k = 0;
    uint32_t window = g->keeps_all ? 0 : layer->window;
    size_t elements = (size_t)heads * layer->head_dim;
    if (elements > g->capacity) return false;
    while (k < g->num_windows && g->windows[k].tokens != window) k++;
    if (k == g->num_windows || g->capacity - g->windows[k].place.num_elements < elements) {
        if (g->num_groups == g->max_groups) return false;
        if (k == g->num_windows) g->num_windows++;
        g->windows[k].tokens = window;
        g->windows[k].group = g->num_groups++;
        g->windows[k].kv_index = 0;
        g->windows[k].place = (struct kv_place){0, 0};
    }
    layer->kv_group = g->windows[k].group;
    layer->kv_index = g->windows[k].kv_index++;
    layer->kv_place = g->windows[k].place;
    g->windows[k].place.num_heads += heads;
    g->windows[k].place.num_elements += elements;
    return true;
}

static bool group_layers(struct layer_table *table, struct grouping *g, size_t capacity) {
    g->capacity = capacity;
    g->num_windows = g->num_groups = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (has_kv(&table->layers[i]) && !group_layer(g, &table->layers[i])) return false;
    }
    return true;
}

// Finds the capacity of a group with which all groups together waste the least; of equal ones the
// largest, which makes the fewest groups. With the best capacity some group is full. So only sums
// of the first layers of a window need to be tried. `all`: a grouping with one group for each
// window, into which the layers fit.
static size_t choose_capacity(struct layer_table *table, const struct grouping *all) {
    size_t sums[KV_GROUPS_MAX] = {0}, best = 0, best_sum = SIZE_MAX;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        if (!has_kv(layer)) continue;
        uint32_t k = 0;
        while (all->windows[k].tokens != layer->window) k++;
        sums[k] += (size_t)layer_kv_heads(layer, all->world_size) * layer->head_dim;
        struct grouping trial = *all;
        if (!group_layers(table, &trial, sums[k])) continue;
        size_t sum = trial.num_groups * sums[k];
        if (sum > best_sum || (sum == best_sum && sums[k] < best)) continue;
        best = sums[k];
        best_sum = sum;
    }
    return best;
}

void layer_table_plan_kv(struct layer_table *table, uint32_t max_positions, uint32_t max_groups,
                         uint32_t world_size) {
    CHECK(max_groups > 0 && max_groups <= KV_GROUPS_MAX, "max_groups=%u", max_groups);
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].window >= max_positions) table->layers[i].window = 0;
    }
    for (uint32_t k = 0; k < table->num_ropes; k++) {
        const struct rope_config *rope = &table->ropes[k];
        bool is_behind = rope->query_length - rope->query_offset >= max_positions;
        if (is_behind) table->ropes[k].query_beta = 0;
    }
    struct grouping g = {.world_size = world_size, .max_groups = max_groups};
    if (!group_layers(table, &g, SIZE_MAX)) {
        g.keeps_all = true;
        CHECK(group_layers(table, &g, SIZE_MAX), "%u groups", g.num_groups);
    } else if (g.num_windows > 1) {
        size_t capacity = choose_capacity(table, &g);
        CHECK(group_layers(table, &g, capacity), "%zu elements", capacity);
    }
    table->num_kv_groups = g.num_groups;
    table->layers_per_group = 0;
    struct kv_place end = {0, 0};
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        if (!has_kv(layer)) continue;
        table->kv_windows[layer->kv_group] = g.keeps_all ? 0 : layer->window;
        uint32_t heads = layer_kv_heads(layer, world_size), num = layer->kv_index + 1;
        size_t elements = layer->kv_place.num_elements + (size_t)heads * layer->head_dim;
        heads += (uint32_t)layer->kv_place.num_heads;
        if (num > table->layers_per_group) table->layers_per_group = num;
        if (heads > end.num_heads) end.num_heads = heads;
        if (elements > end.num_elements) end.num_elements = elements;
    }
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        if (!layer_attends(layer) || has_kv(layer)) continue;
        const struct layer *source = &table->layers[layer->kv_source];
        layer->kv_group = source->kv_group;
        layer->kv_index = source->kv_index;
        layer->kv_place = source->kv_place;
    }
    bool has_shapes = layer_table_has_kv_shapes(table);
    table->kv_block_end = has_shapes ? end : (struct kv_place){0, 0};
    table->num_kv_shapes = has_shapes ? find_kv_shapes(table, world_size, table->kv_shapes) : 0;
}

bool layer_table_has_plain_heads(const struct layer_table *table) {
    if (layer_table_has_kv_shapes(table)) return false;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        const struct rope_config *rope = layer_table_rope(table, i);
        bool is_plain = layer->mixer == MIXER_ATTENTION && layer->kv_source == KV_OWN &&
                        layer->softcap == 0 && !layer->has_norm_after_rope;
        if (!is_plain || (rope && rope->query_beta != 0)) return false;
    }
    return true;
}

bool layer_table_is_even(const struct layer_table *table) {
    const struct layer *first = &table->layers[0];
    if (table->is_layer_norm || layer_table_lacks_gate(table)) return false;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        bool is_same = layer->rope == first->rope && layer->head_dim == first->head_dim &&
                       layer->num_kv_heads == first->num_kv_heads &&
                       layer->query_scale == first->query_scale;
        bool is_plain = !layer->is_sparse && layer->mixer == MIXER_ATTENTION && has_kv(layer) &&
                        !layer->window && layer->softcap == 0 && layer->norm_place == NORM_BEFORE &&
                        layer->head_norm <= HEAD_NORM_EACH &&
                        layer->activation == ACTIVATION_SILU && layer->residual_scale == 1 &&
                        layer->mlp_scale == 1;
        const struct rope_config *rope = layer_table_rope(table, i);
        if (!is_same || !is_plain || layer->has_sinks || layer->has_output_gate) return false;
        if (layer->has_v_norm || layer->has_scalar || layer->has_norm_after_rope) return false;
        if (layer->is_parallel || layer->lacks_mlp || layer->has_mamba) return false;
        if (rope && rope->query_beta != 0) return false;
    }
    return true;
}

static enum status check_layer(const struct layer_table *table, uint32_t index, struct err *err) {
    const struct layer *layer = &table->layers[index];
    CHECK(layer->rope == ROPE_NONE || layer->rope < table->num_ropes, "rope=%u", layer->rope);
    const struct rope_config *rope = layer_table_rope(table, index);
    CHECK(!rope || rope->type != ROPE_LONG || rope->num_factors == layer->rotary_dim / 2,
          "%u factors", rope->num_factors);
    const struct {
        const char *what;
        bool is_wanted;
    } cases[] = {
        {"experts with gelu",
         layer->is_sparse && !layer->has_branches && layer->activation == ACTIVATION_GELU_TANH},
        {"a LayerNorm behind attention or MLP",
         table->is_layer_norm && (layer->norm_place != NORM_BEFORE || layer->has_branches)},
        {"linear attention with a rotary embedding",
         !layer_attends(layer) && layer_has_state(layer) && layer->rope != ROPE_NONE},
        {"linear attention over a window", layer_has_state(layer) && layer->window},
        {"Mamba-2 beside no plain attention",
         layer->has_mamba && (layer->mixer != MIXER_ATTENTION || layer->is_parallel ||
                              layer->norm_place != NORM_BEFORE || layer->has_output_gate)},
        {"no earlier layer of its kind whose keys it could read",
         layer->kv_source != KV_OWN && layer->kv_source >= index},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (!cases[i].is_wanted) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: layer %u has %s, which is not supported",
                       table->family, index, cases[i].what);
    }
    return OK;
}

enum status layer_table_check(const struct layer_table *table, struct err *err) {
    struct kv_shape shapes[KV_SHAPES_MAX];
    CHECK(!table->has_plain_norms || table->logits_scale == 1, "%s", table->family);
    if (table->num_ropes > ROPE_TABLES_MAX) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: rotary embeddings of more than %d kinds are not supported",
                       table->family, ROPE_TABLES_MAX);
    }
    if (find_kv_shapes(table, 1, shapes) > KV_SHAPES_MAX) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: the model has keys and values of more than %d shapes, which is not "
                       "supported",
                       table->family, KV_SHAPES_MAX);
    }
    for (uint32_t i = 0; i < table->num_layers; i++) {
        enum status status = check_layer(table, i, err);
        if (status) return status;
    }
    uint32_t num_attending = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        num_attending += layer_attends(&table->layers[i]);
    }
    if (!num_attending) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: a model without any layer of softmax attention is not supported",
                       table->family);
    }
    return OK;
}
