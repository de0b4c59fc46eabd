/* Qwen3 with a mixture of experts in its sparse layers; config.json says which these are
 * (moe_config.h). Otherwise like Qwen3. Mellum 2 has a window in some layers, and these a rotary
 * embedding of their own. Source: Qwen3 Technical Report, arXiv 2505.09388, and transformers'
 * Mellum. */
#include "model/family.h"

const struct expert_names plain_expert_names = {
    .router = "mlp.gate",
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

const struct model_family family_qwen3_moe = {
    .name = "Qwen3 MoE",
    .architecture = "Qwen3MoeForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &plain_expert_names,
};

static void change_mellum(struct layer_table *table, const struct model_config *config) {
    table->ropes[1] = config->local_rope;
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].rope = table->layers[i].window ? 1 : 0;
    }
}

const struct model_family family_mellum = {
    .name = "Mellum 2",
    .architecture = "MellumForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &plain_expert_names,
    .change = change_mellum,
};
