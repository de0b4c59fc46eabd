/* Gemma 2 and 3 (text): norms around attention and MLP, all by 1 + weight, GELU, embeddings times
 * sqrt(hidden_size). Gemma 2 has a window in every second layer, and soft limits of scores and
 * logits. Gemma 3 has q and k normed by head in their place, and in five of six layers a window and
 * a rotary embedding of their own. Sources: arXiv 2408.00118, arXiv 2503.19786, and transformers'
 * Gemma2 and Gemma3. */
#include <math.h>

#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    float scalar = own->query_pre_attn_scalar > 0 ? own->query_pre_attn_scalar : 256;
    table->norm_kind = NORM_ONE_PLUS_WEIGHT;
    table->embedding_scale = sqrtf((float)config->hidden_size);
    table->logits_softcap = own->logits_softcap;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->norm_place = NORM_AROUND;
        layer->activation = ACTIVATION_GELU_TANH;
        layer->query_scale = 1 / sqrtf(scalar);
        layer->softcap = own->scores_softcap;
    }
}

static void change_3(struct layer_table *table, const struct model_config *config) {
    change(table, config);
    table->ropes[1] = config->local_rope;
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].rope = table->layers[i].window ? 1 : 0;
    }
}

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
