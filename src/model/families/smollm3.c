/* SmolLM3: Llama's layers, some of which have no rotary embedding: every fourth one, if config.json
 * does not list them. Source: the published config.json and transformers' SmolLM3. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (config->own.has_no_rope[i]) table->layers[i].rope = ROPE_NONE;
    }
}

const struct model_family family_smollm3 = {
    .name = "SmolLM3",
    .architecture = "SmolLM3ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change,
};
