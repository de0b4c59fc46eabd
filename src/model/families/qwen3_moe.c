/* Qwen3 with a mixture of experts in its sparse layers; config.json says which these are
 * (moe_config.h). Otherwise like Qwen3. Source: Qwen3 Technical Report, arXiv 2505.09388. */
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
