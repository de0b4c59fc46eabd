/* Inputs and checks of attention for test_cuda_attention.c and test_cuda_kv_codes.c: a device's
 * results against the scalar ones, in several variants of a step, and exact counts of what a query
 * sees. */
#ifndef CUDA_ATTENTION_CHECKS_H
#define CUDA_ATTENTION_CHECKS_H

#include "backend/cuda/cuda_attention_util.h"

enum { NUM_SHAPES = 12 };
extern const struct shape shapes[NUM_SHAPES];
// On a device with clusters, attention/decode_cluster.cu takes the decodes of the first. The head
// of the second is too wide for it.
extern const struct shape *const few_and_many[2];
extern const struct work decode, prefill, chunked, mixed, mostly_prefill;
extern const struct work tiled_prefill; // tiles of queries and positions, in few queries
// Contexts shorter and longer than the windows of check_special.
extern const struct work windowed_decode, windowed_prompts, windowed_mixed;

bool has_attend(const struct backend *device);
// Of the cache's kind, DTYPE_NONE: the device's own. few: of few numbers.
double bound_of(enum dtype kv_dtype, bool few);

// Each variant's results against the scalar ones.
void check_all_with(const struct device_pair *pair, const struct shape *shape,
                    const struct special *special, const struct work *work,
                    const struct variant *variants, size_t num_variants);
void check_variant(const struct device_pair *pair, const struct shape *shape,
                   const struct work *work, const struct variant *variant);
// With windows, chunks, caps of the scores and sinks.
void check_special(const struct device_pair *pair, const struct work *work,
                   const struct variant *variants, size_t num_variants);
// Checks that two variants of a step give the same bits.
void check_agree(const struct device_pair *pair, const struct shape *shape, const struct work *work,
                 const struct variant *a, const struct variant *b, const char *what);
// Every position that a query sees counts once, and no other.
void check_every_position(const struct device_pair *pair, const struct variant *variant);

#endif
