/* Gemma (text): norms by 1 + weight, GELU, embeddings times sqrt(hidden_size). Gemma 1 has no more
 * than that. Gemma 2 has norms behind attention and MLP too, a window in every second layer, and
 * soft limits of scores and logits. VaultGemma is Gemma 2 without the norms behind. Gemma 3 has q
 * and k normed by head in place of the limits, and in five of six layers a window and a rotary
 * embedding of their own. Sources: arXiv 2403.08295, arXiv 2408.00118, arXiv 2503.19786, and
 * transformers' Gemma, Gemma2, VaultGemma and Gemma3. */
#include <math.h>

#include "model/family.h"

static void change_1(struct layer_table *table, const struct model_config *config) {
    table->norm_kind = NORM_ONE_PLUS_WEIGHT;
    table->embedding_scale = sqrtf((float)config->hidden_size);
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].activation = ACTIVATION_GELU_TANH;
    }
}

static void change_vault(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "input_layernorm",
                                            .mlp = "pre_feedforward_layernorm"};
    const struct own_config *own = &config->own;
    float scalar = own->query_pre_attn_scalar > 0 ? own->query_pre_attn_scalar : 256;
    change_1(table, config);
    table->norms = &norms;
    table->logits_softcap = own->logits_softcap;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].query_scale = 1 / sqrtf(scalar);
        table->layers[i].softcap = own->scores_softcap;
    }
}

static void change(struct layer_table *table, const struct model_config *config) {
    change_vault(table, config);
    table->norms = NULL;
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].norm_place = NORM_AROUND;
}

static void change_3(struct layer_table *table, const struct model_config *config) {
    change(table, config);
    table->ropes[1] = config->local_rope;
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].rope = table->layers[i].window ? 1 : 0;
    }
}

const struct model_family family_gemma = {
    .name = "Gemma",
    .architecture = "GemmaForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change_1,
};

const struct model_family family_vault_gemma = {
    .name = "VaultGemma",
    .architecture = "VaultGemmaForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change_vault,
};

const struct model_family family_gemma2 = {
    .name = "Gemma 2",
    .architecture = "Gemma2ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change,
};

const struct model_family family_gemma3 = {
    .name = "Gemma 3",
    .architecture = "Gemma3ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change_3,
};
