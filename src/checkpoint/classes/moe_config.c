/* Reads the keys of a mixture of experts, with the defaults of transformers' configuration
 * classes. */
#include "checkpoint/classes/moe_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "checkpoint/classes/moe_defaults.h"
#include "checkpoint/config_read.h"

enum {
    EXPERTS_MAX = 1 << 12,
    EXPERTS_PER_TOK_MAX = 1 << 8,
    EXPERT_SIZE_MAX = 1 << 21,
    GROUPS_MAX = 32,
    LAYER_SIZE_MAX = 1 << 26, // sum of one layer's experts: keeps a model's bytes below 2^62
};

// The count has two names: the class's in published checkpoints, and num_local_experts in
// transformers 5.
static enum status read_count(struct moe_config *moe, const json_t *root, const char *key,
                              const char *what, struct err *err) {
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

// The shared expert is as large as so many of the others; a factor is of all their weights.
static enum status read_routed(struct moe_config *moe, const json_t *root,
                               const struct moe_defaults *known, const char *what,
                               struct err *err) {
    uint32_t num_shared = known->num_shared;
    double factor = known->factor != 0 ? known->factor : 1;
    enum status status = OK;
    if (known->keys->num_shared) {
        status =
            config_read_u32(root, known->keys->num_shared, 0, EXPERTS_MAX, &num_shared, what, err);
    }
    if (!status && known->keys->factor) {
        status = config_read_double(root, known->keys->factor, 1e-6, 1e6, &factor, what, err);
    }
    moe->weights_factor = (float)factor;
    if (status || known->keys->shared_size) return status; // that has a key of its own
    uint64_t size = (uint64_t)num_shared * moe->intermediate_size;
    moe->shared_intermediate_size = (uint32_t)size;
    if (size <= LAYER_SIZE_MAX) return OK;
    return err_set(err, ERR_FORMAT, "%s: %u shared experts of intermediate size %u are too many",
                   what, num_shared, moe->intermediate_size);
}

// DeepSeek-V2 has groups only where "topk_method" says so.
static enum status read_groups(struct moe_config *moe, const json_t *root, const char *what,
                               struct err *err) {
    bool is_by_method = moe->group_best == 1;
    const char *method = "greedy";
    uint32_t count = moe->num_groups ? moe->num_groups : 1;
    uint32_t top = moe->num_groups ? moe->top_groups : 1;
    enum status status = OK;
    if (is_by_method) status = jread_string(root, "topk_method", &method, what, err);
    if (status) return status;
    bool is_limited = strcmp(method, "group_limited_greedy") == 0;
    if (is_by_method && !is_limited && strcmp(method, "greedy") != 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"topk_method\" is \"%.40s\", only greedy and group_limited_greedy are "
                       "supported",
                       what, method);
    }
    moe->num_groups = moe->top_groups = 0;
    if (is_by_method && !is_limited) return OK;
    status = config_read_u32(root, "n_group", 1, GROUPS_MAX, &count, what, err);
    if (!status) status = config_read_u32(root, "topk_group", 1, count, &top, what, err);
    if (status || top == count) return status;
    uint32_t size = moe->num_experts / count;
    if (moe->num_experts % count || size < moe->group_best ||
        size * top < moe->num_experts_per_tok) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"n_group\" is %u and \"topk_group\" %u, which does not suit %u "
                       "experts of which a token has %u",
                       what, count, top, moe->num_experts, moe->num_experts_per_tok);
    }
    moe->num_groups = count;
    moe->top_groups = top;
    return OK;
}

// A number, or a list that has the same one for each layer.
static enum status read_top_k(struct moe_config *moe, const json_t *root, const char *key,
                              const char *what, struct err *err) {
    uint32_t *out = &moe->num_experts_per_tok;
    const json_t *value = jread_get(root, key), *first = json_array_get(value, 0);
    if (!first) return config_read_u32(root, key, 1, EXPERTS_PER_TOK_MAX, out, what, err);
    for (size_t i = 1; i < json_array_size(value); i++) {
        if (json_equal((json_t *)(uintptr_t)first, json_array_get(value, i))) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" differs between layers, which is not supported", what, key);
    }
    json_int_t count = json_integer_value(first);
    if (count < 1 || count > EXPERTS_PER_TOK_MAX) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is a list of %lld, want 1 to %d", what, key,
                       (long long)count, EXPERTS_PER_TOK_MAX);
    }
    *out = (uint32_t)count;
    return OK;
}

// Command A+ chooses the largest logits. Its weights are their sigmoids, or the softmax of the
// chosen ones.
static enum status read_selection(struct moe_config *moe, const json_t *root, const char *what,
                                  struct err *err) {
    static const char key[] = "expert_selection_fn";
    const char *how = "softmax";
    enum status status = jread_string(root, key, &how, what, err);
    if (status) return status;
    moe->is_sigmoid = strcmp(how, "sigmoid") == 0;
    if (moe->is_sigmoid) return OK;
    moe->norm_topk_prob = true;
    if (strcmp(how, "softmax") == 0) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" is \"%.40s\", only softmax and sigmoid are supported", what, key,
                   how);
}

static enum status read_sizes(struct moe_config *moe, const json_t *root,
                              const struct moe_defaults *known, const char *what, struct err *err) {
    const struct moe_keys *keys = known->keys;
    enum status status = read_top_k(moe, root, keys->top_k, what, err);
    if (!status && keys->size) {
        status = config_read_u32(root, keys->size, 1, EXPERT_SIZE_MAX, &moe->intermediate_size,
                                 what, err);
    }
    if (!status && keys->norm) {
        status = config_read_bool(root, keys->norm, &moe->norm_topk_prob, what, err);
    }
    if (!status && keys->has_selection) status = read_selection(moe, root, what, err);
    if (!status && keys->shared_size) {
        // Where the class has none by default, 0 says so.
        status = config_read_u32(root, keys->shared_size, moe->shared_intermediate_size ? 1 : 0,
                                 EXPERT_SIZE_MAX, &moe->shared_intermediate_size, what, err);
    }
    if (!status && (known->num_shared || keys->num_shared || keys->factor)) {
        status = read_routed(moe, root, known, what, err);
    }
    if (status) return status;
    if (!moe->num_experts_per_tok || !moe->intermediate_size) { // the class has no default
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is missing", what,
                       moe->num_experts_per_tok ? keys->size : keys->top_k);
    }
    if (moe->num_experts_per_tok > moe->num_experts) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %u, more than the %u of \"%s\"", what,
                       keys->top_k, moe->num_experts_per_tok, moe->num_experts, keys->count);
    }
    if ((uint64_t)moe->num_experts * moe->intermediate_size > LAYER_SIZE_MAX) {
        return err_set(err, ERR_FORMAT, "%s: %u experts of intermediate size %u are too many", what,
                       moe->num_experts, moe->intermediate_size);
    }
    return keys->has_groups ? read_groups(moe, root, what, err) : OK;
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

// A list of layers that are dense, or sparse.
static enum status read_list(const struct model_config *config, const json_t *root, const char *key,
                             bool is_sparse, const char *what, struct err *err) {
    const json_t *list = jread_get(root, key);
    if (list && !json_is_array(list)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want a list of layer numbers", what, key,
                       jread_type_name(list));
    }
    for (uint32_t i = 0; i < config->num_layers && list && is_sparse; i++) {
        config->moe.is_sparse[i] = false; // all but those that follow
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t layer = json_integer_value(value);
        if (!json_is_integer(value)) {
            return err_set(err, ERR_FORMAT, "%s: \"%s\" has %s at %zu, want a layer number", what,
                           key, jread_type_name(value), i);
        }
        if (layer < 0 || layer >= config->num_layers) {
            return err_set(err, ERR_FORMAT, "%s: \"%s\" has %lld, want 0 to %u", what, key,
                           (long long)layer, config->num_layers - 1);
        }
        config->moe.is_sparse[layer] = is_sparse;
    }
    return OK;
}

// mlp_layer_types has a word for each layer.
static enum status read_layer_types(const struct model_config *config, const json_t *root,
                                    const char *what, struct err *err) {
    const json_t *list = jread_get(root, "mlp_layer_types");
    if (!list) return OK;
    for (uint32_t i = 0; i < config->num_layers; i++) {
        const char *type = json_string_value(json_array_get(list, i));
        bool is_sparse = type && strcmp(type, "sparse") == 0;
        if (json_array_size(list) != config->num_layers ||
            (!is_sparse && (!type || strcmp(type, "dense") != 0))) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"mlp_layer_types\" is %s of %zu, want dense or sparse for each of "
                           "the %u layers",
                           what, jread_type_name(list), json_array_size(list), config->num_layers);
        }
        config->moe.is_sparse[i] = is_sparse;
    }
    return OK;
}

static enum status read_layers(struct model_config *config, const json_t *root,
                               const struct moe_defaults *known, const char *what,
                               struct err *err) {
    struct moe_config *moe = &config->moe;
    const struct moe_keys *keys = known->keys;
    uint32_t step = 1, num_dense = known->num_dense;
    int64_t last = -1;
    enum status status = OK;
    if (keys->step) status = config_read_u32(root, keys->step, 1, INT32_MAX, &step, what, err);
    if (!status && keys->num_dense) {
        status = config_read_u32(root, keys->num_dense, 0, INT32_MAX, &num_dense, what, err);
    }
    if (!status && keys->last_sparse) {
        status = jread_int(root, keys->last_sparse, -1, INT32_MAX, &last, what, err);
    }
    if (status) return status;
    moe->is_sparse = calloc(config->num_layers, sizeof *moe->is_sparse);
    if (!moe->is_sparse) return err_nomem(err, "sparse layers");
    for (uint32_t i = 0; i < config->num_layers; i++) {
        moe->is_sparse[i] = i >= num_dense && (last < 0 || i <= last) && (i + 1) % step == 0;
        if (keys->has_blocks) moe->is_sparse[i] = config->own.blocks[i] == BLOCK_EXPERTS;
    }
    if (keys->has_list) status = read_list(config, root, "mlp_only_layers", false, what, err);
    if (keys->has_sparse_list) status = read_list(config, root, "moe_layers", true, what, err);
    if (keys->has_types) status = read_layer_types(config, root, what, err);
    for (uint32_t i = 0; i < config->num_layers; i++) moe->num_sparse_layers += moe->is_sparse[i];
    return status;
}

enum status moe_config_read(struct model_config *config, const json_t *root, const char *what,
                            struct err *err) {
    struct moe_config *moe = &config->moe;
    const struct moe_defaults *known = moe_defaults_of(config->architecture);
    if (!known) return OK;
    bool is_on = !known->has_block;
    if (known->has_block) {
        enum status switched = jread_bool(root, "enable_moe_block", &is_on, what, err);
        if (switched || !is_on) return switched;
    }
    *moe = known->config;
    moe->weights_factor = 1;
    // A checkpoint of the text model alone has its experts apart.
    bool is_stacked = known->is_always_stacked || config->has_other_parts;
    if (moe->layout == EXPERTS_HALVED && !is_stacked) moe->layout = EXPERTS_APART;
    if (!known->keys->size) moe->intermediate_size = config->intermediate_size;
    enum status status = read_count(moe, root, known->keys->count, what, err);
    if (!status && moe->num_experts) {
        status = read_sizes(moe, root, known, what, err);
    }
    if (!status && known->has_block) status = check_block(moe, root, what, err);
    if (known->has_dense_size) moe->shared_intermediate_size = config->intermediate_size;
    if (!status && moe->num_experts) status = read_layers(config, root, known, what, err);
    if (status || moe->num_sparse_layers) return status;
    free(moe->is_sparse);
    *moe = (struct moe_config){0};
    return OK;
}
