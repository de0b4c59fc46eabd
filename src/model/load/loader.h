/* The steps of loading a decoder: tensors are taken by name, with the shape that follows from the
 * config, and this rank's slices of them become linears of the backend, or vectors on the device.
 * decoder_load.c says which tensors these are. */
#ifndef MODEL_LOAD_LOADER_H
#define MODEL_LOAD_LOADER_H

#include "model/decoder_internal.h"

// The state of one load.
struct loader {
    struct decoder *decoder;
    struct weights *weights;
    const struct interrupt *interrupt; // NULL: none
    struct err *err;
    struct load_progress progress;
    uint64_t num_loaded, num_parameters; // of the whole model, also where a rank keeps a part
};

// Which elements of a head are rotated: the first `dim`. All zero: no rotation.
struct head_rotation {
    uint32_t dim;
    bool is_interleaved; // in pairs of neighbours; else the second half has the pairs' others
};

// `count` rows of a tensor [rows][cols] and, where has_bias, of its bias [rows]. They begin at row
// `start`. With `run` they are runs of `run` rows each, and each run begins `stride` rows after the
// one before.
struct row_part {
    const char *module; // "self_attn.q_proj": ".weight" and ".bias" are appended
    uint32_t rows, start, count;
    uint32_t run, stride; // 0: all rows follow each other
    struct head_rotation rotation; // of heads, which the runs are
    float factor; // of the rows and their biases; 0: none
};

enum { ROW_PARTS_MAX = 8 };

// A linear of rows of one or more tensors, stacked.
struct row_linear {
    const struct row_part *parts; // [num_parts]
    uint32_t num_parts;
    struct weight_format format;
    struct linear **out;
};

// Columns [start, start + count) of a tensor [rows][cols].
struct col_part {
    const char *module;
    uint32_t rows, cols, start, count;
    struct weight_format format;
};

// What the checkpoint's heads of q and k want.
static inline struct head_rotation loader_rotation(const struct layer_table *table,
                                                   const struct layer *layer) {
    return (struct head_rotation){layer->rotary_dim, table->is_rope_interleaved};
}

// The first key/value head that this rank takes.
static inline uint32_t loader_kv_head_start(const struct decoder *d, const struct layer *layer) {
    return (uint32_t)((uint64_t)d->shape.rank * layer->num_kv_heads / d->shape.world_size);
}

// Tells the caller's progress function.
void loader_tell(const struct loader *l, uint64_t num_loaded);
// Takes a matrix, and counts it as loaded. ERR_INTERRUPTED where the caller wants to stop.
MUST_USE enum status loader_take_matrix(struct loader *l, const char *name, uint32_t rows,
                                        uint32_t cols, struct weight *out);
// Creates a linear. The backend has read the spec's slices when this returns.
MUST_USE enum status loader_create_linear(struct loader *l, const struct linear_spec *spec,
                                          struct linear **out);
// Rows, or columns, [start, start + count) of a matrix.
struct matrix_slice loader_rows_of(const struct weight *weight, uint32_t start, uint32_t count);
struct matrix_slice loader_cols_of(const struct weight *weight, uint32_t start, uint32_t count);
// Elements [start, start + count) of a bias, which is a matrix of one row.
struct matrix_slice loader_bias_of(const struct weight *weight, uint32_t start, uint32_t count);

// Rows [row, row + rows) in the columns [col, col + cols).
struct matrix_slice loader_part_of(const struct weight *weight, uint32_t row, uint32_t rows,
                                   uint32_t col, uint32_t cols);

// Column-parallel: stacks this rank's rows of all parts into one linear, so that q, k and v (or
// gate and up) are one matrix product. Several linears may have parts of the same tensor; together
// they have at most ROW_PARTS_MAX. nano-vllm: ColumnParallelLinear, MergedColumnParallelLinear,
// QKVParallelLinear.
MUST_USE enum status loader_load_rows(struct loader *l, uint32_t layer,
                                      const struct row_linear *linears, uint32_t num_linears,
                                      uint32_t cols, bool has_bias);
// Row-parallel: takes columns [start, start + count). The bias is added once to the sum over ranks,
// so only rank 0 has it. nano-vllm: RowParallelLinear.
MUST_USE enum status loader_load_cols(struct loader *l, uint32_t layer, const struct col_part *part,
                                      bool has_bias, struct linear **out);

// Takes this rank's rows of a matrix [vocab_size][cols]. nano-vllm: VocabParallelEmbedding,
// ParallelLMHead.
MUST_USE enum status loader_load_vocabulary(struct loader *l, const char *module, uint32_t cols,
                                            bool has_bias, struct weight_format format,
                                            struct linear **out);

// Reads a vector, or a small matrix [shape[0]][shape[1]], as floats; the caller frees *out.
MUST_USE enum status loader_read_floats(struct loader *l, const char *name, uint32_t rank,
                                        const uint64_t *shape, float **out);
// Copies host floats to new device memory.
MUST_USE enum status loader_to_device(struct decoder *d, const float *values, size_t count,
                                      float **out, struct err *err);
// A norm's weights, times `factor`, as the table's kind of norm has them.
MUST_USE enum status loader_load_norm(struct loader *l, const char *name, uint32_t count,
                                      float factor, float **out);
// The same of a norm in front of attention, MLP or logits, with its biases behind them where the
// table has any. `module` is its whole name.
MUST_USE enum status loader_load_hidden_norm(struct loader *l, const char *module, float factor,
                                             float **out);
// The same of heads, in the order of their rows.
struct head_norm_part {
    const char *module;
    uint32_t num_heads; // of the tensor
    uint32_t start, count; // heads that this rank takes
    uint32_t head_dim;
    struct head_rotation rotation;
};
MUST_USE enum status loader_load_head_norm(struct loader *l, uint32_t layer,
                                           const struct head_norm_part *part, float **out);
// Weights of each head's own, of which *out takes those of q and behind them those of k. A tensor
// has all heads, or with is_split one, and the head's number in its name.
MUST_USE enum status loader_load_own_head_norms(struct loader *l, uint32_t layer, bool is_split,
                                                const struct head_norm_part *q,
                                                const struct head_norm_part *k, float **out);
MUST_USE enum status loader_load_layer_norm(struct loader *l, uint32_t layer, const char *module,
                                            uint32_t count, float **out);

#endif
