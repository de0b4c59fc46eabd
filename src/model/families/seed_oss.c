/* Seed-OSS: Llama's layers with biases on q, k and v, and keys of config.json for those of the
 * other linears. Source: the published config.json and transformers' SeedOss. */
#include "model/family.h"

const struct model_family family_seed_oss = {
    .name = "Seed-OSS",
    .architecture = "SeedOssForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .o_bias = {.key = BIAS_ATTENTION_OUT},
    .mlp_bias = {.key = BIAS_MLP},
};
