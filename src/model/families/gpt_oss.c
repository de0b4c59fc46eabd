/* gpt-oss: experts in every layer, with biases and a clamped activation; a window in every other
 * layer; attention sinks. A token's experts are weighed by the softmax of the chosen logits. That
 * is the softmax of all, divided by the sum of the chosen (norm_topk_prob).
 * Source: gpt-oss model card, arXiv 2508.10925, and transformers' GptOss. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "mlp.router",
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].has_sinks = true;
        table->layers[i].has_expert_bias = true;
        table->layers[i].activation = ACTIVATION_CLAMPED_SILU;
    }
}

const struct model_family family_gpt_oss = {
    .name = "gpt-oss",
    .architecture = "GptOssForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .o_bias = {.key = BIAS_ATTENTION, .by_default = true},
    .expert_names = &names,
    .change = change,
};
