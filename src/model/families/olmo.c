/* OLMo 2, 3, OLMoE and FlexOlmo: norms of q and k over all heads. All but OLMoE have norms behind
 * attention and MLP instead of in front. In OLMo 3 three of four layers have a window, and only
 * the others a scaled rotary embedding. OLMoE and FlexOlmo have experts in every layer. Sources:
 * arXiv 2501.00656, arXiv 2512.13961, arXiv 2409.02060, and transformers' Olmo2, Olmo3, Olmoe and
 * FlexOlmo. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    table->ropes[1] = config->local_rope;
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].norm_place = NORM_AFTER;
        table->layers[i].rope = table->layers[i].window ? 1 : 0;
    }
}

const struct model_family family_olmo2 = {
    .name = "OLMo 2",
    .architecture = "Olmo2ForCausalLM",
    .head_norm = HEAD_NORM_ROW,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change,
};

const struct model_family family_olmo3 = {
    .name = "OLMo 3",
    .architecture = "Olmo3ForCausalLM",
    .head_norm = HEAD_NORM_ROW,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change,
};

static void change_flex(struct layer_table *table, const struct model_config *config) {
    (void)config;
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].norm_place = NORM_AFTER;
}

const struct model_family family_flex_olmo = {
    .name = "FlexOlmo",
    .architecture = "FlexOlmoForCausalLM",
    .head_norm = HEAD_NORM_ROW,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &plain_expert_names,
    .change = change_flex,
};

const struct model_family family_olmoe = {
    .name = "OLMoE",
    .architecture = "OlmoeForCausalLM",
    .head_norm = HEAD_NORM_ROW,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &plain_expert_names,
};
