/* Bamba: Mamba-2 in most layers, attention that rotates half of each head in the others, and an MLP
 * in all. Source: the published config.json files and transformers' Bamba. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "input_layernorm",
                                            .mlp = "pre_ff_layernorm"};
    table->norms = &norms;
    table->final_norm = "model.final_layernorm";
    table->mlp = (struct mlp_names){"feed_forward.gate_proj", "feed_forward.up_proj",
                                    "feed_forward.down_proj"};
    table->mamba = config->own.mamba;
    table->mamba_module = "mamba";
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (!config->own.is_linear[i]) continue;
        table->layers[i].mixer = MIXER_MAMBA;
        table->layers[i].rope = ROPE_NONE;
    }
}

const struct model_family family_bamba = {
    .name = "Bamba",
    .architecture = "BambaForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change,
};
