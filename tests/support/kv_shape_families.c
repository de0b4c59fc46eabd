/* The table of families for tests of layers whose keys and values have different shapes. Linked
 * into a program, it replaces src/model/families/families.c. In it every second layer of a model
 * of Qwen3 has one KV head, a rotary embedding of its own, and heads of half as many elements
 * more, or of 512 where the others have 256. From the fourth layer on there is a window. Gemma 4
 * is as always. tools/reference/make_reference.py has the same in transformers. */
#include <math.h>

#include "model/family.h"

static void make_shapes(struct layer_table *table, const struct model_config *config) {
    table->ropes[1] = config->rope;
    table->ropes[1].theta = 500;
    table->num_ropes = 2;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        struct layer *layer = &table->layers[i];
        layer->window = i < 3 ? 0 : 48;
        if (i % 2 == 0) continue;
        layer->num_kv_heads = 1;
        layer->head_dim = config->head_dim == 256 ? 512 : config->head_dim * 3 / 2;
        layer->rotary_dim = layer->head_dim;
        layer->query_scale = 1 / sqrtf((float)layer->head_dim);
        layer->rope = 1;
    }
}

static const struct model_family family_kv_shapes = {
    .name = "Shapes",
    .architecture = "Qwen3ForCausalLM",
    .head_norm = HEAD_NORM_EACH,
    .change = make_shapes,
};

const struct model_family *const model_families[] = {&family_kv_shapes, &family_gemma4, NULL};
