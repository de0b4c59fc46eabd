/* Llama 4 (text): three of four layers have a rotary embedding, q and k normed behind it without
 * weights, and attention in chunks. The others see all positions, and scale q by its own. A token's
 * one expert is beside a shared one, and reads its input times the sigmoid of the router's logit.
 * Source: the published config.json files, and transformers' Llama4. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "feed_forward.router",
    .shared = {"feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj",
               "feed_forward.shared_expert.down_proj"},
    .experts = "feed_forward.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    table->is_rope_interleaved = true;
    table->is_chunked = true;
    table->scales_expert_inputs = true;
    table->has_plain_head_norms = true;
    table->mlp = (struct mlp_names){"feed_forward.gate_proj", "feed_forward.up_proj",
                                    "feed_forward.down_proj"};
    table->ropes[1] = (struct rope_config){.type = ROPE_DEFAULT,
                                           .theta = config->rope.theta,
                                           .partial = 1,
                                           .query_beta = own->temperature_scale,
                                           .query_length = own->temperature_length,
                                           .query_offset = 1};
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        if (own->has_no_rope[i]) { // positions change q's size alone
            layer->rope = own->temperature_scale > 0 ? 1 : ROPE_NONE;
            layer->rotary_dim = 0;
        } else if (own->use_qk_norm) {
            layer->head_norm = HEAD_NORM_EACH;
            layer->has_norm_after_rope = true;
        }
    }
}

const struct model_family family_llama4 = {
    .name = "Llama 4",
    .architecture = "Llama4ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &names,
    .change = change,
};
