/* Sizes of a decoder, before anything is loaded: a rank's shapes and bytes. */
#include "base/check.h"
#include "model/decoder_internal.h"

// Kernels are fastest with multiples of 64. So shares are cut in units of 64, or of the largest
// smaller power of two that makes them equal or, if none does, nearly equal.
static uint32_t share_unit(uint32_t total, uint32_t world_size) {
    enum { UNITS_MIN = 4 }; // units of a share: one more or less then matters little
    enum { UNIT_MIN = 8 }; // GPUs need multiples of it
    uint32_t unit = 64;
    while (unit > 1 && total % (unit * world_size) && total / unit < UNITS_MIN * world_size) {
        if (unit == UNIT_MIN && total % unit == 0 && total / unit >= world_size) break;
        unit /= 2;
    }
    return unit;
}

// A rank's contiguous part of `total`.
struct share {
    uint32_t start, size;
};

static struct share share_of(uint32_t total, uint32_t rank, uint32_t world_size) {
    uint32_t unit = share_unit(total, world_size);
    uint64_t num_units = total / unit; // the last share takes the rest too
    uint32_t start = (uint32_t)(num_units * rank / world_size) * unit;
    uint32_t end =
        rank + 1 == world_size ? total : (uint32_t)(num_units * (rank + 1) / world_size) * unit;
    return (struct share){start, end - start};
}

uint32_t decoder_vocab_start(const struct model_config *config, uint32_t rank,
                             uint32_t world_size) {
    return rank == world_size ? config->vocab_size
                              : share_of(config->vocab_size, rank, world_size).start;
}

// Every rank has the same number of whole heads. Where there are more ranks than key/value heads,
// several ranks have a copy of the same one.
static enum status check_heads(const struct layer *layer, uint32_t heads, uint32_t world_size,
                               struct err *err) {
    uint32_t kv_heads = layer->num_kv_heads;
    uint32_t dim_max = layer->mixer == MIXER_LATENT_ATTENTION ? UINT16_MAX : 512;
    if (layer->head_dim % 16 != 0 || layer->head_dim > dim_max) {
        return err_set(err, ERR_UNSUPPORTED,
                       "head_dim %u is not supported (a multiple of 16 up to 512)",
                       layer->head_dim);
    }
    if (heads % kv_heads != 0 || heads / kv_heads > 256) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%u heads on %u key/value heads are not supported (at most 256 on one)",
                       heads, kv_heads);
    }
    if (heads % world_size == 0 && (kv_heads % world_size == 0 || world_size % kv_heads == 0)) {
        return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%u attention heads on %u key/value heads cannot be shared evenly by %u ranks",
                   heads, kv_heads, world_size);
}

static enum status share_delta_heads(struct decoder_shape *out, const struct delta_config *all,
                                     uint32_t rank, uint32_t world_size, struct err *err) {
    if (all->num_key_heads % world_size) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%u key heads of gated delta nets cannot be shared evenly by %u ranks",
                       all->num_key_heads, world_size);
    }
    out->delta = (struct gated_delta_shape){
        all->num_key_heads / world_size, all->num_heads / world_size, all->key_dim, all->value_dim};
    out->delta_key_start = rank * out->delta.num_key_heads;
    return OK;
}

static enum status share_mamba_heads(struct decoder_shape *out, const struct mamba_config *all,
                                     uint32_t rank, uint32_t world_size, struct err *err) {
    if (!all->num_heads) return OK;
    bool has_copies = all->num_groups == 1 && world_size > 1;
    if (all->num_heads % world_size || (!has_copies && all->num_groups % world_size)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%u heads of Mamba layers in %u groups cannot be shared evenly by %u ranks",
                       all->num_heads, all->num_groups, world_size);
    }
    uint32_t groups = has_copies ? 1 : all->num_groups / world_size;
    out->mamba =
        (struct mamba_shape){groups, all->num_heads / world_size, all->state_dim, all->head_dim};
    out->mamba_head_start = rank * out->mamba.num_heads;
    out->mamba_group_start = has_copies ? 0 : rank * groups;
    return OK;
}

static enum status check_shares(const struct model_config *c, const struct layer_table *table,
                                uint32_t world_size, struct err *err) {
    const struct {
        const char *name;
        uint32_t size, least; // least: of a rank
        bool is_there;
    } cut[] = {
        {"intermediate_size", c->intermediate_size, 1, c->moe.num_sparse_layers < c->num_layers},
        {"moe_intermediate_size", c->moe.intermediate_size, 1, c->moe.num_experts > 0},
        {"shared_expert_intermediate_size", c->moe.shared_intermediate_size, 1,
         c->moe.shared_intermediate_size > 0},
        {"vocab_size", c->vocab_size, 1, true},
        // A row of compose_cut_norm's sums has room for those of all ranks.
        {"hidden_size", c->hidden_size, CUT_NORM_SUMS,
         layer_table_has_row_norms(table) || c->own.mamba.num_groups == 1},
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        if (!cut[i].is_there || cut[i].size / cut[i].least >= world_size) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s is %u, too small for %u ranks", cut[i].name,
                       cut[i].size, world_size);
    }
    return OK;
}

enum status decoder_shape_of(struct decoder_shape *out, const struct model_config *config,
                             const struct layer_table *table, uint32_t rank, uint32_t world_size,
                             struct err *err) {
    enum status status = OK;
    for (uint32_t i = 0; i < table->num_layers && !status; i++) {
        status = check_heads(&table->layers[i], config->num_heads, world_size, err);
    }
    if (!status) status = check_shares(config, table, world_size, err);
    struct decoder_shape shape = {.rank = rank, .world_size = world_size};
    struct share conv = share_of(config->hidden_size, rank, world_size);
    shape.conv_start = conv.start;
    shape.conv_size = conv.size;
    if (!status) status = share_delta_heads(&shape, &config->own.delta, rank, world_size, err);
    if (!status) status = share_mamba_heads(&shape, &config->own.mamba, rank, world_size, err);
    if (status) return status;
    shape.num_heads = config->num_heads / world_size;
    shape.head_start = rank * shape.num_heads;
    struct share shared = share_of(config->moe.shared_intermediate_size, rank, world_size);
    shape.shared_start = shared.start;
    shape.shared_size = shared.size;
    struct share mlp = share_of(config->intermediate_size, rank, world_size);
    struct share expert = share_of(config->moe.intermediate_size, rank, world_size);
    struct share vocab = share_of(config->vocab_size, rank, world_size);
    shape.intermediate_start = mlp.start;
    shape.intermediate_size = mlp.size;
    shape.expert_start = expert.start;
    shape.expert_size = expert.size;
    shape.vocab_start = vocab.start;
    shape.vocab_size = vocab.size;
    *out = shape;
    return OK;
}

static uint32_t qkv_size(const struct layer *layer, const struct decoder_shape *s) {
    uint32_t kv_heads = layer->kv_source == KV_OWN ? layer_kv_heads(layer, s->world_size) : 0;
    if (layer->mixer == MIXER_LATENT_ATTENTION) return layer->head_dim;
    return (s->num_heads + 2 * kv_heads) * layer->head_dim;
}

// Elements of a token's q, k, v and z in a gated delta net; 0: the model has none.
static uint32_t qkvz_size(const struct gated_delta_shape *delta) {
    return gated_delta_channels(delta) + delta->num_heads * delta->value_dim;
}

// Elements of a token's x, B, C and z in a layer with Mamba-2; 0: the model has none.
static uint32_t xbcz_size(const struct mamba_shape *mamba) {
    return mamba_channels(mamba) + mamba->num_heads * mamba->head_dim;
}

struct experts_shape decoder_experts_shape(const struct model_config *c,
                                           const struct layer_table *table,
                                           const struct layer *layer,
                                           const struct decoder_shape *s) {
    return (struct experts_shape){.num_experts = c->moe.num_experts,
                                  .hidden = c->hidden_size,
                                  .intermediate = s->expert_size,
                                  .has_bias = layer->has_expert_bias,
                                  .lacks_gate = layer_table_lacks_expert_gate(table)};
}

// A sum over linears, and the largest scratch memory that one needs while it runs.
struct linears_bytes {
    const struct backend *backend;
    size_t sum, scratch;
};

static void add_linear(struct linears_bytes *all, uint32_t out, uint32_t in, bool has_bias,
                       struct weight_format format) {
    const struct backend_ops *ops = all->backend->ops;
    all->sum += ops->linear_bytes(all->backend, out, in, has_bias, format);
    size_t scratch = ops->linear_scratch_bytes ? ops->linear_scratch_bytes(out, in, format) : 0;
    if (scratch > all->scratch) all->scratch = scratch;
}

static void add_sparse_mlp(struct linears_bytes *all, const struct model_config *c,
                           const struct layer_table *table, const struct layer *layer,
                           const struct decoder_shape *s, const struct layer_formats *formats) {
    const struct expert_names *names = table->expert_names;
    const struct experts_shape experts = decoder_experts_shape(c, table, layer, s);
    add_linear(all, c->moe.num_experts, c->hidden_size, layer->has_expert_bias,
               linear_formats_router());
    all->sum += all->backend->moe->experts_bytes(all->backend, &experts, formats->experts);
    if (names->choice_bias || layer->has_branches) all->sum += c->moe.num_experts * sizeof(float);
    if (!s->shared_size) return;
    if (names->shared_gate) {
        add_linear(all, SHARED_GATES, c->hidden_size, false, linear_formats_router());
    }
    uint32_t inputs = names->shared.gate ? 2 : 1;
    add_linear(all, inputs * s->shared_size, c->hidden_size, false, formats->shared_gate_up);
    add_linear(all, c->hidden_size, s->shared_size, false, formats->shared_down);
}

static void add_attention(struct linears_bytes *all, const struct model_config *c,
                          const struct layer *layer, const struct decoder_shape *s,
                          const struct layer_formats *formats) {
    uint32_t attended = s->num_heads * layer->head_dim;
    add_linear(all, qkv_size(layer, s), c->hidden_size, layer->has_qkv_bias, formats->qkv);
    add_linear(all, c->hidden_size, attended, layer->has_o_bias, formats->o);
    if (!layer->has_output_gate) return;
    add_linear(all, attended, c->hidden_size, layer->has_qkv_bias, formats->gates);
}

static void add_latent(struct linears_bytes *all, const struct model_config *c,
                       const struct layer_table *table, const struct decoder_shape *s,
                       const struct layer_formats *formats) {
    const struct latent_shape shape = decoder_latent_shape(table, s);
    uint32_t rank = table->latent.query_rank, hidden = c->hidden_size, heads = s->num_heads;
    uint32_t q_in = rank ? rank : hidden;
    if (rank) add_linear(all, rank, hidden, false, formats->q_latent);
    add_linear(all, heads * shape.nope_dim, q_in, false, formats->q);
    add_linear(all, heads * shape.rope_dim, q_in, false, formats->q);
    add_linear(all, latent_row_dim(&shape), hidden, false, formats->qkv);
    add_linear(all, hidden, heads * shape.value_dim, false, formats->o);
    all->sum += all->backend->latent->bytes(all->backend, &shape);
    all->sum += ((size_t)rank + shape.rank) * sizeof(float);
}

static void add_delta(struct linears_bytes *all, const struct model_config *c,
                      const struct gated_delta_shape *delta, const struct layer_formats *formats) {
    uint32_t heads = delta->num_heads;
    add_linear(all, qkvz_size(delta), c->hidden_size, false, formats->qkv);
    add_linear(all, 2 * heads, c->hidden_size, false, linear_formats_router());
    add_linear(all, c->hidden_size, heads * delta->value_dim, false, formats->o);
    size_t vectors = (size_t)DELTA_TAPS * gated_delta_channels(delta) + 2 * heads;
    all->sum += (vectors + delta->value_dim) * sizeof(float);
}

static void add_mamba(struct linears_bytes *all, const struct model_config *c,
                      const struct mamba_shape *mamba, bool has_norm, struct weight_format in,
                      struct weight_format out) {
    uint32_t heads = mamba->num_heads, values = heads * mamba->head_dim;
    add_linear(all, xbcz_size(mamba), c->hidden_size, false, in);
    add_linear(all, heads, c->hidden_size, false, linear_formats_router());
    add_linear(all, c->hidden_size, values, false, out);
    size_t vectors = (size_t)(DELTA_TAPS + 1) * mamba_channels(mamba) + 3 * (size_t)heads;
    all->sum += (vectors + (has_norm ? values : 0)) * sizeof(float);
}

static void add_layer(struct linears_bytes *all, const struct model_config *c,
                      const struct layer_table *table, const struct layer *layer,
                      const struct decoder_shape *s, const struct layer_formats *formats) {
    switch (layer->mixer) {
    case MIXER_SHORT_CONV:
        add_linear(all, 3 * s->conv_size, c->hidden_size, false, formats->qkv);
        add_linear(all, c->hidden_size, s->conv_size, false, formats->o);
        all->sum += (size_t)SHORT_CONV_TAPS * s->conv_size * sizeof(float);
        break;
    case MIXER_GATED_DELTA_NET:
        add_delta(all, c, &s->delta, formats);
        break;
    case MIXER_MAMBA:
        add_mamba(all, c, &s->mamba, !table->lacks_mamba_norm, formats->qkv, formats->o);
        break;
    case MIXER_LATENT_ATTENTION:
        add_latent(all, c, table, s, formats);
        break;
    case MIXER_ATTENTION:
        add_attention(all, c, layer, s, formats);
        break;
    case MIXER_NONE:
        break;
    }
    if (layer->has_mamba) {
        add_mamba(all, c, &s->mamba, !table->lacks_mamba_norm, formats->mamba_in,
                  formats->mamba_out);
    }
    all->sum += decoder_norm_size(c, table, layer, s->world_size) * sizeof(float);
    if (layer->has_sinks) all->sum += s->num_heads * sizeof(float);
    if (layer->has_v_norm) all->sum += layer->head_dim * sizeof(float);
    if (table->layer_input_size) {
        add_linear(all, table->layer_input_size, c->hidden_size, false, linear_formats_router());
        add_linear(all, c->hidden_size, table->layer_input_size, false, linear_formats_router());
        all->sum += c->hidden_size * sizeof(float);
    }
    if (layer->lacks_mlp) return;
    if (layer->is_sparse) {
        add_sparse_mlp(all, c, table, layer, s, formats);
        return;
    }
    uint32_t size = layer->mlp_factor * s->intermediate_size;
    uint32_t rows = decoder_mlp_inputs(table) * size;
    add_linear(all, rows, c->hidden_size, layer->has_mlp_bias, formats->gate_up);
    add_linear(all, c->hidden_size, size, layer->has_mlp_bias, formats->down);
}

size_t decoder_weights_bytes(const struct model_config *c, const struct layer_table *table,
                             const struct decoder_shape *s, const struct backend *b,
                             const struct linear_formats *formats) {
    struct linears_bytes all = {.backend = b,
                                .sum = decoder_final_norm_size(c, table) * sizeof(float)};
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer_formats layer = linear_formats_layer(formats, i);
        add_layer(&all, c, table, &table->layers[i], s, &layer);
    }
    const struct weight_format vocabulary[] = {linear_formats_embedding(formats),
                                               linear_formats_lm_head(formats)};
    for (int i = 0; i < (c->tie_word_embeddings ? 1 : 2); i++) {
        bool has_bias = i == 1 && table->has_lm_head_bias;
        add_linear(&all, s->vocab_size, c->hidden_size, has_bias, vocabulary[i]);
    }
    if (table->layer_input_size) {
        uint32_t cols = table->num_layers * table->layer_input_size;
        add_linear(&all, s->vocab_size, cols, false, linear_formats_layer_embedding(formats));
        add_linear(&all, cols, c->hidden_size, false, linear_formats_router());
        all.sum += table->layer_input_size * sizeof(float);
    }
    return all.sum + all.scratch;
}

size_t decoder_slot_bytes(const struct layer *layer, const struct decoder_shape *s,
                          const struct backend *b) {
    if (layer->has_mamba) return b->recurrent->mamba_bytes(b, &s->mamba);
    switch (layer->mixer) {
    case MIXER_SHORT_CONV:
        return short_conv_floats(s->conv_size) * sizeof(float);
    case MIXER_GATED_DELTA_NET:
        return b->recurrent->gated_delta_bytes(b, &s->delta);
    case MIXER_MAMBA:
        return b->recurrent->mamba_bytes(b, &s->mamba);
    case MIXER_LATENT_ATTENTION:
    case MIXER_ATTENTION:
    case MIXER_NONE:
        break;
    }
    return 0;
}

size_t decoder_state_bytes(const struct layer_table *table, const struct decoder_shape *s,
                           const struct backend *b) {
    size_t sum = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        sum += decoder_slot_bytes(&table->layers[i], s, b);
    }
    return sum;
}

// Hands out [rows][cols] elements, 64-byte aligned, of the region that starts at `base`.
static void *take(char *base, size_t *offset, size_t rows, size_t cols, size_t element_size) {
    void *p = base ? base + *offset : NULL;
    *offset += (rows * cols * element_size + 63) & ~(size_t)63;
    return p;
}

// Places the activations of a sparse layer's MLP, from *at on.
static void lay_out_sparse_mlp(struct decoder_workspace *w, char *base, size_t *at,
                               const struct model_config *c, const struct layer_table *table,
                               const struct decoder_shape *s, uint32_t num_tokens,
                               const struct backend *b) {
    uint32_t num_experts = c->moe.num_experts, top_k = c->moe.num_experts_per_tok;
    // Biases change nothing here.
    const struct experts_shape experts = decoder_experts_shape(c, table, &(struct layer){0}, s);
    size_t scratch = b->moe->experts_scratch_bytes(b, &experts, num_tokens, top_k);
    w->router_logits = take(base, at, num_tokens, num_experts, sizeof *w->router_logits);
    w->expert_ids = take(base, at, num_tokens, top_k, sizeof *w->expert_ids);
    w->expert_weights = take(base, at, num_tokens, top_k, sizeof *w->expert_weights);
    w->experts_scratch = take(base, at, scratch, 1, 1);
    if (!s->shared_size) return;
    size_t element_size = dtype_size(b->activation_dtype);
    w->shared_gate_up = take(base, at, num_tokens, 2 * (size_t)s->shared_size, element_size);
    w->shared_activated = take(base, at, num_tokens, s->shared_size, element_size);
    w->shared = take(base, at, num_tokens, c->hidden_size, element_size);
    w->shared_gate = take(base, at, num_tokens, SHARED_GATES, element_size);
}

// Memory for layer inputs (layer_table.layer_input_size): used when they are made, and at the end
// of each layer.
static void lay_out_layer_inputs(struct decoder_workspace *w, char *base, size_t *at,
                                 const struct layer_table *table, size_t num_tokens,
                                 size_t element_size) {
    size_t size = table->layer_input_size, end = *at;
    w->layer_projections = take(base, at, num_tokens, table->num_layers * size, element_size);
    w->layer_gate = take(base, &end, num_tokens, size, element_size);
    w->layer_gated = take(base, &end, num_tokens, size, element_size);
    if (end > *at) *at = end;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

// Of the op of layers with a state, for so many tokens.
static size_t scratch_bytes(const struct decoder_shape *s, const struct backend *b,
                            uint32_t num_tokens) {
    const struct backend_recurrent *ops = b->recurrent;
    size_t delta = s->delta.num_heads && ops->gated_delta_scratch_bytes
                       ? ops->gated_delta_scratch_bytes(b, &s->delta, num_tokens)
                       : 0;
    size_t mamba = s->mamba.num_heads && ops->mamba_scratch_bytes
                       ? ops->mamba_scratch_bytes(b, &s->mamba, num_tokens)
                       : 0;
    return larger(delta, mamba);
}

void decoder_workspace_layout(struct decoder_workspace *out, char *base,
                              const struct model_config *c, const struct layer_table *table,
                              const struct decoder_shape *s, const struct step_limits *limits,
                              const struct backend *b) {
    size_t T = limits->max_num_tokens, R = limits->max_num_seqs;
    size_t element_size = dtype_size(b->activation_dtype);
    struct decoder_workspace w = {0};
    size_t at = 0;
    w.residual = take(base, &at, T, c->hidden_size, element_size);
    w.hidden = take(base, &at, T, c->hidden_size, element_size);
    w.projected = take(base, &at, T, c->hidden_size, element_size);
    // Attention and the two kinds of MLP never use their intermediates at the same time, so these
    // share one region.
    size_t attention_at = at, mlp_at = at, sparse_at = at;
    size_t inputs_at = at;
    bool has_gates = false;
    size_t qkv = larger(qkvz_size(&s->delta), xbcz_size(&s->mamba)), attended = 0, mlp_factor = 1;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        bool is_conv = layer->mixer == MIXER_SHORT_CONV;
        qkv = larger(qkv, is_conv ? 3 * (size_t)s->conv_size : qkv_size(layer, s));
        attended = larger(attended, is_conv ? s->conv_size
                                            : (size_t)s->num_heads * layer_value_dim(table, layer));
        mlp_factor = larger(mlp_factor, layer->mlp_factor);
        has_gates |= layer->has_output_gate;
    }
    size_t values = larger((size_t)s->delta.num_heads * s->delta.value_dim,
                           (size_t)s->mamba.num_heads * s->mamba.head_dim);
    w.qkv = take(base, &attention_at, T, qkv, element_size);
    w.attended = take(base, &attention_at, T, larger(attended, values), element_size);
    bool has_states = s->delta.num_heads || s->mamba.num_heads;
    if (has_states || has_gates) {
        size_t gates = larger(2 * (size_t)s->delta.num_heads, s->mamba.num_heads) * sizeof(float);
        w.gates = take(base, &attention_at, T, larger(attended * element_size, gates), 1);
    }
    if (has_states) {
        w.state_scratch =
            take(base, &attention_at, scratch_bytes(s, b, limits->max_num_tokens), 1, 1);
    }
    if (layer_table_has_latents(table)) {
        const struct latent_shape shape = decoder_latent_shape(table, s);
        size_t scratch = b->latent->scratch_bytes(b, &shape, limits->max_num_tokens);
        size_t nope = (size_t)s->num_heads * shape.nope_dim;
        w.q_latent = take(base, &attention_at, T, table->latent.query_rank, element_size);
        w.q_nope = take(base, &attention_at, T, nope, element_size);
        w.q_rope =
            take(base, &attention_at, T, (size_t)s->num_heads * shape.rope_dim, element_size);
        w.latent_scratch = take(base, &attention_at, scratch, 1, 1);
    }
    if (c->moe.num_sparse_layers < c->num_layers) {
        size_t size = mlp_factor * s->intermediate_size;
        w.gate_up = take(base, &mlp_at, T, 2 * size, element_size);
        w.activated = take(base, &mlp_at, T, size, element_size);
    }
    if (c->moe.num_sparse_layers) {
        lay_out_sparse_mlp(&w, base, &sparse_at, c, table, s, limits->max_num_tokens, b);
    }
    if (table->layer_input_size) {
        lay_out_layer_inputs(&w, base, &inputs_at, table, T, element_size);
    }
    at = larger(larger(attention_at, mlp_at), larger(sparse_at, inputs_at));
    if (table->layer_input_size) {
        size_t cols = (size_t)table->num_layers * table->layer_input_size;
        // compose_sum_wide wants room for a row behind it.
        w.layer_inputs = take(base, &at, T * cols + c->hidden_size, 1, element_size);
    }
    w.last_residual = take(base, &at, R, c->hidden_size, element_size);
    w.last_projected = take(base, &at, R, c->hidden_size, element_size);
    w.last_hidden = take(base, &at, R, c->hidden_size, element_size);
    bool is_whole = s->vocab_size == c->vocab_size;
    if (is_whole) w.logits = take(base, &at, R, c->vocab_size, sizeof(float));
    w.size_bytes = at;
    *out = w;
}

size_t decoder_workspace_bytes(const struct model_config *config, const struct layer_table *table,
                               const struct decoder_shape *shape, const struct step_limits *limits,
                               const struct backend *backend) {
    struct decoder_workspace workspace;
    decoder_workspace_layout(&workspace, NULL, config, table, shape, limits, backend);
    size_t ropes = 0;
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct rope_config *rope = layer_table_rope(table, i);
        uint32_t num_tables = rope && rope->query_beta != 0 ? 2 : 1;
        if (layer_table_first_with_rope(table, i) != i) continue;
        ropes += num_tables * (size_t)layer_rope_dim(&table->layers[i]);
    }
    size_t ones = table->scales_expert_inputs ? limits->max_num_tokens : 0; // expert_ones
    return workspace.size_bytes + (ropes * limits->max_positions + ones) * sizeof(float);
}
