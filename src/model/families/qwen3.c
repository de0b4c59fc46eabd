/* Qwen3 (dense): grouped-query attention with per-head q and k norms, SwiGLU, pre-norm.
 * Source: Qwen3 Technical Report, arXiv 2505.09388, and the published config.json files. */
#include "model/family.h"

const struct model_family family_qwen3 = {
    .name = "Qwen3",
    .architecture = "Qwen3ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
};
