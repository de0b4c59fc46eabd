/* Granite 3 and 4: Llama's layers with four factors, of the embeddings, the scores, what is added
 * to the residual, and the logits. Two small models of Granite 3 have experts. Granite 4 may have
 * Mamba-2 in most layers, and experts beside an MLP that all tokens go to; models without experts
 * have that MLP alone. Granite SWA has attention sinks, a window in three of four layers, and may
 * have a theta for each layer.
 *
 * HyperCLOVA X has Granite's factors, but multiplies the logits where Granite divides them, and
 * has norms behind attention and MLP too. MiniCPM has three of the factors, by names of its own.
 *
 * Sources: the published config.json files, arXiv 2404.06395 (MiniCPM), and transformers' Granite,
 * GraniteMoe, GraniteMoeHybrid, GraniteSWA and HyperCLOVAX. */
#include <math.h>

#include "model/family.h"

static const struct expert_names names = {
    .router = "block_sparse_moe.router.layer",
    .experts = "block_sparse_moe",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .stacked_gate_up = "input_linear.weight",
    .stacked_down = "output_linear.weight",
};

// The MLP that all tokens go to.
static const char shared_gate_up[] = "shared_mlp.input_linear";
static const char shared_down[] = "shared_mlp.output_linear";
// In GGUF files.
static const struct mlp_names shared_apart = {"shared_mlp.gate_proj", "shared_mlp.up_proj",
                                              "shared_mlp.down_proj"};

static const struct expert_names hybrid_names = {
    .router = "block_sparse_moe.router.layer",
    .shared = {shared_gate_up, shared_gate_up, shared_down},
    .experts = "block_sparse_moe",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .stacked_gate_up = "input_linear.weight",
    .stacked_down = "output_linear.weight",
};

static void change(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    table->embedding_scale = own->embedding_multiplier;
    table->logits_scale = 1 / own->logits_scaling;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        // transformers' class has 1 where the key is missing.
        table->layers[i].query_scale =
            own->attention_multiplier > 0 ? own->attention_multiplier : 1;
        table->layers[i].residual_scale = table->layers[i].mlp_scale = own->residual_multiplier;
    }
}

// Layers with the same theta have one table. num_ropes is too large by one if there are more
// thetas than tables, which layer_table_check refuses.
static void set_thetas(struct layer_table *table, const double *thetas) {
    const struct rope_config rope = table->ropes[0];
    table->num_ropes = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        uint32_t k = 0;
        table->layers[i].rope = ROPE_NONE;
        if (thetas[i] == 0) continue;
        while (k < table->num_ropes && table->ropes[k].theta != thetas[i]) k++;
        table->layers[i].rope = k;
        if (k < table->num_ropes) continue;
        if (++table->num_ropes > ROPE_TABLES_MAX) return;
        table->ropes[k] = rope;
        table->ropes[k].theta = thetas[i];
    }
}

static void change_swa(struct layer_table *table, const struct model_config *config) {
    change(table, config);
    if (config->own.layer_thetas) set_thetas(table, config->own.layer_thetas);
    for (uint32_t i = 0; i < table->num_layers; i++) table->layers[i].has_sinks = true;
}

static void change_minicpm(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    float scale = own->residual_multiplier / sqrtf((float)config->num_layers);
    table->embedding_scale = own->embedding_multiplier;
    table->logits_scale = own->dim_model_base / (float)config->hidden_size;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].residual_scale = table->layers[i].mlp_scale = scale;
    }
}

static void change_clovax(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "input_layernorm",
                                            .attention_post = "post_norm1",
                                            .mlp = "post_attention_layernorm",
                                            .mlp_post = "post_norm2"};
    change(table, config);
    table->logits_scale = config->own.logits_scaling;
    table->norms = &norms;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        if (config->own.attention_multiplier == 0) {
            layer->query_scale = 1 / sqrtf((float)layer->head_dim);
        }
        if (!config->own.lacks_post_norm) layer->norm_place = NORM_AROUND;
    }
}

static void change_hybrid(struct layer_table *table, const struct model_config *config) {
    const struct own_config *own = &config->own;
    change(table, config);
    table->mlp = hybrid_names.shared;
    table->mlp_apart = &shared_apart;
    table->mamba = own->mamba;
    table->mamba_module = "mamba";
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (own->lacks_rope || own->is_linear[i]) table->layers[i].rope = ROPE_NONE;
        if (own->is_linear[i]) table->layers[i].mixer = MIXER_MAMBA;
    }
}

const struct model_family family_granite_hybrid = {
    .name = "Granite 4",
    .architecture = "GraniteMoeHybridForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &hybrid_names,
    .change = change_hybrid,
};

const struct model_family family_granite = {
    .name = "Granite",
    .architecture = "GraniteForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change,
};

const struct model_family family_granite_swa = {
    .name = "Granite SWA",
    .architecture = "GraniteSWAForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change_swa,
};

const struct model_family family_granite_moe = {
    .name = "Granite 3 MoE",
    .architecture = "GraniteMoeForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &names,
    .change = change,
};

const struct model_family family_minicpm = {
    .name = "MiniCPM",
    .architecture = "MiniCPMForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change_minicpm,
};

const struct model_family family_hyperclovax = {
    .name = "HyperCLOVA X",
    .architecture = "HyperCLOVAXForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change_clovax,
};

const struct model_family family_granite_moe_shared = {
    .name = "Granite MoE with a shared expert",
    .architecture = "GraniteMoeSharedForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &hybrid_names,
    .change = change,
};

static const struct expert_names swa_names = {
    .router = "block_sparse_moe.router",
    .shared = {shared_gate_up, shared_gate_up, shared_down},
    .experts = "block_sparse_moe.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

const struct model_family family_granite_moe_swa = {
    .name = "Granite MoE SWA",
    .architecture = "GraniteMoeSWAForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .expert_names = &swa_names,
    .change = change_swa,
};
