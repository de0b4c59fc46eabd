/* Qwen1.5, Qwen2 and Qwen2.5: Llama's layers with biases on q, k and v, whatever the configuration
 * says. With experts (Qwen1.5-MoE and Qwen2-57B-A14B) a shared one with a gate is beside the
 * others. Source: Qwen2 Technical Report, arXiv 2407.10671, and the published checkpoints. */
#include "model/family.h"

const struct model_family family_qwen2 = {
    .name = "Qwen2",
    .architecture = "Qwen2ForCausalLM",
    .qkv_bias = {.by_default = true},
};

const struct model_family family_qwen2_moe = {
    .name = "Qwen2 MoE",
    .architecture = "Qwen2MoeForCausalLM",
    .qkv_bias = {.by_default = true},
    .expert_names = &qwen_expert_names,
};
