/* The tensors of a layer with Mamba-2. Of a rank's heads and groups they are slices of rows or, in
 * out_proj, of columns. in_proj has the rows of z, x, B, C and dt in one tensor. */
#include "model/load/mamba_load.h"

#include "model/load/state_load.h"

// The whole layer's heads and groups, in rows of its tensors, and what this rank has of them.
struct mamba_rows {
    uint32_t values, states; // rows of all heads; of all groups' B, or C
    struct state_part value, state, heads;
};

static struct mamba_rows rows_of_rank(const struct decoder *d) {
    const struct mamba_config *all = &d->table->mamba;
    const struct mamba_shape *own = &d->shape.mamba;
    uint32_t head = d->shape.mamba_head_start, group = d->shape.mamba_group_start;
    return (struct mamba_rows){
        .values = all->num_heads * all->head_dim,
        .states = all->num_groups * all->state_dim,
        .value = {head * all->head_dim, own->num_heads * all->head_dim},
        .state = {group * all->state_dim, own->num_groups * all->state_dim},
        .heads = {head, own->num_heads},
    };
}

static struct row_part in_rows(const char *module, uint32_t rows, uint32_t start, uint32_t count,
                               float factor) {
    return (struct row_part){
        .module = module, .rows = rows, .start = start, .count = count, .factor = factor};
}

static enum status load_linears(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct mamba_rows r = rows_of_rank(d);
    const struct layer_formats formats = linear_formats_layer(&d->formats, index);
    bool is_beside = d->table->layers[index].has_mamba;
    const float *scales = d->table->mamba_scales;
    uint32_t heads = d->table->mamba.num_heads, hidden = d->config->hidden_size;
    uint32_t x = r.values, b = x + r.values, c = b + r.states, dt = c + r.states;
    char in[WEIGHT_NAME_BYTES], out[WEIGHT_NAME_BYTES];
    mamba_module_name(in, d->table, MAMBA_IN);
    mamba_module_name(out, d->table, MAMBA_OUT);
    const struct row_part parts[] = {
        in_rows(in, dt + heads, x + r.value.start, r.value.count, scales[1]),
        in_rows(in, dt + heads, b + r.state.start, r.state.count, scales[2]),
        in_rows(in, dt + heads, c + r.state.start, r.state.count, scales[3]),
        in_rows(in, dt + heads, r.value.start, r.value.count, scales[0]),
        in_rows(in, dt + heads, dt + r.heads.start, r.heads.count, scales[4]),
    };
    const struct row_linear linears[] = {
        {parts, 4, is_beside ? formats.mamba_in : formats.qkv,
         is_beside ? &layer->mamba_in : &layer->qkv},
        {parts + 4, 1, linear_formats_router(), &layer->gates},
    };
    const struct col_part o = {out,           hidden,
                               r.values,      r.value.start,
                               r.value.count, is_beside ? formats.mamba_out : formats.o};
    enum status status = loader_load_rows(l, index, linears, 2, hidden, false);
    if (status) return status;
    return loader_load_cols(l, index, &o, false, is_beside ? &layer->mamba_out : &layer->o);
}

static enum status load_conv(struct loader *l, uint32_t index, struct mamba_weights *out) {
    const struct mamba_rows r = rows_of_rank(l->decoder);
    const struct state_part parts[] = {r.value,
                                       {r.values + r.state.start, r.state.count},
                                       {r.values + r.states + r.state.start, r.state.count}};
    uint32_t channels = r.values + 2 * r.states;
    char module[WEIGHT_NAME_BYTES], bias[WEIGHT_NAME_BYTES];
    mamba_module_name(module, l->decoder->table, "conv1d");
    mamba_module_name(bias, l->decoder->table, "conv1d.bias");
    enum status status = state_load_taps(l, index, module, channels, DELTA_TAPS, parts,
                                         ARRAY_LEN(parts), &out->conv);
    if (status) return status;
    return state_load_vector(l, index, bias, channels, parts, ARRAY_LEN(parts), &out->conv_bias);
}

enum status mamba_load(struct loader *l, uint32_t index, struct decoder_layer *layer) {
    const struct decoder *d = l->decoder;
    const struct mamba_rows r = rows_of_rank(d);
    struct mamba_weights *mamba = &layer->mamba;
    const struct {
        const char *name;
        uint32_t count;
        const struct state_part *part;
        float **out;
    } vectors[] = {{"dt_bias", d->table->mamba.num_heads, &r.heads, &mamba->dt_bias},
                   {"D", d->table->mamba.num_heads, &r.heads, &mamba->skip},
                   {"norm.weight", r.values, &r.value, &mamba->norm}};
    enum status status = load_linears(l, index, layer);
    if (!status) status = load_conv(l, index, mamba);
    if (!status) {
        status = state_load_decay(l, index, d->table->mamba_module, d->table->mamba.num_heads,
                                  &r.heads, &mamba->decay);
    }
    size_t num_vectors = ARRAY_LEN(vectors) - d->table->lacks_mamba_norm; // the norm is the last
    for (size_t i = 0; i < num_vectors && !status; i++) {
        char name[WEIGHT_NAME_BYTES];
        mamba_module_name(name, d->table, vectors[i].name);
        status =
            state_load_vector(l, index, name, vectors[i].count, vectors[i].part, 1, vectors[i].out);
    }
    return status;
}
