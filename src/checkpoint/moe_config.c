/* Reads the keys of a mixture of experts, with the defaults of transformers' configuration
 * classes. */
#include "checkpoint/moe_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "checkpoint/config_read.h"

enum {
    EXPERTS_MAX = 1 << 12,
    EXPERTS_PER_TOK_MAX = 1 << 8,
    EXPERT_SIZE_MAX = 1 << 21,
    LAYER_SIZE_MAX = 1 << 26, // sum of one layer's experts: keeps a model's bytes below 2^62
};

struct moe_defaults {
    const char *architecture;
    bool only_counts; // no keys but the two counts: every layer has experts of intermediate_size
    bool has_routed; // keys as DeepSeek's: n_routed_experts, n_shared_experts and others
    bool has_block; // Gemma 4's keys: experts are beside the dense MLP, and may be switched off
    struct moe_config config;
};

static const struct moe_defaults defaults[] = {
    {"Gemma4ForCausalLM", false, false, true, {.norm_topk_prob = true, .is_always_sparse = true}},
    {"Glm4MoeForCausalLM",
     false,
     true,
     false,
     {.num_experts = 128,
      .num_experts_per_tok = 8,
      .intermediate_size = 1408,
      .norm_topk_prob = true}},
    {"GptOssForCausalLM",
     true,
     false,
     false,
     {.num_experts = 128,
      .num_experts_per_tok = 4,
      .norm_topk_prob = true,
      .layout = EXPERTS_INTERLEAVED}},
    {"MiniMaxM2ForCausalLM",
     true,
     false,
     false,
     {.num_experts = 256, .num_experts_per_tok = 8, .norm_topk_prob = true}},
    {"MixtralForCausalLM",
     true,
     false,
     false,
     {.num_experts = 8, .num_experts_per_tok = 2, .norm_topk_prob = true}},
    {"Qwen2MoeForCausalLM",
     false,
     false,
     false,
     {.num_experts = 60,
      .num_experts_per_tok = 4,
      .intermediate_size = 1408,
      .shared_intermediate_size = 5632}},
    {"Qwen3MoeForCausalLM",
     false,
     false,
     false,
     {.num_experts = 128, .num_experts_per_tok = 8, .intermediate_size = 768}},
    {"Qwen3NextForCausalLM",
     false,
     false,
     false,
     {.num_experts = 512,
      .num_experts_per_tok = 10,
      .intermediate_size = 512,
      .shared_intermediate_size = 512,
      .norm_topk_prob = true}},
    {"Qwen3_5MoeForCausalLM",
     false,
     false,
     false,
     {.num_experts = 256,
      .num_experts_per_tok = 8,
      .intermediate_size = 512,
      .shared_intermediate_size = 512,
      .norm_topk_prob = true,
      .is_always_sparse = true}},
};

static const struct moe_defaults *defaults_of(const char *architecture) {
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
        if (strcmp(defaults[i].architecture, architecture) == 0) return &defaults[i];
    }
    return NULL;
}

// The count has two names: num_experts in published checkpoints, or n_routed_experts, and
// num_local_experts in transformers 5.
static enum status read_count(struct moe_config *moe, const json_t *root, bool has_routed,
                              const char *what, struct err *err) {
    const char *key = has_routed ? "n_routed_experts" : "num_experts";
    uint32_t local = moe->num_experts;
    enum status status = config_read_u32(root, key, 0, EXPERTS_MAX, &moe->num_experts, what, err);
    if (!status) {
        status = config_read_u32(root, "num_local_experts", 0, EXPERTS_MAX, &local, what, err);
    }
    if (status || !jread_get(root, "num_local_experts")) return status;
    if (jread_get(root, key) && local != moe->num_experts) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %u but \"num_local_experts\" is %u", what,
                       key, moe->num_experts, local);
    }
    moe->num_experts = local;
    return OK;
}

static enum status read_sizes(struct moe_config *moe, const json_t *root,
                              const struct moe_defaults *known, const char *what, struct err *err) {
    const char *top_k = known->has_block ? "top_k_experts" : "num_experts_per_tok";
    bool only_counts = known->only_counts;
    enum status status =
        config_read_u32(root, top_k, 1, EXPERTS_PER_TOK_MAX, &moe->num_experts_per_tok, what, err);
    if (!status && !only_counts) {
        status = config_read_u32(root, "moe_intermediate_size", 1, EXPERT_SIZE_MAX,
                                 &moe->intermediate_size, what, err);
    }
    // Qwen3.5's class does not know the key: it always normalizes.
    if (!status && !only_counts && !moe->is_always_sparse) {
        status = jread_bool(root, "norm_topk_prob", &moe->norm_topk_prob, what, err);
    }
    if (!status && moe->shared_intermediate_size) {
        status = config_read_u32(root, "shared_expert_intermediate_size", 1, EXPERT_SIZE_MAX,
                                 &moe->shared_intermediate_size, what, err);
    }
    if (status) return status;
    if (moe->num_experts_per_tok > moe->num_experts) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %u, more than the %u of \"num_experts\"",
                       what, top_k, moe->num_experts_per_tok, moe->num_experts);
    }
    if ((uint64_t)moe->num_experts * moe->intermediate_size > LAYER_SIZE_MAX) {
        return err_set(err, ERR_FORMAT, "%s: %u experts of intermediate size %u are too many", what,
                       moe->num_experts, moe->intermediate_size);
    }
    return OK;
}

// The shared expert is as large as so many of the others; a factor is of all their weights.
static enum status read_routed(struct moe_config *moe, const json_t *root, const char *what,
                               struct err *err) {
    uint32_t num_shared = 1;
    double factor = 1;
    enum status status =
        config_read_u32(root, "n_shared_experts", 0, EXPERTS_MAX, &num_shared, what, err);
    if (!status) {
        status = config_read_double(root, "routed_scaling_factor", 1e-6, 1e6, &factor, what, err);
    }
    moe->weights_factor = (float)factor;
    uint64_t size = (uint64_t)num_shared * moe->intermediate_size;
    moe->shared_intermediate_size = (uint32_t)size;
    if (status || size <= LAYER_SIZE_MAX) return status;
    return err_set(err, ERR_FORMAT, "%s: %u shared experts of intermediate size %u are too many",
                   what, num_shared, moe->intermediate_size);
}

// The class has no sizes of its own.
static enum status check_block(const struct moe_config *moe, const json_t *root, const char *what,
                               struct err *err) {
    static const char *const keys[] = {"num_experts", "top_k_experts", "moe_intermediate_size"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (i ? jread_get(root, keys[i]) != NULL : moe->num_experts != 0) continue;
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" is missing or 0, but \"enable_moe_block\" is true", what,
                       keys[i]);
    }
    return OK;
}

// mlp_only_layers lists dense layers.
static enum status read_dense_layers(const struct model_config *config, const json_t *root,
                                     const char *what, struct err *err) {
    const json_t *list = jread_get(root, "mlp_only_layers");
    if (list && !json_is_array(list)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"mlp_only_layers\" is %s, want a list of layer numbers", what,
                       jread_type_name(list));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t layer = json_integer_value(value);
        if (!json_is_integer(value)) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"mlp_only_layers\" has %s at %zu, want a layer number", what,
                           jread_type_name(value), i);
        }
        if (layer < 0 || layer >= config->num_layers) {
            return err_set(err, ERR_FORMAT, "%s: \"mlp_only_layers\" has %lld, want 0 to %u", what,
                           (long long)layer, config->num_layers - 1);
        }
        config->moe.is_sparse[layer] = false;
    }
    return OK;
}

static enum status read_layers(struct model_config *config, const json_t *root,
                               const struct moe_defaults *known, const char *what,
                               struct err *err) {
    struct moe_config *moe = &config->moe;
    uint32_t step = 1; // every step-th layer is sparse
    uint32_t num_dense = 0; // but not the first ones
    enum status status = OK;
    bool has_list = !known->only_counts && !known->has_routed && !moe->is_always_sparse;
    if (known->has_routed) {
        num_dense = 1;
        status =
            config_read_u32(root, "first_k_dense_replace", 0, INT32_MAX, &num_dense, what, err);
    } else if (has_list) {
        status = config_read_u32(root, "decoder_sparse_step", 1, INT32_MAX, &step, what, err);
    }
    if (status) return status;
    moe->is_sparse = calloc(config->num_layers, sizeof *moe->is_sparse);
    if (!moe->is_sparse) return err_nomem(err, "sparse layers");
    for (uint32_t i = 0; i < config->num_layers; i++) {
        moe->is_sparse[i] = i >= num_dense && (i + 1) % step == 0;
    }
    if (has_list) status = read_dense_layers(config, root, what, err);
    for (uint32_t i = 0; i < config->num_layers; i++) moe->num_sparse_layers += moe->is_sparse[i];
    return status;
}

enum status moe_config_read(struct model_config *config, const json_t *root, const char *what,
                            struct err *err) {
    struct moe_config *moe = &config->moe;
    const struct moe_defaults *known = defaults_of(config->architecture);
    if (!known) return OK;
    bool is_on = !known->has_block;
    if (known->has_block) {
        enum status switched = jread_bool(root, "enable_moe_block", &is_on, what, err);
        if (switched || !is_on) return switched;
    }
    *moe = known->config;
    moe->weights_factor = 1;
    if (known->only_counts) moe->intermediate_size = config->intermediate_size;
    enum status status = read_count(moe, root, known->has_routed, what, err);
    if (!status && moe->num_experts) {
        status = read_sizes(moe, root, known, what, err);
    }
    if (!status && moe->num_experts && known->has_routed) {
        status = read_routed(moe, root, what, err);
    }
    if (!status && known->has_block) status = check_block(moe, root, what, err);
    if (known->has_block) moe->shared_intermediate_size = config->intermediate_size;
    if (!status && moe->num_experts) status = read_layers(config, root, known, what, err);
    if (status || moe->num_sparse_layers) return status;
    free(moe->is_sparse);
    *moe = (struct moe_config){0};
    return OK;
}
