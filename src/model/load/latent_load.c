/* The tensors of multi-head latent attention. A head's rows of q are what is not rotated, then what
 * is: they become two linears. The matrix that makes keys and values of a latent has for each head
 * the rows of its key, then those of its value. Its keys are transposed, because they are applied
 * to q (backend/latent.h), so it is decoded whatever its format. */
#include "model/load/latent_load.h"

#include <stdlib.h>

#define HEADS_MODULE "self_attn.kv_b_heads"

static enum status load_queries(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct latent_config *c = &d->table->latent;
    const struct layer_formats formats = linear_formats_layer(&d->formats, i);
    const char *module = latent_q_module(c);
    uint32_t head = c->nope_dim + c->rope_dim, rows = d->config->num_heads * head;
    uint32_t start = d->shape.head_start * head, heads = d->shape.num_heads;
    uint32_t cols = c->query_rank ? c->query_rank : d->config->hidden_size;
    const struct head_rotation rotation =
        loader_rotation(d->table, &(struct layer){.rotary_dim = c->rope_dim});
    const struct row_part parts[] = {
        {module, rows, start, heads * c->nope_dim, c->nope_dim, head, {0}, 0},
        {module, rows, start + c->nope_dim, heads * c->rope_dim, c->rope_dim, head, rotation, 0},
    };
    const struct row_linear linears[] = {{&parts[0], 1, formats.q, &layer->query_nope},
                                         {&parts[1], 1, formats.q, &layer->query_rope}};
    enum status status = loader_load_rows(l, i, linears, 2, cols, false);
    if (status || !c->query_rank) return status;
    const struct row_part latent = {
        .module = LATENT_Q_MODULE, .rows = c->query_rank, .count = c->query_rank};
    const struct row_linear q_latent = {&latent, 1, formats.q_latent, &layer->query_latent};
    status = loader_load_rows(l, i, &q_latent, 1, d->config->hidden_size, false);
    if (status) return status;
    return loader_load_layer_norm(l, i, "self_attn.q_a_layernorm", c->query_rank, &layer->q_norm);
}

static enum status load_row(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct latent_config *c = &d->table->latent;
    uint32_t rows = c->rank + c->rope_dim;
    const struct head_rotation rotation =
        loader_rotation(d->table, &(struct layer){.rotary_dim = c->rope_dim});
    const struct row_part parts[] = {
        {LATENT_KV_MODULE, rows, 0, c->rank, 0, 0, {0}, 0},
        {LATENT_KV_MODULE, rows, c->rank, c->rope_dim, c->rope_dim, c->rope_dim, rotation, 0},
    };
    const struct row_linear row = {parts, 2, linear_formats_layer(&d->formats, i).qkv, &layer->qkv};
    enum status status = loader_load_rows(l, i, &row, 1, d->config->hidden_size, false);
    if (status) return status;
    return loader_load_layer_norm(l, i, "self_attn.kv_a_layernorm", c->rank, &layer->k_norm);
}

static struct matrix_slice slice_of(const float *values, uint32_t rows, uint32_t cols) {
    return (struct matrix_slice){.source = {.data = values},
                                 .dtype = DTYPE_F32,
                                 .rows = rows,
                                 .cols = cols,
                                 .row_stride = cols};
}

// `keys`: [heads of this rank][rank][nope_dim], to fill; `slices`: two of each head.
static enum status create_heads(struct loader *l, const float *matrix, float *keys,
                                struct matrix_slice *slices, struct latent **out) {
    const struct decoder *d = l->decoder;
    const struct latent_config *c = &d->table->latent;
    const struct latent_shape shape = decoder_latent_shape(d->table, &d->shape);
    uint32_t heads = shape.num_heads;
    for (uint32_t h = 0; h < heads; h++) {
        size_t row = (size_t)(d->shape.head_start + h) * (c->nope_dim + c->value_dim);
        const float *from = matrix + row * c->rank;
        float *key = keys + (size_t)h * c->rank * c->nope_dim;
        for (size_t k = 0; k < c->nope_dim; k++) {
            for (size_t r = 0; r < c->rank; r++) key[r * c->nope_dim + k] = from[k * c->rank + r];
        }
        slices[h] = slice_of(key, c->rank, c->nope_dim);
        slices[heads + h] = slice_of(from + (size_t)c->nope_dim * c->rank, c->value_dim, c->rank);
    }
    const struct latent_spec spec = {shape, slices, slices + heads};
    return d->backend->latent->create(d->backend, &spec, out, l->err);
}

// Takes the matrices of each head, which GGUF files have apart, the keys' transposed.
static enum status slice_heads(struct loader *l, uint32_t i, struct matrix_slice *slices) {
    const struct decoder *d = l->decoder;
    const struct latent_config *c = &d->table->latent;
    uint32_t first = d->shape.head_start, heads = d->shape.num_heads;
    const struct {
        const char *part;
        uint32_t rows, cols;
    } parts[] = {{"key", c->rank, c->nope_dim}, {"value", c->value_dim, c->rank}};
    for (uint32_t h = 0; h < d->config->num_heads; h++) {
        for (uint32_t k = 0; k < 2; k++) {
            char name[WEIGHT_NAME_BYTES];
            struct weight weight;
            expert_weight_name(name, i, HEADS_MODULE, h, parts[k].part, ".weight");
            enum status status = loader_take_matrix(l, name, parts[k].rows, parts[k].cols, &weight);
            if (status) return status;
            if (h < first || h >= first + heads) continue;
            slices[k * heads + h - first] = loader_rows_of(&weight, 0, parts[k].rows);
        }
    }
    return OK;
}

static enum status load_apart(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct latent_shape shape = decoder_latent_shape(d->table, &d->shape);
    struct matrix_slice *slices = calloc(2 * (size_t)shape.num_heads, sizeof *slices);
    if (!slices) return err_nomem(l->err, "latent attention");
    enum status status = slice_heads(l, i, slices);
    const struct latent_spec spec = {shape, slices, slices + shape.num_heads};
    if (!status) status = d->backend->latent->create(d->backend, &spec, &layer->latent, l->err);
    weights_release(l->weights);
    free(slices);
    return status;
}

static enum status load_heads(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct latent_config *c = &d->table->latent;
    const uint64_t shape[2] = {(uint64_t)d->config->num_heads * (c->nope_dim + c->value_dim),
                               c->rank};
    size_t heads = d->shape.num_heads;
    char name[WEIGHT_NAME_BYTES];
    expert_weight_name(name, i, HEADS_MODULE, 0, "key", ".weight");
    if (weights_has(l->weights, name)) return load_apart(l, i, layer);
    layer_weight_name(name, i, "self_attn.kv_b_proj", ".weight");
    float *matrix = NULL, *keys = malloc(heads * c->rank * c->nope_dim * sizeof *keys);
    struct matrix_slice *slices = calloc(2 * heads, sizeof *slices);
    enum status status = keys && slices ? OK : err_nomem(l->err, name);
    if (!status) status = loader_read_floats(l, name, 2, shape, &matrix);
    if (!status) status = create_heads(l, matrix, keys, slices, &layer->latent);
    weights_release(l->weights);
    free(matrix);
    free(keys);
    free(slices);
    return status;
}

enum status latent_load(struct loader *l, uint32_t i, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    uint32_t dim = d->table->latent.value_dim;
    const struct col_part o = {.module = d->table->o_module,
                               .rows = d->config->hidden_size,
                               .cols = d->config->num_heads * dim,
                               .start = d->shape.head_start * dim,
                               .count = d->shape.num_heads * dim,
                               .format = linear_formats_layer(&d->formats, i).o};
    enum status status = load_queries(l, i, layer);
    if (!status) status = load_row(l, i, layer);
    if (!status) status = load_heads(l, i, layer);
    return status ? status : loader_load_cols(l, i, &o, false, &layer->o);
}
