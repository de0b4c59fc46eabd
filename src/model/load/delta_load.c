/* The tensors of a gated delta net. Of a rank's heads they are slices of rows or, in out_proj, of
 * columns, as in attention. */
#include "model/load/delta_load.h"

#include "model/load/state_load.h"

// The whole layer's heads, in rows of its tensors, and what this rank has of them.
struct delta_rows {
    uint32_t heads_per_key;
    uint32_t keys, values; // rows of all key heads, of all heads
    uint32_t key_start, key_count, value_start, value_count;
    uint32_t head_start, num_heads;
};

static const char stacked_gates[] = "linear_attn.in_proj_ba";

static struct delta_rows rows_of_rank(const struct decoder *d) {
    const struct delta_config *all = &d->table->delta;
    const struct gated_delta_shape *own = &d->shape.delta;
    uint32_t first = d->shape.delta_key_start, ratio = all->num_heads / all->num_key_heads;
    return (struct delta_rows){
        .heads_per_key = ratio,
        .keys = all->num_key_heads * all->key_dim,
        .values = all->num_heads * all->value_dim,
        .key_start = first * all->key_dim,
        .key_count = own->num_key_heads * all->key_dim,
        .value_start = first * ratio * all->value_dim,
        .value_count = own->num_heads * all->value_dim,
        .head_start = first * ratio,
        .num_heads = own->num_heads,
    };
}

// The parts of a layer's two linears: q, k, v and z, and the gates b and a.
struct delta_parts {
    struct row_part qkvz[4], gates[2];
};

static void parts_apart(struct delta_parts *out, const struct delta_rows *r, uint32_t heads) {
    uint32_t qkv = 2 * r->keys + r->values;
    *out = (struct delta_parts){
        {{delta_modules[0], qkv, r->key_start, r->key_count, 0, 0, {0}, 0},
         {delta_modules[0], qkv, r->keys + r->key_start, r->key_count, 0, 0, {0}, 0},
         {delta_modules[0], qkv, 2 * r->keys + r->value_start, r->value_count, 0, 0, {0}, 0},
         {delta_modules[1], r->values, r->value_start, r->value_count, 0, 0, {0}, 0}},
        {{"linear_attn.in_proj_b", heads, r->head_start, r->num_heads, 0, 0, {0}, 0},
         {"linear_attn.in_proj_a", heads, r->head_start, r->num_heads, 0, 0, {0}, 0}},
    };
}

// A key head's q, k, v and z follow each other, and then the next one's.
static void stack_qkvz(struct delta_parts *out, const struct decoder *d,
                       const struct delta_rows *r) {
    uint32_t key_dim = d->table->delta.key_dim;
    uint32_t values = r->heads_per_key * d->table->delta.value_dim;
    uint32_t stride = 2 * (key_dim + values), at = d->shape.delta_key_start * stride;
    const uint32_t starts[] = {0, key_dim, 2 * key_dim, 2 * key_dim + values};
    for (uint32_t i = 0; i < ARRAY_LEN(starts); i++) {
        bool is_key = i < 2;
        out->qkvz[i] = (struct row_part){STACKED_DELTA_MODULE,
                                         2 * (r->keys + r->values),
                                         at + starts[i],
                                         is_key ? r->key_count : r->value_count,
                                         is_key ? key_dim : values,
                                         stride,
                                         {0},
                                         0};
    }
}

// So do its b and a.
static void stack_gates(struct delta_parts *out, const struct delta_rows *r, uint32_t heads) {
    for (uint32_t i = 0; i < 2; i++) {
        out->gates[i] = (struct row_part){stacked_gates,
                                          2 * heads,
                                          2 * r->head_start + i * r->heads_per_key,
                                          r->num_heads,
                                          r->heads_per_key,
                                          2 * r->heads_per_key,
                                          {0},
                                          0};
    }
}

static enum status load_linears(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct delta_rows r = rows_of_rank(d);
    uint32_t heads = d->table->delta.num_heads;
    char name[WEIGHT_NAME_BYTES];
    struct delta_parts parts;
    parts_apart(&parts, &r, heads);
    if (delta_is_stacked(d->table, l->weights, index)) stack_qkvz(&parts, d, &r);
    layer_weight_name(name, index, stacked_gates, ".weight");
    if (d->table->is_delta_stacked && weights_has(l->weights, name)) stack_gates(&parts, &r, heads);
    const struct row_linear linears[] = {
        {parts.qkvz, 4, linear_formats_layer(&d->formats, index).qkv, &layer->qkv},
        {parts.gates, 2, linear_formats_router(), &layer->gates}};
    return loader_load_rows(l, index, linears, 2, d->config->hidden_size, false);
}

// This rank's channels of q, k and v.
static enum status load_conv(struct loader *l, uint32_t index, float **out) {
    const struct delta_rows r = rows_of_rank(l->decoder);
    const struct state_part parts[] = {{r.key_start, r.key_count},
                                       {r.keys + r.key_start, r.key_count},
                                       {2 * r.keys + r.value_start, r.value_count}};
    return state_load_taps(l, index, "linear_attn.conv1d", 2 * r.keys + r.values, DELTA_TAPS, parts,
                           ARRAY_LEN(parts), out);
}

enum status delta_load(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct delta_rows r = rows_of_rank(d);
    uint32_t heads = d->table->delta.num_heads, dim = d->table->delta.value_dim;
    const struct col_part o = {DELTA_OUT_MODULE, d->config->hidden_size,
                               r.values,         r.value_start,
                               r.value_count,    linear_formats_layer(&d->formats, index).o};
    const struct state_part own_heads = {r.head_start, r.num_heads}, whole_norm = {0, dim};
    struct delta_weights *delta = &layer->delta;
    enum status status = load_linears(l, index, layer);
    if (!status) status = loader_load_cols(l, index, &o, false, &layer->o);
    if (!status) status = load_conv(l, index, &delta->conv);
    if (!status) {
        status = state_load_decay(l, index, "linear_attn", heads, &own_heads, &delta->decay);
    }
    if (!status) {
        status = state_load_vector(l, index, "linear_attn.dt_bias", heads, &own_heads, 1,
                                   &delta->dt_bias);
    }
    if (status) return status;
    return state_load_vector(l, index, "linear_attn.norm.weight", dim, &whole_norm, 1,
                             &delta->norm);
}
