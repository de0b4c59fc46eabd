/* GLM-4.5, 4.5-Air, 4.6 and 4.7, Solar Open and Sarvam 30B: experts are chosen by sigmoids with a
 * bias for each, beside a shared expert. In GLM the first layers are dense, half of each head is
 * rotated, and q and k are normed where config.json says so. Source: GLM-4.5, arXiv 2508.06471, and
 * transformers' Glm4Moe, SolarOpen and SarvamMoE. */
#include "model/family.h"

const struct expert_names deepseek_expert_names = {
    .router = "mlp.gate",
    .choice_bias = "mlp.gate.e_score_correction_bias",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    for (uint32_t i = 0; i < table->num_layers && config->own.use_qk_norm; i++) {
        table->layers[i].head_norm = HEAD_NORM_EACH;
    }
}

const struct model_family family_glm4_moe = {
    .name = "GLM-4.5",
    .architecture = "Glm4MoeForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .expert_names = &deepseek_expert_names,
    .change = change,
};

const struct model_family family_solar_open = {
    .name = "Solar Open",
    .architecture = "SolarOpenForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .expert_names = &deepseek_expert_names,
};

static const struct expert_names sarvam_names = {
    .router = "mlp.gate",
    .choice_bias = "mlp.gate.expert_bias",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change_sarvam(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "input_layernorm",
                                            .mlp = "post_attention_layernorm",
                                            .q = "attention.query_layernorm",
                                            .k = "attention.key_layernorm"};
    change(table, config);
    table->norms = &norms;
    table->is_qkv_stacked = true;
    table->stacked_qkv = "attention.query_key_value";
    table->o_module = "attention.dense";
}

const struct model_family family_sarvam_moe = {
    .name = "Sarvam 30B",
    .architecture = "SarvamMoEForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .expert_names = &sarvam_names,
    .change = change_sarvam,
};
