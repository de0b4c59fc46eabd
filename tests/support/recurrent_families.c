/* The table of families for tests of recurrent layers, which no published family here has. Linked
 * into a program, it replaces src/model/families.c. In it a model of Qwen3 has linear attention in
 * two of three layers, without rotary embedding. So the bundled checkpoints are such models. */
#include "model/family.h"

static void make_recurrent(struct layer_table *table, const struct model_config *config) {
    (void)config;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        if (i % 3 == 2) continue;
        table->layers[i].mixer = MIXER_LINEAR_ATTENTION;
        table->layers[i].rope = ROPE_NONE;
    }
}

static const struct model_family family_recurrent = {
    .name = "Recurrent",
    .architecture = "Qwen3ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .qkv_bias = {BIAS_ATTENTION, false},
    .o_bias = {BIAS_ATTENTION, false},
    .change = make_recurrent,
};

const struct model_family *const model_families[] = {&family_recurrent, NULL};
