/* Falcon-H1: each layer has attention and Mamba-2 of the same normed residual, then an MLP. Factors
 * are at most places. Those that a nonlinear function follows become part of the weights: of the
 * MLP's gate and of Mamba's z, x, B, C and dt. Those of q and k are one factor of the scores.
 * Source: arXiv 2507.22448, the published config.json files and transformers' FalconH1. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "input_layernorm",
                                            .mlp = "pre_ff_layernorm"};
    const struct hybrid_factors *f = &config->own.factors;
    table->norms = &norms;
    table->final_norm = "model.final_layernorm";
    table->mlp = (struct mlp_names){"feed_forward.gate_proj", "feed_forward.up_proj",
                                    "feed_forward.down_proj"};
    table->mamba = config->own.mamba;
    table->mamba_module = "mamba";
    table->loses_factors_by_mlx = true;
    table->lacks_mamba_norm = config->own.lacks_mamba_norm;
    table->embedding_scale = config->own.embedding_multiplier;
    table->logits_scale = f->lm_head;
    table->gate_scale = f->gate;
    for (uint32_t k = 0; k < MAMBA_PARTS; k++) table->mamba_scales[k] = f->ssm_in * f->ssm[k];
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->has_mamba = true;
        layer->query_scale *= f->attention_in * f->attention_in * f->key;
        layer->residual_scale = f->attention_in * f->attention_out; // of v and of the result
        layer->mamba_scale = f->ssm_out;
        layer->mlp_scale = f->down;
    }
}

const struct model_family family_falcon_h1 = {
    .name = "Falcon-H1",
    .architecture = "FalconH1ForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change,
};
