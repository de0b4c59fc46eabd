/* dots.llm1: GLM-4.5's experts, in layers as Qwen3's. Source: the published config.json and
 * transformers' Dots1. */
#include "model/family.h"

const struct model_family family_dots1 = {
    .name = "dots.llm1",
    .architecture = "Dots1ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &deepseek_expert_names,
};
