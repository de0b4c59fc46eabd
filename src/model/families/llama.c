/* Llama 2 to 3.x, and the many models published under its name: pre-norm, SwiGLU, grouped-query
 * attention where config.json says so; biases only where config.json asks for them. CWM has a
 * window in three of four layers. Source: arXiv 2302.13971, 2307.09288 and 2407.21783, the
 * published config.json files, and transformers' Cwm. */
#include "model/family.h"

const struct model_family family_llama = {
    .name = "Llama",
    .architecture = "LlamaForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
};

const struct model_family family_cwm = {
    .name = "CWM",
    .architecture = "CwmForCausalLM",
    .mlp_bias = {.key = BIAS_MLP},
};
