/* attention_prepare and attention driven as by an engine: sequences run in steps over a paged
 * cache. Its blocks are scattered and hold NaN before they are written. Block tables have -1 for
 * blocks before the window. */
#ifndef ATTENTION_UTIL_H
#define ATTENTION_UTIL_H

#include "backend/ops_util.h"

enum { ATTEND_SEQS_MAX = 6, ATTEND_LAYER = 1 };

struct attend_shape {
    uint32_t num_heads, num_kv_heads, head_dim, block_size;
    bool norm;
    uint32_t num_seqs;
    uint32_t len[ATTEND_SEQS_MAX];
    uint32_t window; // 0: none
    float softcap; // 0: none
    bool has_sinks;
    bool has_norm_after_rope;
    // The first tokens of each sequence whose results are not wanted: they only fill the cache, so
    // that a long sequence costs little. NANOVLLM_TEST_ALL=1 wants all results.
    uint32_t skip[ATTEND_SEQS_MAX];
};

// How the sequences are run. A step has up to `chunk` tokens of each (0: all), or, with
// `one_by_one`, of one sequence only.
struct attend_schedule {
    uint32_t chunk;
    bool one_by_one;
    int threads;
};

// The inputs of a run, besides the backend.
struct attend_inputs {
    struct attend_shape shape;
    uint32_t num_tokens, max_len;
    size_t row_floats; // (heads + 2 kv heads) * head_dim
    size_t out_floats; // heads * head_dim
    float *qkv; // [num_tokens][row_floats], sequences one after the other
    float *q_norm, *k_norm; // [head_dim] or NULL
    float *rope; // [max_len][head_dim]
    float *sinks; // [num_heads] or NULL
    float scale;
    enum dtype dtype; // of the cache
};

struct attend_inputs attend_inputs_make(const struct attend_shape *shape, enum dtype dtype);
void attend_inputs_free(struct attend_inputs *in);

// The results in double precision, of keys and values as the cache stores them; 0 for tokens whose
// results are not wanted. The caller frees them, [num_tokens][out_floats].
double *attend_oracle(const struct attend_inputs *in);

// The state of an engine: the cache, the block tables and how far each sequence is.
struct attend_runner {
    struct backend *backend;
    struct kv_cache *cache;
    const struct attend_inputs *in;
    uint32_t table_stride, num_blocks;
    int32_t *tables; // [num_seqs][table_stride]
    uint32_t done[ATTEND_SEQS_MAX];
    float *out; // [num_tokens][out_floats]
};

// Gives blocks to the sequences in a shuffled order, and fills every slot with NaN.
void attend_runner_start(struct attend_runner *runner);
// One forward step of tokens[s] more tokens of each sequence.
void attend_runner_step(struct attend_runner *runner, const uint32_t tokens[ATTEND_SEQS_MAX]);

// Runs all sequences to their end. The caller frees the result, [num_tokens][out_floats]; 0 for
// tokens whose results are not wanted.
float *attend_run(const char *isa, const struct attend_inputs *in,
                  const struct attend_schedule *schedule);

#endif
