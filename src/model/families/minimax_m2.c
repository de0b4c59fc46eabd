/* MiniMax-M2: experts in every layer, chosen by sigmoids with a bias for each. Norms of q and k are
 * over all heads, and a part of each head is rotated.
 * Source: the published config.json and transformers' MiniMaxM2. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "block_sparse_moe.gate",
    .choice_bias = "block_sparse_moe.e_score_correction_bias",
    .experts = "block_sparse_moe.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
};

const struct model_family family_minimax_m2 = {
    .name = "MiniMax-M2",
    .architecture = "MiniMaxM2ForCausalLM",
    .head_norm = HEAD_NORM_ROW,
    .expert_names = &names,
};
