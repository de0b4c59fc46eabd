/* Mixtral: Mistral with experts in every layer. Source: Mixtral of Experts, arXiv 2401.04088, and
 * the published checkpoints. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "block_sparse_moe.gate",
    .experts = "block_sparse_moe.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
};

const struct model_family family_mixtral = {
    .name = "Mixtral",
    .architecture = "MixtralForCausalLM",
    .expert_names = &names,
};
