/* How many parameters a model has. */
#include "model/decoder_internal.h"

size_t decoder_norm_size(const struct model_config *c, const struct layer_table *table,
                         const struct layer *layer, uint32_t world_size) {
    size_t blocks = layer->is_parallel || layer->lacks_mlp || layer->mixer == MIXER_NONE ? 1 : 2;
    size_t norms = layer->norm_place == NORM_AROUND ? 2 * blocks : blocks, heads = 0;
    if (layer->norm_place == NORM_AROUND && table->norms && !table->norms->attention_post) norms--;
    if (table->has_norm_bias) norms *= 2;
    if (layer->has_branches) norms += 4;
    if (layer->head_norm == HEAD_NORM_EACH) heads = layer->kv_source == KV_OWN ? 2 : 1;
    if (layer->head_norm == HEAD_NORM_ROW || layer->head_norm == HEAD_NORM_OWN) {
        heads = (size_t)c->num_heads / world_size + layer_kv_heads(layer, world_size);
    }
    return norms * c->hidden_size + heads * layer->head_dim;
}

uint32_t decoder_mlp_inputs(const struct layer_table *table) {
    return layer_table_lacks_gate(table) ? 1 : 2;
}

size_t decoder_final_norm_size(const struct model_config *c, const struct layer_table *table) {
    return (size_t)c->hidden_size * (table->has_norm_bias ? 2 : 1);
}

static uint64_t attention_parameters(const struct model_config *c, const struct layer *layer) {
    uint64_t hidden = c->hidden_size, q = (uint64_t)c->num_heads * layer->head_dim;
    uint64_t kv = (uint64_t)layer->num_kv_heads * layer->head_dim;
    if (layer->kv_source != KV_OWN) kv = 0;
    uint64_t sum = hidden * (q + (layer->has_keys_as_values ? 1 : 2) * kv) + q * hidden;
    if (layer->has_output_gate) sum += hidden * q;
    if (layer->has_qkv_bias) sum += q + 2 * kv;
    return layer->has_o_bias ? sum + hidden : sum;
}

static uint64_t latent_parameters(const struct model_config *c,
                                  const struct latent_config *latent) {
    uint64_t hidden = c->hidden_size, heads = c->num_heads, rank = latent->query_rank;
    uint64_t q = heads * (latent->nope_dim + latent->rope_dim), values = heads * latent->value_dim;
    uint64_t sum = rank ? hidden * rank + rank + rank * q : hidden * q;
    sum += hidden * (latent->rank + latent->rope_dim) + latent->rank;
    return sum + latent->rank * (heads * latent->nope_dim + values) + values * hidden;
}

static uint64_t delta_parameters(const struct model_config *c) {
    const struct delta_config *delta = &c->own.delta;
    uint64_t keys = (uint64_t)delta->num_key_heads * delta->key_dim, heads = delta->num_heads;
    uint64_t values = heads * delta->value_dim, channels = 2 * keys + values;
    return c->hidden_size * (channels + 2 * values + 2 * heads) + DELTA_TAPS * channels +
           2 * heads + delta->value_dim;
}

static uint64_t mamba_parameters(const struct model_config *c, const struct layer_table *table) {
    const struct mamba_config *mamba = &c->own.mamba;
    uint64_t heads = mamba->num_heads, values = heads * mamba->head_dim;
    uint64_t channels = values + 2 * (uint64_t)mamba->num_groups * mamba->state_dim;
    return c->hidden_size * (channels + 2 * values + heads) + (DELTA_TAPS + 1) * channels +
           3 * heads + (table->lacks_mamba_norm ? 0 : values);
}

// With `num_experts` experts if it is sparse.
static uint64_t layer_parameters(const struct model_config *c, const struct layer_table *table,
                                 const struct layer *layer, uint64_t num_experts) {
    uint64_t hidden = c->hidden_size, inter = (uint64_t)layer->mlp_factor * c->intermediate_size;
    uint64_t sum = table->has_plain_norms ? 0 : decoder_norm_size(c, table, layer, 1);
    switch (layer->mixer) {
    case MIXER_SHORT_CONV:
        sum += (4 * hidden + SHORT_CONV_TAPS) * hidden;
        break;
    case MIXER_GATED_DELTA_NET:
        sum += delta_parameters(c);
        break;
    case MIXER_MAMBA:
        sum += mamba_parameters(c, table);
        break;
    case MIXER_LATENT_ATTENTION:
        sum += latent_parameters(c, &table->latent);
        break;
    case MIXER_ATTENTION:
        sum += attention_parameters(c, layer);
        break;
    case MIXER_NONE:
        break;
    }
    if (layer->has_mamba) sum += mamba_parameters(c, table);
    if (layer->activation == ACTIVATION_XIELU) sum += 2;
    bool has_ones = table->has_plain_head_norms && !table->has_plain_norms &&
                    layer->head_norm == HEAD_NORM_EACH;
    if (has_ones) sum -= 2 * (uint64_t)layer->head_dim; // norm_size counts them
    if (layer->has_sinks) sum += c->num_heads;
    sum += layer->has_scalar;
    if (table->layer_input_size) sum += hidden * (2 * (uint64_t)table->layer_input_size + 1);
    if (layer->lacks_mlp) return sum;
    if (layer->is_sparse) {
        uint64_t shared = c->moe.shared_intermediate_size;
        if (shared) sum += (table->expert_names->shared.gate ? 3 : 2) * hidden * shared;
        if (shared && table->expert_names->shared_gate) sum += hidden;
        if (table->expert_names->choice_bias || layer->has_branches) sum += c->moe.num_experts;
        uint64_t size = c->moe.intermediate_size;
        uint64_t expert = (layer_table_lacks_expert_gate(table) ? 2 : 3) * hidden * size;
        if (layer->has_expert_bias) {
            sum += c->moe.num_experts;
            expert += 2 * size + hidden;
        }
        return sum + hidden * c->moe.num_experts + expert * num_experts;
    }
    uint64_t inputs = decoder_mlp_inputs(table);
    if (layer->has_mlp_bias) sum += inputs * inter + hidden;
    return sum + (inputs + 1) * hidden * inter;
}

static uint64_t num_parameters(const struct model_config *c, const struct layer_table *table,
                               uint64_t num_experts) {
    uint64_t sum = table->has_plain_norms ? 0 : decoder_final_norm_size(c, table);
    for (uint32_t i = 0; i < table->num_layers; i++) {
        sum += layer_parameters(c, table, &table->layers[i], num_experts);
    }
    uint64_t inputs = (uint64_t)table->num_layers * table->layer_input_size;
    sum += inputs * (c->vocab_size + (uint64_t)c->hidden_size) + table->layer_input_size;
    if (table->has_lm_head_bias) sum += c->vocab_size;
    return sum + (uint64_t)c->hidden_size * c->vocab_size * (c->tie_word_embeddings ? 1 : 2);
}

uint64_t decoder_num_parameters(const struct model_config *c, const struct layer_table *table) {
    return num_parameters(c, table, c->moe.num_experts);
}

uint64_t decoder_num_active_parameters(const struct model_config *c,
                                       const struct layer_table *table) {
    return num_parameters(c, table, c->moe.num_experts_per_tok);
}
