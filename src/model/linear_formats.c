#include "model/linear_formats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/compiler.h"
#include "model/code_reader.h"
#include "model/decoder.h"

const char *const delta_modules[2] = {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z"};

void layer_weight_name(char out[WEIGHT_NAME_BYTES], uint32_t layer, const char *module,
                       const char *suffix) {
    int len = snprintf(out, WEIGHT_NAME_BYTES, "model.layers.%u.%s%s", layer, module, suffix);
    CHECK(len < WEIGHT_NAME_BYTES, "%s", module);
}

void expert_weight_name(char out[WEIGHT_NAME_BYTES], uint32_t layer, const char *experts,
                        uint32_t expert, const char *part, const char *suffix) {
    snprintf(out, WEIGHT_NAME_BYTES, "model.layers.%u.%s.%u.%s%s", layer, experts, expert, part,
             suffix);
}

bool delta_is_stacked(const struct layer_table *table, const struct weights *weights,
                      uint32_t layer) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, STACKED_DELTA_MODULE, ".weight");
    return table->is_delta_stacked && weights_has(weights, name);
}

void mamba_module_name(char out[WEIGHT_NAME_BYTES], const struct layer_table *table,
                       const char *part) {
    snprintf(out, WEIGHT_NAME_BYTES, "%s.%s", table->mamba_module, part);
}

const struct mlp_names *mlp_names_of(const struct layer_table *table, const struct mlp_names *names,
                                     const struct weights *weights, uint32_t layer) {
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, names->up, ".weight");
    return !table->mlp_apart || weights_has(weights, name) ? names : table->mlp_apart;
}

struct finder {
    const struct layer_table *table;
    const struct weights *weights;
    const struct backend *backend;
    struct err *err;
};

// The format of a linear whose matrices were added so far.
struct found {
    struct weight_format format;
    bool is_any; // a matrix was added
};

// Adds the matrix `name`, of which a rank keeps the columns from first_col on.
static enum status add(const struct finder *f, struct found *found, const char *name, uint64_t rows,
                       uint64_t cols, uint64_t first_col) {
    struct matrix_form form;
    enum status status = weights_form(f->weights, name, rows, cols, &form, f->err);
    if (status) return status;
    struct weight_format next = weight_format_packed(form, first_col);
    found->format = found->is_any ? weight_format_of_both(found->format, next) : next;
    found->is_any = true;
    return OK;
}

// The format of a matrix whose scales are multiplied by `factor`. E2M1 in groups of 32 is MXFP4:
// its scales are powers of 2, and a device may keep their exponents alone. A factor that is no
// power of 2 makes other scales of them. Then the format has groups of 16, whose scales every
// device keeps as floats.
static struct weight_format scaled(struct weight_format format, float factor) {
    enum { POWERS_GROUP = 32 };
    int exponent;
    bool has_powers = format.code == WEIGHT_CODE_E2M1 && format.group >= POWERS_GROUP;
    if (has_powers && frexpf(factor, &exponent) != 0.5f) format.group = POWERS_GROUP / 2;
    return format;
}

static struct weight_format kept(const struct finder *f, const struct found *found) {
    const struct weight_format floats = weight_format_without_units(found->format);
    if (f->backend->ops->has_format(f->backend, found->format)) return found->format;
    return f->backend->ops->has_format(f->backend, floats) ? floats : WEIGHTS_NATIVE;
}

// Rows of a layer's matrices with the same columns.
static enum status find_rows(const struct finder *f, uint32_t layer, const char *const *modules,
                             const uint32_t *rows, uint32_t num_modules, uint32_t cols,
                             struct weight_format *out) {
    struct found found = {0};
    for (uint32_t i = 0; i < num_modules; i++) {
        char name[WEIGHT_NAME_BYTES];
        layer_weight_name(name, layer, modules[i], ".weight");
        enum status status = add(f, &found, name, rows[i], cols, 0);
        if (status) return status;
    }
    *out = kept(f, &found);
    return OK;
}

static enum status find_cols(const struct finder *f, uint32_t layer, const char *module,
                             uint32_t rows, uint32_t cols, uint32_t first_col,
                             struct weight_format *out) {
    struct found found = {0};
    char name[WEIGHT_NAME_BYTES];
    layer_weight_name(name, layer, module, ".weight");
    enum status status = add(f, &found, name, rows, cols, first_col);
    *out = kept(f, &found);
    return status;
}

static enum status find_experts(const struct finder *f, uint32_t layer,
                                const struct model_config *c, const struct expert_names *names,
                                uint32_t first_col, struct weight_format *out) {
    struct found found = {0};
    uint32_t hidden = c->hidden_size, size = c->moe.intermediate_size;
    for (uint32_t expert = 0; expert < c->moe.num_experts; expert++) {
        const struct {
            const char *part;
            uint32_t rows, cols, first_col;
        } parts[] = {{names->gate, size, hidden, 0},
                     {names->up, size, hidden, 0},
                     {names->down, hidden, size, first_col}};
        for (size_t i = names->gate ? 0 : 1; i < ARRAY_LEN(parts); i++) {
            char name[WEIGHT_NAME_BYTES];
            expert_weight_name(name, layer, names->experts, expert, parts[i].part, ".weight");
            enum status status =
                add(f, &found, name, parts[i].rows, parts[i].cols, parts[i].first_col);
            if (status) return status;
        }
    }
    *out = kept(f, &found);
    return OK;
}

static enum status find_attention(const struct finder *f, uint32_t i, const struct model_config *c,
                                  const struct layer_table *table, const struct decoder_shape *s,
                                  struct layer_formats *out) {
    const struct layer *layer = &table->layers[i];
    uint32_t dim = layer->head_dim, hidden = c->hidden_size, attended = c->num_heads * dim;
    uint32_t q = layer->has_output_gate && !table->gate_module ? 2 * attended : attended,
             kv = layer->num_kv_heads * dim;
    const uint32_t heads[] = {q, kv, kv}, all_heads = q + 2 * kv;
    uint32_t num_modules = layer->has_keys_as_values ? 2 : 3; // v's rows are k's
    if (layer->kv_source != KV_OWN) num_modules = 1;
    enum status status =
        table->is_qkv_stacked
            ? find_rows(f, i, &table->stacked_qkv, &all_heads, 1, hidden, &out->qkv)
            : find_rows(f, i, table->qkv_modules, heads, num_modules, hidden, &out->qkv);
    if (!status && layer->has_output_gate) {
        const char *const *gates = table->gate_module ? &table->gate_module : table->qkv_modules;
        status = find_rows(f, i, gates, heads, 1, hidden, &out->gates);
    }
    if (status) return status;
    return find_cols(f, i, table->o_module, hidden, attended, s->head_start * dim, &out->o);
}

static enum status find_delta(const struct finder *f, uint32_t i, const struct model_config *c,
                              const struct layer_table *table, const struct decoder_shape *s,
                              struct layer_formats *out) {
    static const char *const stacked[] = {STACKED_DELTA_MODULE};
    const struct delta_config *delta = &table->delta;
    uint32_t keys = delta->num_key_heads * delta->key_dim, hidden = c->hidden_size;
    uint32_t values = delta->num_heads * delta->value_dim;
    uint32_t first = s->delta_key_start * (values / delta->num_key_heads);
    const uint32_t rows[] = {2 * keys + values, values}, all_rows = rows[0] + rows[1];
    enum status status = delta_is_stacked(table, f->weights, i)
                             ? find_rows(f, i, stacked, &all_rows, 1, hidden, &out->qkv)
                             : find_rows(f, i, delta_modules, rows, 2, hidden, &out->qkv);
    if (status) return status;
    return find_cols(f, i, DELTA_OUT_MODULE, hidden, values, first, &out->o);
}

static enum status find_latent(const struct finder *f, uint32_t i, const struct model_config *c,
                               const struct layer_table *table, const struct decoder_shape *s,
                               struct layer_formats *out) {
    static const char *const kv[] = {LATENT_KV_MODULE}, *const q_latent[] = {LATENT_Q_MODULE};
    const struct latent_config *latent = &table->latent;
    const char *const q[] = {latent_q_module(latent)};
    uint32_t hidden = c->hidden_size, query_rank = latent->query_rank, heads = c->num_heads;
    uint32_t kv_rows = latent->rank + latent->rope_dim;
    uint32_t q_rows = heads * (latent->nope_dim + latent->rope_dim), dim = latent->value_dim;
    enum status status = find_rows(f, i, kv, &kv_rows, 1, hidden, &out->qkv);
    if (!status && query_rank) {
        status = find_rows(f, i, q_latent, &query_rank, 1, hidden, &out->q_latent);
    }
    if (!status) {
        status = find_rows(f, i, q, &q_rows, 1, query_rank ? query_rank : hidden, &out->q);
    }
    if (status) return status;
    return find_cols(f, i, table->o_module, hidden, heads * dim, s->head_start * dim, &out->o);
}

static enum status find_mamba(const struct finder *f, uint32_t i, uint32_t hidden,
                              const struct layer_table *table, const struct decoder_shape *s,
                              struct weight_format *in_format, struct weight_format *out_format) {
    const struct mamba_config *mamba = &table->mamba;
    char in[WEIGHT_NAME_BYTES], out_module[WEIGHT_NAME_BYTES];
    const char *const modules[] = {in};
    uint32_t values = mamba->num_heads * mamba->head_dim;
    const uint32_t rows = 2 * (values + mamba->num_groups * mamba->state_dim) + mamba->num_heads;
    mamba_module_name(in, table, MAMBA_IN);
    mamba_module_name(out_module, table, MAMBA_OUT);
    enum status status = find_rows(f, i, modules, &rows, 1, hidden, in_format);
    if (status) return status;
    for (int k = 0; k < MAMBA_PARTS; k++) *in_format = scaled(*in_format, table->mamba_scales[k]);
    return find_cols(f, i, out_module, hidden, values, s->mamba_head_start * mamba->head_dim,
                     out_format);
}

static enum status find_conv(const struct finder *f, uint32_t i, uint32_t hidden,
                             const struct decoder_shape *s, struct layer_formats *out) {
    static const char *const in[] = {CONV_IN_MODULE};
    const uint32_t rows = 3 * hidden;
    enum status status = find_rows(f, i, in, &rows, 1, hidden, &out->qkv);
    if (status) return status;
    return find_cols(f, i, CONV_OUT_MODULE, hidden, hidden, s->conv_start, &out->o);
}

// An MLP of `size`, of which this rank keeps what is from first_col on.
static enum status find_mlp(const struct finder *f, uint32_t i, const struct mlp_names *names,
                            uint32_t hidden, uint32_t size, uint32_t first_col,
                            struct weight_format *gate_up, struct weight_format *down) {
    names = mlp_names_of(f->table, names, f->weights, i);
    bool is_stacked = names->gate == names->up;
    uint32_t first = names->gate ? 0 : 1, num = is_stacked || first ? 1 : 2;
    const char *const modules[] = {names->gate, names->up};
    const uint32_t rows[] = {is_stacked ? 2 * size : size, size};
    enum status status = find_rows(f, i, modules + first, rows + first, num, hidden, gate_up);
    return status ? status : find_cols(f, i, names->down, hidden, size, first_col, down);
}

static enum status find_sparse(const struct finder *f, uint32_t i, const struct model_config *c,
                               const struct expert_names *names, const struct decoder_shape *s,
                               struct layer_formats *out) {
    uint32_t shared = c->moe.shared_intermediate_size;
    enum status status = OK;
    if (shared) {
        status = find_mlp(f, i, &names->shared, c->hidden_size, shared, s->shared_start,
                          &out->shared_gate_up, &out->shared_down);
    }
    return status ? status : find_experts(f, i, c, names, s->expert_start, &out->experts);
}

static enum status find_layer(const struct finder *f, uint32_t i, const struct model_config *c,
                              const struct layer_table *table, const struct decoder_shape *s,
                              struct layer_formats *out) {
    const struct layer *layer = &table->layers[i];
    enum status status = OK;
    switch (layer->mixer) {
    case MIXER_SHORT_CONV:
        status = find_conv(f, i, c->hidden_size, s, out);
        break;
    case MIXER_GATED_DELTA_NET:
        status = find_delta(f, i, c, table, s, out);
        break;
    case MIXER_MAMBA:
        status = find_mamba(f, i, c->hidden_size, table, s, &out->qkv, &out->o);
        break;
    case MIXER_LATENT_ATTENTION:
        status = find_latent(f, i, c, table, s, out);
        break;
    case MIXER_ATTENTION:
        status = find_attention(f, i, c, table, s, out);
        break;
    case MIXER_NONE:
        break;
    }
    if (!status && layer->has_mamba) {
        status = find_mamba(f, i, c->hidden_size, table, s, &out->mamba_in, &out->mamba_out);
    }
    if (status || layer->lacks_mlp) return status;
    if (layer->is_sparse) return find_sparse(f, i, c, table->expert_names, s, out);
    status = find_mlp(f, i, &table->mlp, c->hidden_size, layer->mlp_factor * c->intermediate_size,
                      s->intermediate_start, &out->gate_up, &out->down);
    out->gate_up = scaled(out->gate_up, table->gate_scale);
    return status;
}

static enum status find_vocabulary(const struct finder *f, const char *name,
                                   const struct model_config *c, uint64_t cols,
                                   struct weight_format *out) {
    struct found found = {0};
    enum status status = add(f, &found, name, c->vocab_size, cols, 0);
    *out = kept(f, &found);
    return status;
}

enum status linear_formats_find(struct linear_formats *out, const struct model_config *config,
                                const struct layer_table *table, const struct decoder_shape *shape,
                                const struct backend *backend, const struct weights *weights,
                                struct err *err) {
    const struct finder finder = {table, weights, backend, err};
    uint32_t hidden = config->hidden_size;
    *out = (struct linear_formats){.layers = calloc(table->num_layers, sizeof *out->layers)};
    if (!out->layers) return err_nomem(err, "formats of linears");
    enum status status =
        find_vocabulary(&finder, "model.embed_tokens.weight", config, hidden, &out->embedding);
    if (!status) status = find_vocabulary(&finder, "lm_head.weight", config, hidden, &out->lm_head);
    if (!status && table->layer_input_size) {
        uint64_t cols = (uint64_t)table->num_layers * table->layer_input_size;
        status = find_vocabulary(&finder, LAYER_EMBEDDING ".weight", config, cols,
                                 &out->layer_embedding);
    }
    for (uint32_t i = 0; i < table->num_layers && !status; i++) {
        status = find_layer(&finder, i, config, table, shape, &out->layers[i]);
    }
    if (status) linear_formats_fini(out);
    return status;
}

void linear_formats_fini(struct linear_formats *formats) {
    free(formats->layers);
    *formats = (struct linear_formats){0};
}

struct layer_formats linear_formats_layer(const struct linear_formats *formats, uint32_t layer) {
    if (formats->layers) return formats->layers[layer];
    struct weight_format all = formats->format;
    return (struct layer_formats){all, all, all, all, all, all, all, all, all, all, all, all};
}

struct weight_format linear_formats_router(void) {
    return WEIGHTS_NATIVE;
}

static struct weight_format made_vocabulary(const struct linear_formats *formats) {
    uint32_t bits = formats->format.bits;
    return bits && bits < WEIGHTS_INT8.bits ? WEIGHTS_INT8 : formats->format;
}

struct weight_format linear_formats_embedding(const struct linear_formats *formats) {
    return formats->layers ? formats->embedding : made_vocabulary(formats);
}

struct weight_format linear_formats_layer_embedding(const struct linear_formats *formats) {
    return formats->layers ? formats->layer_embedding : made_vocabulary(formats);
}

struct weight_format linear_formats_lm_head(const struct linear_formats *formats) {
    return formats->layers ? formats->lm_head : made_vocabulary(formats);
}

struct weight_format linear_formats_packed(const struct linear_formats *formats,
                                           uint32_t num_layers) {
    for (uint32_t i = 0; formats->layers && i < num_layers; i++) {
        const struct layer_formats *l = &formats->layers[i];
        const struct weight_format all[] = {l->down, l->experts, l->gate_up, l->qkv, l->o};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            if (weight_format_is_packed(all[k])) return all[k];
        }
    }
    return WEIGHTS_NATIVE;
}
