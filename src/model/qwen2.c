/* Qwen2 and Qwen2.5: Llama's layers with biases on q, k and v, whatever the configuration says.
 * Source: Qwen2 Technical Report, arXiv 2407.10671, and the published checkpoints. */
#include "model/family.h"

const struct model_family family_qwen2 = {
    .name = "Qwen2",
    .architecture = "Qwen2ForCausalLM",
    .qkv_bias = {.by_default = true},
};
