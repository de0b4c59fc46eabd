/* Arcee's AFMoE (Trinity): norms around attention and MLP, q and k normed by head, gates of
 * attention's result. Three of four layers have a window, and only these a rotary embedding. Behind
 * some dense layers experts are chosen by sigmoids with a bias for each, beside a shared one.
 * Source: the published config.json files and transformers' Afmoe. */
#include <math.h>

#include "model/family.h"

static const struct expert_names names = {
    .router = "mlp.router.gate",
    .choice_bias = "mlp.expert_bias",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static const struct norm_names norms = {.attention = "input_layernorm",
                                        .attention_post = "post_attention_layernorm",
                                        .mlp = "pre_mlp_layernorm",
                                        .mlp_post = "post_mlp_layernorm",
                                        .q = "self_attn.q_norm",
                                        .k = "self_attn.k_norm"};

static void change(struct layer_table *table, const struct model_config *config) {
    table->norms = &norms;
    table->gate_module = "self_attn.gate_proj";
    if (config->own.scales_embeddings) table->embedding_scale = sqrtf((float)config->hidden_size);
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->norm_place = NORM_AROUND;
        layer->has_output_gate = true;
        if (!layer->window) layer->rope = ROPE_NONE;
    }
}

const struct model_family family_afmoe = {
    .name = "AFMoE",
    .architecture = "AfmoeForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .expert_names = &names,
    .change = change,
};
