/* NanoChat: norms without weights, also of the embeddings; q and k are normed by head behind a
 * rotation in the other direction; an MLP of max(x, 0)^2 without a gate; a soft limit of logits.
 * Source: the published config.json files and transformers' NanoChat. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    table->has_plain_norms = table->has_plain_head_norms = true;
    table->norms_embeddings = true;
    table->ropes[0].is_reversed = true;
    table->mlp = (struct mlp_names){NULL, "mlp.fc1", "mlp.fc2"};
    table->logits_softcap = config->own.logits_softcap;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        table->layers[i].activation = ACTIVATION_RELU_SQUARED;
        table->layers[i].has_norm_after_rope = true;
    }
}

const struct model_family family_nanochat = {
    .name = "NanoChat",
    .architecture = "NanoChatForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {.key = BIAS_ATTENTION},
    .o_bias = {.key = BIAS_ATTENTION},
    .change = change,
};
