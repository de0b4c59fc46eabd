/* Nemotron-H, Nemotron Nano v2 and Nemotron 3: each layer is one block with one norm. It is
 * Mamba-2, attention without a rotary embedding, an MLP without a gate, or such experts, chosen by
 * sigmoids with a bias, beside one that all tokens go to. Sources: arXiv 2504.03624, arXiv
 * 2508.14444, the published config.json files and transformers' NemotronH. */
#include "model/family.h"

static const struct expert_names names = {
    .router = "mixer.gate",
    .choice_bias = "mixer.gate.e_score_correction_bias",
    .shared = {.up = "mixer.shared_experts.up_proj", .down = "mixer.shared_experts.down_proj"},
    .experts = "mixer.experts",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "norm", .mlp = "norm"};
    static const char *const qkv[] = {"mixer.q_proj", "mixer.k_proj", "mixer.v_proj"};
    table->norms = &norms;
    table->qkv_modules = qkv;
    table->o_module = "mixer.o_proj";
    table->mlp = (struct mlp_names){.up = "mixer.up_proj", .down = "mixer.down_proj"};
    table->mamba = config->own.mamba;
    table->mamba_module = "mixer";
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        char block = config->own.blocks[i];
        layer->rope = ROPE_NONE;
        layer->activation = ACTIVATION_RELU_SQUARED;
        layer->lacks_mlp = block == BLOCK_MAMBA || block == BLOCK_ATTENTION;
        if (block == BLOCK_MAMBA) layer->mixer = MIXER_MAMBA;
        if (!layer->lacks_mlp) layer->mixer = MIXER_NONE;
    }
}

const struct model_family family_nemotron_h = {
    .name = "Nemotron-H",
    .architecture = "NemotronHForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .expert_names = &names,
    .change = change,
};
