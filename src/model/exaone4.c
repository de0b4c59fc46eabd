/* EXAONE 4: norms behind attention and MLP, q and k normed by head. In the large model three of
 * four layers have a window, and only these have a rotary embedding.
 * Source: EXAONE 4.0, arXiv 2507.11407, and transformers' Exaone4. */
#include "model/family.h"

static void change(struct layer_table *table, const struct model_config *config) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->norm_place = NORM_AFTER;
        if (config->sliding_window && !layer->window) layer->rope = ROPE_NONE;
    }
}

const struct model_family family_exaone4 = {
    .name = "EXAONE 4",
    .architecture = "Exaone4ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .change = change,
};
