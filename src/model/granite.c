/* Granite 3: Llama's layers with four factors, of the embeddings, the scores, what is added to the
 * residual, and the logits.
 * Source: the published config.json files and transformers' Granite. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    table->embedding_scale = own->embedding_multiplier;
    table->logits_scale = 1 / own->logits_scaling;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        // transformers' class has 1 where the key is missing.
        table->layers[i].query_scale =
            own->attention_multiplier > 0 ? own->attention_multiplier : 1;
        table->layers[i].residual_scale = own->residual_multiplier;
    }
}

const struct model_family family_granite = {
    .name = "Granite",
    .architecture = "GraniteForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change,
};
