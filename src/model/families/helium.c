/* Helium: Llama's layers with pairs of neighbours rotated. Source: transformers' Helium. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->is_rope_interleaved = true;
}

const struct model_family family_helium = {
    .name = "Helium",
    .architecture = "HeliumForCausalLM",
    .qkv_bias = {.key = BIAS_ATTENTION},
    .mlp_bias = {.key = BIAS_MLP},
    .change = change,
};
