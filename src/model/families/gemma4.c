/* Gemma 4 (text): Gemma 3's norms around blocks, by their weight, and windows in five of six
 * layers. The others have wider heads, perhaps k as v, and rotate a part of the pairs. Heads of v
 * are normed too, scores have no factor, each layer ends with a factor of the residual, and logits
 * are limited. Experts, if any, are beside the dense MLP, which is then their shared expert.
 * Source: the published config.json files and transformers' Gemma4. */
#include <math.h>

#include "model/family.h"

static const struct expert_names names = {
    .router = "router.proj",
    .shared = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
    .experts = "experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .stacked_gate_up = "gate_up_proj",
    .stacked_down = "down_proj",
};

// Layers at the end read the keys and values of the last layer of their kind before them.
static void share_keys(struct layer_table *table, const struct own_config *own) {
    uint32_t first = table->num_layers - own->num_shared_kv_layers;
    for (uint32_t i = first; i < table->num_layers; i++) {
        uint32_t source = first;
        while (source && !table->layers[source - 1].window != !table->layers[i].window) source--;
        table->layers[i].kv_source = source ? source - 1 : i; // layer_table_check refuses itself
        if (own->has_wide_shared_layers) table->layers[i].mlp_factor = 2;
    }
}

static void change(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    table->embedding_scale = sqrtf((float)config->hidden_size);
    table->logits_softcap = own->logits_softcap;
    table->layer_input_size = own->layer_input_size;
    table->ropes[1] = config->local_rope;
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->norm_place = NORM_AROUND;
        layer->activation = ACTIVATION_GELU_TANH;
        layer->query_scale = 1;
        layer->has_v_norm = true;
        layer->has_scalar = true;
        layer->has_branches = layer->is_sparse;
        layer->rope = layer->window ? 1 : 0;
        if (layer->window) continue;
        if (own->global_head_dim) layer->head_dim = layer->rotary_dim = own->global_head_dim;
        layer->has_keys_as_values = own->has_keys_as_values;
        if (own->num_global_kv_heads) layer->num_kv_heads = own->num_global_kv_heads;
    }
    share_keys(table, own);
}

const struct model_family family_gemma4 = {
    .name = "Gemma 4",
    .architecture = "Gemma4ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &names,
    .change = change,
};
