/* Cohere's Command R, R7B, A, A+ and Aya: attention and MLP read one LayerNorm without biases, and
 * both results are added to the residual at once. Pairs of neighbours are rotated, and logits have
 * a factor. In R+ each head of q and k has a LayerNorm with weights of its own. In R7B and A three
 * of four layers have a window, and only these a rotary embedding. A+ has experts. Source:
 * transformers' Cohere, Cohere2 and Cohere2Moe, and the published config.json files. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "mlp.gate",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

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

// The sum of the shared expert and the others may be halved. Dense layers may have a rotary
// embedding without a window.
static void change_moe(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    change(table, config);
    table->is_layer_norm = !own->has_rms_norms;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        bool is_rotated = layer->window || (!layer->is_sparse && own->has_dense_ropes);
        if (!is_rotated) layer->rope = ROPE_NONE;
        if (layer->is_sparse && own->averages_experts) layer->mlp_scale = 0.5f;
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

const struct model_family family_cohere2_moe = {
    .name = "Command A+",
    .architecture = "Cohere2MoeForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &names,
    .change = change_moe,
};
