/* GLM-4 and GLM-4-0414, of which GLM-Z1 is one: half of each head is rotated, in pairs of
 * neighbours, and gate and up are one tensor. 0414 has norms around attention and MLP. Source:
 * GLM-4, arXiv 2406.12793, and transformers' Glm and Glm4. */
#include "model/family.h"

static const char gate_up[] = "mlp.gate_up_proj";

static const struct norm_names norms = {.attention = "input_layernorm",
                                        .attention_post = "post_self_attn_layernorm",
                                        .mlp = "post_attention_layernorm",
                                        .mlp_post = "post_mlp_layernorm"};

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->is_rope_interleaved = true;
    table->mlp = (struct mlp_names){gate_up, gate_up, "mlp.down_proj"};
}

static void change_0414(struct layer_table *table, const struct model_config *config) {
    change(table, config);
    table->norms = &norms;
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].norm_place = NORM_AROUND;
}

const struct model_family family_glm = {
    .name = "GLM-4",
    .architecture = "GlmForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .change = change,
};

const struct model_family family_glm4 = {
    .name = "GLM-4-0414",
    .architecture = "Glm4ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .change = change_0414,
};
