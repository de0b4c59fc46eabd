/* Cohere's Command R, R7B, A and Aya: attention and MLP read one LayerNorm without biases, and both
 * results are added to the residual at once. Pairs of neighbours are rotated, and logits have a
 * factor. In R+ each head of q and k has a LayerNorm with weights of its own. In R7B and A three of
 * four layers have a window, and only these a rotary embedding.
 * Source: transformers' Cohere and Cohere2, and the published config.json files. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    table->is_layer_norm = true;
    table->is_rope_interleaved = true;
    table->logits_scale = config->own.logit_scale;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].is_parallel = true;
        if (config->own.use_qk_norm) table->layers[i].head_norm = HEAD_NORM_OWN;
    }
}

static void change_2(struct layer_table *table, const struct model_config *config) {
    change(table, config);
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (!table->layers[i].window) table->layers[i].rope = ROPE_NONE;
    }
}

const struct model_family family_cohere = {
    .name = "Command R",
    .architecture = "CohereForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change,
};

const struct model_family family_cohere2 = {
    .name = "Command A",
    .architecture = "Cohere2ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change_2,
};
