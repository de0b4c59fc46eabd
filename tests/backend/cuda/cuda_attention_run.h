/* A paged cache with the results of earlier steps, and tokens for it, for cuda_attention_util.c. */
#ifndef CUDA_ATTENTION_RUN_H
#define CUDA_ATTENTION_RUN_H

#include "backend/cuda/cuda_attention_util.h"

enum { FIRST, SECOND, LAYERS };

struct run {
    struct backend *backend;
    const struct inputs *in;
    const struct variant *variant;
    struct kv_cache *cache;
    struct tensor rope, q_norm, k_norm, sinks;
    int32_t *tables; // [num_seqs][stride]
    uint32_t stride, num_blocks;
};

// The tokens of one call of attention_prepare.
struct tokens {
    uint32_t num;
    float *rows; // [num][row_floats]
    int32_t *positions, *slots; // [num]
};

// Tokens on the device, in the form of a step that attention_prepare can read.
struct placed {
    struct tensor positions, slots;
    struct step step;
};

// Fills the cache with NaN. The caller ends it with attention_run_end.
struct run attention_run_start(struct backend *backend, const struct inputs *in,
                               const struct variant *variant);
void attention_run_end(struct run *run);
// Writes what earlier steps put into the cache for sequence `s`.
void write_past(const struct run *run, uint32_t s);
// Runs a step of tokens that are NaN and have no slots.
void write_nothing(const struct run *run);
// Sequences of the variant's step.
uint32_t num_step_rows(const struct inputs *in, const struct variant *variant);

struct tokens tokens_make(const struct run *run, uint32_t num);
void tokens_free(struct tokens *tokens);
// Copies `position` of sequence `s` into token `i`.
void tokens_set(const struct run *run, struct tokens *tokens, uint32_t i, uint32_t s,
                uint32_t position);
struct placed placed_make(const struct run *run, const struct tokens *tokens);
void placed_free(struct placed *p);
// The q, k and v of these tokens in a layer.
struct tensor qkv_on(const struct run *run, const struct tokens *tokens, uint32_t layer);
struct attention_args args_of(const struct run *run, const struct step *step, uint32_t layer,
                              void *qkv, void *out);

#endif
