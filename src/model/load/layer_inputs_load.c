/* The tensors of Gemma 4's E2B and E4B: a second embedding, with a row for each layer, and layers
 * that read the keys and values of earlier ones. The embedding is cut like the vocabulary; every
 * rank has the small matrices whole. */
#include "model/load/layer_inputs_load.h"

#include <math.h>
#include <stdio.h>

static enum status load_whole(struct loader *l, const char *name, uint32_t rows, uint32_t cols,
                              struct linear **out) {
    struct weight weight;
    enum status status = loader_take_matrix(l, name, rows, cols, &weight);
    if (status) return status;
    struct matrix_slice slice = loader_rows_of(&weight, 0, rows);
    const struct linear_spec spec = {&slice, NULL, 1, linear_formats_router()};
    return loader_create_linear(l, &spec, out);
}

enum status layer_inputs_load(struct loader *l) {
    struct decoder *d = l->decoder;
    uint32_t size = d->table->layer_input_size, cols = d->table->num_layers * size;
    if (!size) return OK;
    enum status status =
        loader_load_vocabulary(l, LAYER_EMBEDDING, cols, false,
                               linear_formats_layer_embedding(&d->formats), &d->layer_embedding);
    if (!status) {
        status = load_whole(l, "model.per_layer_model_projection.weight", cols,
                            d->config->hidden_size, &d->layer_projection);
    }
    if (status) return status;
    return loader_load_norm(l, "model.per_layer_projection_norm.weight", size, sqrtf(0.5f),
                            &d->layer_projection_norm);
}

enum status layer_inputs_load_layer(struct loader *l, uint32_t index) {
    struct decoder_layer *layer = &l->decoder->layers[index];
    uint32_t size = l->decoder->table->layer_input_size, hidden = l->decoder->config->hidden_size;
    char name[WEIGHT_NAME_BYTES];
    if (!size) return OK;
    layer_weight_name(name, index, "per_layer_input_gate", ".weight");
    enum status status = load_whole(l, name, size, hidden, &layer->input_gate);
    layer_weight_name(name, index, "per_layer_projection", ".weight");
    if (!status) status = load_whole(l, name, hidden, size, &layer->input_projection);
    if (status) return status;
    return loader_load_layer_norm(l, index, "post_per_layer_input_norm", hidden,
                                  &layer->input_end_norm);
}

enum status layer_inputs_drop_keys(struct loader *l, uint32_t index) {
    const struct layer *layer = &l->decoder->table->layers[index];
    const uint64_t shape[2] = {(uint64_t)layer->num_kv_heads * layer->head_dim,
                               l->decoder->config->hidden_size};
    const uint64_t norm_shape[1] = {layer->head_dim};
    const struct {
        const char *module;
        uint32_t rank;
        const uint64_t *shape;
    } tensors[] = {{l->decoder->table->qkv_modules[1], 2, shape},
                   {l->decoder->table->qkv_modules[2], 2, shape},
                   {"self_attn.k_norm", 1, norm_shape}};
    if (layer->kv_source == KV_OWN) return OK;
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        char name[WEIGHT_NAME_BYTES];
        struct weight weight;
        layer_weight_name(name, index, tensors[i].module, ".weight");
        if (!weights_has(l->weights, name)) continue;
        enum status status =
            weights_take(l->weights, name, tensors[i].rank, tensors[i].shape, &weight, l->err);
        if (status) return status;
    }
    weights_release(l->weights);
    return OK;
}
