/* Phi-1, 1.5 and 2: attention and MLP read one LayerNorm, and all linears have biases, lm_head too.
 * A part of each head is rotated. Source: arXiv 2309.05463, and transformers' Phi. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->is_layer_norm = table->has_norm_bias = true;
    table->has_lm_head_bias = true;
    table->final_norm = "model.final_layernorm";
    table->o_module = "self_attn.dense";
    table->mlp = (struct mlp_names){NULL, "mlp.fc1", "mlp.fc2"};
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].is_parallel = true;
        table->layers[i].activation = ACTIVATION_GELU_TANH;
    }
}

const struct model_family family_phi = {
    .name = "Phi",
    .architecture = "PhiForCausalLM",
    .qkv_bias = {.by_default = true},
    .o_bias = {.by_default = true},
    .mlp_bias = {.by_default = true},
    .change = change,
};
