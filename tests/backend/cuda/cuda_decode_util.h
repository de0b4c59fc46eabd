/* Models of a few layers on any backend, a paged cache with what the steps before left in it, and
 * steps of one token per sequence: op by op as src/model composes them, and by the fusion's `layers`. For
 * test_cuda_decode_layers.c.
 *
 * Every slot of the cache holds NaN until a token is written to it, blocks are dealt out in a shuffled
 * order, and a table goes on with a block of NaN behind a sequence's own. */
#ifndef CUDA_DECODE_UTIL_H
#define CUDA_DECODE_UTIL_H

#include "backend/cuda/cuda_util.h"

enum { LAYERS_MAX = 3, SEQS = 4, STEPS = 2, PIECE = 256, PRODUCTS = 4 };
enum { ROWS_MAX = SEQS + 1 }; // of a step; one more than `layers` is the faster way for
enum { QKV, OUT, GATE_UP, DOWN };

struct shape {
    uint32_t num_layers, hidden, intermediate, num_heads, num_kv_heads, head_dim, block_size;
    bool norms, biases; // of q and k; of all linears
    bool counts; // weights and values as test_every_position_counts_once wants them
};

struct work {
    uint32_t num_seqs;
    uint32_t context[SEQS]; // with the first step's token; 0: a row of which nothing is wanted
};

struct layer {
    struct linear *products[PRODUCTS];
    struct tensor input_norm, mlp_norm, q_norm, k_norm;
};

// A shape's weights on one backend.
struct model {
    struct backend *backend;
    const struct shape *shape;
    struct layer layers[LAYERS_MAX];
    struct fused_model *fused; // the device's, or NULL
};

// A model with a cache that holds a work's past.
struct run {
    const struct model *model;
    const struct work *work;
    struct kv_cache *cache;
    struct tensor rope;
    int32_t *tables; // [num_seqs][stride]
    uint32_t stride, num_blocks;
};

// One token of each of some sequences.
struct decodes {
    uint32_t rows;
    uint32_t seq[ROWS_MAX], context[ROWS_MAX];
    bool no_slots;
    float *residual; // [rows][hidden]
};

// The same on a backend.
struct batch {
    struct tensor residual, positions, slots, context, tables, stride, query_start;
    struct step step;
};

// `activated` apart from, or over the two others, as backend.h allows.
struct scratch {
    struct tensor qkv, attended, activated;
    void *parts[3];
    bool is_shared;
};

// The same weights on the scalar backend, [0], and the device, [1].
void models_make(const struct device_pair *pair, const struct shape *shape, struct model models[2]);
void models_free(struct model models[2]);
// Makes the device's fused model; false where its `layers` need not take `rows` rows, and says so.
bool can_decode(struct model *model, uint32_t rows);
// The caller destroys it.
struct fused_model *fused_make(const struct model *model, bool is_whole, bool prefers_layers);

// With the past of a work's sequences in the cache of every layer.
struct run run_start(const struct model *model, const struct work *work);
void run_end(struct run *run);

// Tokens of step `number`, of the first `rows` sequences of a work, with a residual of their own:
// NaN in rows that nobody wants, as are those behind the work's last. The caller frees `residual`.
struct decodes decodes_make(const struct run *run, uint32_t number, uint32_t rows, uint64_t seed);
struct batch batch_make(const struct run *run, const struct decodes *decodes);
void batch_free(struct batch *batch);

// What is in `layer` at a position, where a shape counts: 1 in one dimension of a head.
bool counts_in(uint32_t position, uint32_t kv_head, uint32_t layer, uint32_t d, uint32_t head_dim);

// The residual after all layers; the caller frees [rows][hidden]. Op by op: of a step without rows
// that nobody wants.
float *one_by_one(const struct run *run, const struct decodes *decodes);
float *all_at_once(const struct run *run, const struct decodes *decodes, bool is_shared);

struct scratch scratch_make(const struct run *run, uint32_t rows, bool is_shared);
void scratch_free(struct scratch *scratch);
// step_begin and `layers`; false: not done.
bool run_layers(const struct run *run, const struct batch *batch, const struct scratch *scratch);

#endif
