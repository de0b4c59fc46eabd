/* Calls of the op `experts` for tests: tokens with their routing, the device memory of a call, and
 * one call from host memory to host memory. */
#ifndef CUDA_EXPERTS_UTIL_H
#define CUDA_EXPERTS_UTIL_H

#include "backend/cuda/cuda_util.h"

// Tokens and their routing. Numbers are rounded to bfloat16.
struct experts_call {
    uint32_t num_tokens, top_k, hidden;
    float *x; // [num_tokens][hidden]
    int32_t *ids; // [num_tokens][top_k]
    float *weights; // [num_tokens][top_k]
};
// Only the first `num_used` experts get tokens.
struct experts_call experts_call_make(uint32_t num_tokens, uint32_t top_k, uint32_t hidden,
                                      uint32_t num_used, uint64_t seed);
void experts_call_free(struct experts_call *call);

// The device memory of one call, so that a test can record the call.
struct experts_buffers {
    struct tensor x, ids, weights, out, scratch;
    struct experts_args args;
};
struct experts_buffers experts_buffers_make(struct backend *backend,
                                            const struct experts_shape *shape,
                                            const struct experts *experts, uint32_t num_tokens,
                                            uint32_t top_k);
// Copies the tokens of `call` from `first` on, as many as the buffers have.
void experts_buffers_fill(const struct experts_buffers *b, const struct experts_call *call,
                          uint32_t first);
void experts_buffers_free(struct experts_buffers *b); // checks guard bytes

// Makes the experts, or fails the test.
struct experts *experts_of(struct backend *backend, const struct experts_spec *spec);
// Runs `count` tokens of the call from `first` on. out: [call->num_tokens][hidden].
void experts_run(struct backend *backend, const struct experts_shape *shape,
                 const struct experts *experts, const struct experts_call *call, uint32_t first,
                 uint32_t count, float *out);
// The same, but the sums are added to what `out` has, numbers of bfloat16.
void experts_run_added(struct backend *backend, const struct experts_shape *shape,
                       const struct experts *experts, const struct experts_call *call,
                       uint32_t first, uint32_t count, float *out);

#endif
