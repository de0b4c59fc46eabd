/* One step of attention on any backend, with what the steps before left in the cache: the inputs,
 * the paged cache and its block tables, for test_cuda_attention.c.
 *
 * Every slot of the cache holds NaN until a token is written to it, blocks are dealt out in a
 * shuffled order, and a table goes on with blocks of NaN behind a sequence's own.
 *
 * Two layers attend, in order, as in a model. Their queries and keys are the same, and all values of
 * the first are twice those of the second. So results of the first must be twice those of the
 * second, to the bit, and a layer in place of the other shows. */
#ifndef CUDA_ATTENTION_UTIL_H
#define CUDA_ATTENTION_UTIL_H

#include "backend/cuda/cuda_util.h"

enum { SEQS_MAX = 1100 };

struct shape {
    uint32_t num_heads, num_kv_heads, head_dim, block_size;
    bool norm;
};

struct seq {
    uint32_t context, queries; // the step has the last `queries` tokens of `context`
};

struct work {
    uint32_t num_seqs;
    struct seq seqs[SEQS_MAX];
};

struct inputs {
    struct shape shape;
    const struct work *work;
    uint32_t num_queries, max_context;
    size_t row_floats; // (heads + 2 kv heads) * head_dim
    float **qkv; // [num_seqs] of [context][row_floats]
    float *q_norm, *k_norm; // [head_dim]
    float *rope; // [max_context][head_dim]
};

struct inputs inputs_make(const struct shape *shape, const struct work *work);
void inputs_free(struct inputs *in);

// How the step is run; zeros: all sequences, nothing special.
struct variant {
    uint32_t only; // 1 + the one sequence of the step; 0: all
    uint32_t more_stride; // entries that block tables are wider
    uint32_t num_padding; // more sequences, of one token without a slot and context_len 0
    bool zero_padding; // whose q, k and v are zeros, else NaN
    bool on_the_way; // by the fusion's attend, which must take steps of decodes and no others
    bool unslotted; // the step's tokens are not to be kept
    bool skipped; // a step before whose tokens are NaN and have no slot
    struct fused_model *model; // that step_begin is told of, or NULL
};

// The second layer's results of the step's tokens without padding; the caller frees [queries][heads * head_dim].
float *attention_on(struct backend *backend, const struct inputs *in,
                    const struct variant *variant);
// The q of all query tokens after attention_prepare: [queries][heads * head_dim].
float *queries_on(struct backend *backend, const struct inputs *in);

#endif
