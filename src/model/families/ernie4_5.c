/* ERNIE 4.5: Llama's layers with pairs of neighbours rotated. With experts these are chosen by
 * softmax and a bias for each, beside a shared one; the first layer is dense. Source: the published
 * config.json files and transformers' Ernie4_5 and Ernie4_5_Moe. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "mlp.gate",
    .choice_bias = "mlp.moe_statics.e_score_correction_bias",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->is_rope_interleaved = true;
}

const struct model_family family_ernie4_5 = {
    .name = "ERNIE 4.5",
    .architecture = "Ernie4_5ForCausalLM",
    .change = change,
};

const struct model_family family_ernie4_5_moe = {
    .name = "ERNIE 4.5 MoE",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .expert_names = &names,
    .change = change,
};
