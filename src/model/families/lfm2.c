/* LFM2 and LFM2.5, dense and with experts: gated short convolutions, and attention in some layers,
 * with q and k normed by head. Experts are chosen by sigmoids with a bias for each. Source: LFM2,
 * arXiv 2511.23404, and transformers' Lfm2 and Lfm2Moe. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "feed_forward.gate",
    .choice_bias = "feed_forward.expert_bias",
    .experts = "feed_forward.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .stacked_gate_up = "gate_up_proj",
    .stacked_down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "operator_norm",
                                            .mlp = "ffn_norm",
                                            .q = "self_attn.q_layernorm",
                                            .k = "self_attn.k_layernorm"};
    table->norms = &norms;
    table->final_norm = "model.embedding_norm";
    table->o_module = "self_attn.out_proj";
    table->mlp = (struct mlp_names){"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"};
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        if (!config->own.is_linear[i]) continue;
        layer->mixer = MIXER_SHORT_CONV;
        layer->rope = ROPE_NONE;
        layer->head_norm = HEAD_NORM_NONE;
    }
}

const struct model_family family_lfm2 = {
    .name = "LFM2",
    .architecture = "Lfm2ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .change = change,
};

const struct model_family family_lfm2_moe = {
    .name = "LFM2 MoE",
    .architecture = "Lfm2MoeForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .expert_names = &names,
    .change = change,
};
