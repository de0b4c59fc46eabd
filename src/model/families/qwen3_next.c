/* Qwen3-Next, Qwen3.5 and Qwen3.6, dense and with experts: three of four layers are gated delta
 * nets, the fourth has attention whose result is gated. Heads are normed, and rotated in part. All
 * norms are by 1 + weight but the delta nets' own. A shared expert is beside the others.
 * Sources: Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464, the published config.json files and
 * transformers' Qwen3Next and Qwen3_5. */
#include "model/family.h"

const struct expert_names qwen_expert_names = {
    .router = "mlp.gate",
    .shared = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
               "mlp.shared_expert.down_proj"},
    .shared_gate = "mlp.shared_expert_gate",
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .stacked_gate_up = "gate_up_proj",
    .stacked_down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    table->norm_kind = NORM_ONE_PLUS_WEIGHT;
    table->delta = config->own.delta;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->has_output_gate = !config->own.is_linear[i];
        if (!config->own.is_linear[i]) continue;
        layer->mixer = MIXER_GATED_DELTA_NET;
        layer->rope = ROPE_NONE;
        layer->head_norm = HEAD_NORM_NONE;
    }
}

static void change_next(struct layer_table *table, const struct model_config *config) {
    change(table, config);
    table->is_delta_stacked = true;
}

const struct model_family family_qwen3_next = {
    .name = "Qwen3-Next",
    .architecture = "Qwen3NextForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .expert_names = &qwen_expert_names,
    .change = change_next,
};

const struct model_family family_qwen3_5 = {
    .name = "Qwen3.5",
    .architecture = "Qwen3_5ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .change = change,
};

const struct model_family family_qwen3_5_moe = {
    .name = "Qwen3.5 MoE",
    .architecture = "Qwen3_5MoeForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .expert_names = &qwen_expert_names,
    .change = change,
};
