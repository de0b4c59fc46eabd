/* DeepSeek-V2, DeepSeek-V3 (R1, V3.1, Kimi K2, Moonlight and Sarvam 105B have its architecture),
 * GLM-4.7-Flash, Mistral 4, A.X-K1 and Youtu: multi-head latent attention, and experts beside
 * shared ones, which may be chosen within the best groups. V2 and Mistral 4 choose them by softmax,
 * the others by sigmoids with a bias for each. Mistral 4 scales q by its position. A.X-K1 has a
 * norm behind its experts. Youtu has no experts.
 * Source: DeepSeek-V2, arXiv 2405.04434, DeepSeek-V3, arXiv 2412.19437, and transformers'
 * DeepseekV2, DeepseekV3, Glm4MoeLite, Mistral4, AXK1 and Youtu. */
#include <math.h>

#include "model/family.h"
#include "model/rope.h"

static const struct expert_names v2_names = {
    .router = "mlp.gate",
    .shared = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
               "mlp.shared_experts.down_proj"},
    .experts = "mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

static void change(struct layer_table *table, const struct model_config *config) {
    const struct latent_config *latent = &config->own.latent;
    const struct rope_config *rope = &config->rope;
    double scale = 1 / sqrt((double)latent->nope_dim + latent->rope_dim);
    if (rope->type == ROPE_YARN && rope->mscale_all_dim > 0) {
        double mscale = rope_yarn_mscale(rope->factor, rope->mscale_all_dim);
        scale *= mscale * mscale;
    }
    table->latent = *latent;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->mixer = MIXER_LATENT_ATTENTION;
        layer->head_dim = latent->rank + latent->rope_dim;
        layer->num_kv_heads = 1;
        layer->query_scale = (float)scale;
    }
}

const struct model_family family_deepseek_v2 = {
    .name = "DeepSeek-V2",
    .architecture = "DeepseekV2ForCausalLM",
    .expert_names = &v2_names,
    .change = change,
};

const struct model_family family_deepseek_v3 = {
    .name = "DeepSeek-V3",
    .architecture = "DeepseekV3ForCausalLM",
    .expert_names = &deepseek_expert_names,
    .change = change,
};

const struct model_family family_glm4_moe_lite = {
    .name = "GLM-4.7-Flash",
    .architecture = "Glm4MoeLiteForCausalLM",
    .expert_names = &deepseek_expert_names,
    .change = change,
};

static void change_axk1(struct layer_table *table, const struct model_config *config) {
    static const struct norm_names norms = {.attention = "input_layernorm",
                                            .mlp = "post_attention_layernorm",
                                            .mlp_post = "post_mlp_layernorm"};
    change(table, config);
    table->norms = &norms;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (table->layers[i].is_sparse) table->layers[i].norm_place = NORM_AROUND;
    }
}

const struct model_family family_axk1 = {
    .name = "A.X-K1",
    .architecture = "AXK1ForCausalLM",
    .expert_names = &deepseek_expert_names,
    .change = change_axk1,
};

const struct model_family family_mistral4 = {
    .name = "Mistral 4",
    .architecture = "Mistral4ForCausalLM",
    .expert_names = &v2_names,
    .change = change,
};

const struct model_family family_youtu = {
    .name = "Youtu",
    .architecture = "YoutuForCausalLM",
    .change = change,
};
