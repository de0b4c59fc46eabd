/* What transformers' configuration classes of models with experts have: the names of their keys,
 * and defaults. */
#ifndef CHECKPOINT_MOE_DEFAULTS_H
#define CHECKPOINT_MOE_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/model_config.h"

// The class's names of keys; NULL: it has none, and the default holds.
struct moe_keys {
    const char *count, *top_k;
    const char *size; // of an expert; NULL: intermediate_size
    const char *norm; // norm_topk_prob
    const char *shared_size; // of the shared expert
    const char *num_shared; // or it is as large as so many of the others
    const char *factor; // routed_scaling_factor
    const char *num_dense; // the first layers, which are dense
    const char *last_sparse; // the layers behind this one are dense; -1: there are none
    const char *step; // of the others every step-th layer is sparse
    bool has_list; // mlp_only_layers has dense layers
    bool has_sparse_list; // moe_layers has the sparse ones; missing: the step says it
    bool has_types; // mlp_layer_types may say of each layer whether it is dense
    bool has_groups; // n_group and topk_group
    bool has_selection; // expert_selection_fn: softmax of the chosen, or sigmoid
    bool has_blocks; // the layers whose block is experts
};

struct moe_defaults {
    const char *architecture;
    const struct moe_keys *keys;
    uint32_t num_shared, num_dense; // of the keys of these names
    double factor; // routed_scaling_factor; 0: 1
    bool has_block; // Gemma 4's experts are beside the dense MLP, and may be switched off
    bool is_always_stacked; // its layout holds for a checkpoint of the text model alone, too
    bool has_dense_size; // the shared expert is as large as a dense MLP
    struct moe_config config;
};

// NULL: the architecture has no experts.
const struct moe_defaults *moe_defaults_of(const char *architecture);

#endif
