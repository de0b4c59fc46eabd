/* One step of attention on any backend, for test_cuda_attention.c: the inputs, the paged cache with
 * the results of earlier steps, and the block tables.
 *
 * Every slot of the cache holds NaN until a token is written to it. Blocks are assigned in a
 * shuffled order. After a sequence's own blocks its table has blocks of NaN. Blocks before the
 * windows or chunks of all its queries are gone: the table has -1 for them.
 *
 * Two layers attend, in order, as in a model. Their queries and keys are the same, and the first
 * layer's values are twice the second's. So the first layer's results must be twice the second's,
 * bit for bit, and using the wrong layer shows. */
#ifndef CUDA_ATTENTION_UTIL_H
#define CUDA_ATTENTION_UTIL_H

#include "backend/cuda/cuda_util.h"
#include "backend/kv_cache_dtype.h"

enum { SEQS_MAX = 1100 };

struct shape {
    uint32_t num_heads, num_kv_heads, head_dim, block_size;
    bool norm;
};

// As in attention_args.
struct special {
    uint32_t window;
    bool is_chunked;
    float softcap;
    bool has_sinks, has_norm_after_rope;
};

struct seq {
    uint32_t context, queries; // the step has the last `queries` tokens of `context`
};

// Sequences first, first + stride, .. have the same tokens and blocks at their first positions,
// which are whole blocks.
struct sharing {
    uint32_t first, stride, num_seqs, positions;
};

struct work {
    uint32_t num_seqs;
    struct seq seqs[SEQS_MAX];
    struct sharing sharing[2]; // [num_sharing]
    uint32_t num_sharing;
};

struct inputs {
    struct shape shape;
    const struct work *work;
    struct special special;
    uint32_t num_queries, max_context;
    size_t row_floats; // (heads + 2 kv heads) * head_dim
    float **qkv; // [num_seqs] of [context][row_floats]
    float *q_norm, *k_norm; // [head_dim]
    float *sinks; // [num_heads]
    float *rope; // [max_context][head_dim]
};

struct inputs inputs_make(const struct shape *shape, const struct work *work);
void inputs_free(struct inputs *in);
// The sequences' block tables, [num_seqs][stride], and how many blocks there are.
int32_t *tables_make(const struct inputs *in, uint32_t stride, uint32_t *num_blocks);
// Puts blocks of NaN in place of shared ones, except for the first sequence that has them.
void hide_shared(const struct inputs *in, uint32_t s, int32_t *table, uint32_t stride);
// What step.shared is for a step of all sequences.
struct shared_prefixes shared_on(struct backend *backend, const struct inputs *in,
                                 uint32_t num_seqs, struct tensor *prefix_of, struct tensor *seqs);

// How to run the step. All zeros: all sequences, nothing special.
struct variant {
    uint32_t only; // 1 + number of the only sequence in the step; 0: all
    uint32_t more_stride; // extra entries per row of the block tables
    uint32_t num_padding; // extra sequences of one token without a slot, with context_len 0
    bool zero_padding; // padding has q, k and v of 0 instead of NaN
    // Use the fusion's attend, which must take steps of decodes alone, may take drafts, and must
    // refuse others.
    bool is_fused;
    bool as_drafts; // each query token is a sequence of its own, with its sequence's block table
    bool unslotted; // the step's tokens have no slots
    uint32_t kv_group; // 0 or 1: of two groups, where the first has no slots and blocks of NaN
    bool skipped; // first run a step whose tokens are NaN and have no slots
    const struct project_in_args *qkv; // run by project_in before the step; NULL: none
    // The cache has layers of several shapes: a block has others before and behind these two.
    bool is_among_shapes;
    bool hides_prompts; // the step does not tell num_prompts and prompt_positions
    // Called with the cache before the step, and again when it is done; NULL: nothing.
    void (*look)(struct backend *backend, struct kv_cache *cache, bool is_done);
    // The step has shared prefixes; with SHARES_ALONE nothing else finds the shared blocks.
    enum { SHARES_NOT, SHARES_TOO, SHARES_ALONE } shares;
    enum dtype kv_dtype; // of the cache; DTYPE_NONE: float32 or, where there is none, the device's
};

// Returns the second layer's results of all tokens but padding. The caller frees [queries][heads *
// head_dim].
float *attention_on(struct backend *backend, const struct inputs *in,
                    const struct variant *variant);
// Returns the q of all query tokens after attention_prepare: [queries][heads * head_dim].
float *queries_on(struct backend *backend, const struct inputs *in);

#endif
