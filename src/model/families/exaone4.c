/* EXAONE 4: norms behind attention and MLP, q and k normed by head. In the large model three of
 * four layers have a window, and only these have a rotary embedding. K-EXAONE has these layers with
 * norms before, and DeepSeek's experts.
 * Source: EXAONE 4.0, arXiv 2507.11407, and transformers' Exaone4 and ExaoneMoe. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "mlp.gate",
    .choice_bias = "mlp.e_score_correction_bias",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change_moe(struct layer_table *table, const struct model_config *config) {
    for (uint32_t i = 0; i < table->num_layers && config->sliding_window; i++) {
        if (!table->layers[i].window) table->layers[i].rope = ROPE_NONE;
    }
}

static void change(struct layer_table *table, const struct model_config *config) {
    change_moe(table, config);
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].norm_place = NORM_AFTER;
}

const struct model_family family_exaone4 = {
    .name = "EXAONE 4",
    .architecture = "Exaone4ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .change = change,
};

const struct model_family family_exaone_moe = {
    .name = "K-EXAONE",
    .architecture = "ExaoneMoeForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .expert_names = &names,
    .change = change_moe,
};
