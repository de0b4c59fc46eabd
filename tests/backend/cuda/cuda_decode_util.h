/* Models of a few layers on any backend, with a paged cache that holds the results of earlier
 * steps. Steps have one token per sequence. They run op by op, as src/model composes them, or by
 * the fusion's `layers`. For test_cuda_decode_layers.c.
 *
 * Every slot of the cache holds NaN until a token is written to it. Blocks are assigned in a
 * shuffled order. After a sequence's own blocks its table has a block of NaN. */
#ifndef CUDA_DECODE_UTIL_H
#define CUDA_DECODE_UTIL_H

#include "backend/cuda/cuda_util.h"

enum { LAYERS_MAX = 3, SEQS = 4, STEPS = 2, CHUNK = 256, PRODUCTS = 4 };
enum { ROWS_MAX = SEQS + 1 }; // of a step; one more than `layers` takes
enum { QKV, OUT, GATE_UP, DOWN };

struct shape {
    uint32_t num_layers, hidden, intermediate, num_heads, num_kv_heads, head_dim, block_size;
    bool norms, biases; // norms: of q and k; biases: of all linears
    bool counts; // weights and values for test_every_position_counts_once
};

struct work {
    uint32_t num_seqs;
    uint32_t context[SEQS]; // includes the first step's token; 0: a row whose result is not used
};

struct layer {
    struct linear *products[PRODUCTS];
    struct tensor input_norm, mlp_norm, q_norm, k_norm;
};

// The weights of a shape on one backend.
struct model {
    struct backend *backend;
    const struct shape *shape;
    struct layer layers[LAYERS_MAX];
    struct fused_model *fused; // of the device, or NULL
};

// A model with a cache that holds a work's past tokens.
struct run {
    const struct model *model;
    const struct work *work;
    struct kv_cache *cache;
    struct tensor rope;
    int32_t *tables; // [num_seqs][stride]
    uint32_t stride, num_blocks;
};

// A step's tokens, one per sequence.
struct decodes {
    uint32_t rows;
    uint32_t seq[ROWS_MAX], context[ROWS_MAX];
    bool no_slots;
    float *residual; // [rows][hidden]
};

// The same on a backend.
struct batch {
    struct tensor residual, positions, slots, context, tables, table_row, query_start;
    struct step step;
};

// Scratch memory. is_shared: `activated` overlaps the two others, as backend.h allows.
struct scratch {
    struct tensor qkv, attended, activated;
    void *parts[3];
    bool is_shared;
};

// Makes models[0] on the scalar backend and models[1] on the device, with the same weights.
void models_make(const struct device_pair *pair, const struct shape *shape, struct model models[2]);
void models_free(struct model models[2]);
// Makes the device's fused model. Returns false, and prints so, if its `layers` need not take
// `rows` rows.
bool can_decode(struct model *model, uint32_t rows);
// The caller destroys the result with model_destroy.
struct fused_model *fused_make(const struct model *model, bool is_whole, bool is_any_size);

// Fills the cache of every layer with the work's past tokens.
struct run run_start(const struct model *model, const struct work *work);
void run_end(struct run *run);

// The tokens of step `number` for the first `rows` sequences of a work, with a random residual.
// Rows whose results are not used, and rows past the work's last sequence, have a residual of NaN.
// The caller frees `residual`.
struct decodes decodes_make(const struct run *run, uint32_t number, uint32_t rows, uint64_t seed);
struct batch batch_make(const struct run *run, const struct decodes *decodes);
void batch_free(struct batch *batch);

// Whether the value in `layer` at a position is 1 instead of 0, for shapes with `counts`: it is in
// one dimension of each head.
bool counts_in(uint32_t position, uint32_t kv_head, uint32_t layer, uint32_t d, uint32_t head_dim);

// Return the residual after all layers; the caller frees [rows][hidden]. one_by_one uses the
// separate ops and needs a step in which all rows are used.
float *one_by_one(const struct run *run, const struct decodes *decodes);
float *all_at_once(const struct run *run, const struct decodes *decodes, bool is_shared);

struct scratch scratch_make(const struct run *run, uint32_t rows, bool is_shared);
void scratch_free(struct scratch *scratch);
// attention_begin and `layers`. False: `layers` refused.
bool takes_layers(const struct run *run, const struct batch *batch);
void run_layers(const struct run *run, const struct batch *batch, const struct scratch *scratch);

#endif
