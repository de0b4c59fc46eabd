/* Hunyuan V1, dense and with experts beside a shared one in every layer: q and k are normed by head
 * behind the rotation. Hunyuan V3 norms them before it, and chooses experts by sigmoids with a bias
 * for each. Source: the published config.json files and transformers' HunYuanDenseV1, HunYuanMoEV1
 * and HYV3. */
#include "model/family.h"

static const struct norm_names norms = {.attention = "input_layernorm",
                                        .mlp = "post_attention_layernorm",
                                        .q = "self_attn.query_layernorm",
                                        .k = "self_attn.key_layernorm"};

static const struct expert_names names = {
    .router = "mlp.gate.wg",
    .shared = {"mlp.shared_mlp.gate_proj", "mlp.shared_mlp.up_proj", "mlp.shared_mlp.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static const struct expert_names v3_names = {
    .router = "mlp.router.gate",
    .choice_bias = "mlp.expert_bias",
    .shared = {"mlp.shared_mlp.gate_proj", "mlp.shared_mlp.up_proj", "mlp.shared_mlp.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->norms = &norms;
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].has_norm_after_rope = true;
}

const struct model_family family_hunyuan_dense = {
    .name = "Hunyuan",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change,
};

const struct model_family family_hunyuan_moe = {
    .name = "Hunyuan MoE",
    .architecture = "HunYuanMoEV1ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &names,
    .change = change,
};

const struct model_family family_hunyuan_v3 = {
    .name = "Hunyuan V3",
    .architecture = "HYV3ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &v3_names,
};
