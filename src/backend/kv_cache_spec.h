/* What a paged KV cache is made for: the steps that attend over it, and its layers. */
#ifndef BACKEND_KV_CACHE_SPEC_H
#define BACKEND_KV_CACHE_SPEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

// The largest step that will ever run: memory for steps is allocated by these sizes.
struct step_limits {
    uint32_t max_num_tokens;
    uint32_t max_num_seqs; // also the most rows of logits
    uint32_t max_positions; // tokens of the longest sequence
    uint32_t max_blocks_per_seq; // length of its block table in each KV group
    uint32_t num_kv_groups;
    uint32_t num_snapshots; // slots for states beside those of max_num_seqs sequences
};

enum { KV_GROUPS_MAX = 8 };

// A place in the memory of a block whose layers have different shapes: behind so many KV heads of
// other layers, whose keys at one position have so many elements together.
struct kv_place {
    size_t num_heads, num_elements;
};

enum { KV_SHAPES_MAX = 8 };

// What layers with keys and values may differ in.
struct kv_shape {
    uint32_t num_kv_heads, head_dim;
};

struct kv_cache_spec {
    uint32_t num_layers; // of one KV group, or of the largest
    uint32_t num_blocks;
    uint32_t block_size; // tokens, a multiple of 16
    uint32_t num_kv_heads; // of a layer, or the most of one
    uint32_t head_dim; // of a layer, or the largest; a multiple of 16
    uint32_t num_heads; // query heads of the attention over this cache
    // Of latent attention: values are the first elements of keys, so many. 0: they are apart.
    uint32_t latent_rank;
    struct step_limits limits; // of the steps that attend over this cache, for work lists
    // Of K and V: DTYPE_BF16, DTYPE_F32, DTYPE_I8 or DTYPE_F8_E4M3 with a scale for each head and
    // position, or DTYPE_NONE for the backend's kv_cache_dtype.
    enum dtype dtype;
    // Where layers differ in num_kv_heads or head_dim: their shapes, each once, and the end of a
    // block in any KV group. Zeros: all have the same shape.
    struct kv_place block_end;
    struct kv_shape shapes[KV_SHAPES_MAX]; // [num_shapes]
    uint32_t num_shapes;
};

#endif
