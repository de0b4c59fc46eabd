/* InternLM3: Llama with other names of the keys of biases. Source: transformers' InternLM3. */
#include "model/family.h"

const struct model_family family_internlm3 = {
    .name = "InternLM3",
    .architecture = "InternLM3ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
};
