/* StableLM: Llama's layers with LayerNorms, whose biases are there, and with a quarter of each head
 * rotated. Attention and MLP may read the same norm. In the 12B each head of q and k has a
 * LayerNorm, whose weights are a tensor of their own.
 * Source: arXiv 2402.17834, and transformers' StableLm. */
#include "model/family.h"

static const struct norm_names head_norms = {.attention = "input_layernorm",
                                             .mlp = "post_attention_layernorm",
                                             .q = "self_attn.q_layernorm.norms",
                                             .k = "self_attn.k_layernorm.norms"};

static void change(struct layer_table *table, const struct model_config *config) {
    table->is_layer_norm = table->has_norm_bias = true;
    table->has_split_head_norms = true;
    table->norms = &head_norms;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].is_parallel = config->own.is_parallel;
        if (config->own.use_qk_norm) table->layers[i].head_norm = HEAD_NORM_OWN;
    }
}

const struct model_family family_stablelm = {
    .name = "StableLM",
    .architecture = "StableLmForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .change = change,
};
