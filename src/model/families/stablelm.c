/* StableLM: Llama's layers with LayerNorms, whose biases are there, and with a quarter of each head
 * rotated. Attention and MLP may read the same norm. Models with norms of heads (12B) are refused.
 * Source: arXiv 2402.17834, and transformers' StableLm. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    table->is_layer_norm = table->has_norm_bias = true;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].is_parallel = config->own.is_parallel;
    }
}

const struct model_family family_stablelm = {
    .name = "StableLM",
    .architecture = "StableLmForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .change = change,
};
