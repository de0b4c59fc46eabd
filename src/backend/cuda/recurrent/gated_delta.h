/* Gated delta nets: what cuda_backend.c calls, and the kernels' files call of each other. */
#ifndef BACKEND_CUDA_GATED_DELTA_H
#define BACKEND_CUDA_GATED_DELTA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t cuda_gated_delta_slot_bytes(const struct gated_delta_shape *shape);
bool cuda_gated_delta_computes_gates(const struct gated_delta_args *args,
                                     const struct cuda_linear_view *gates);
// gates: as args->gates_linear; needed where args->gates is NULL.
void cuda_gated_delta_launch(const struct gated_delta_args *args,
                             const struct cuda_linear_view *gates,
                             const struct cuda_device_info *info, cudaStream_t stream);

// delta_chunks.cuh: scratch memory of a step with so many tokens.
size_t cuda_delta_chunks_scratch_bytes(const struct gated_delta_shape *shape, uint32_t num_tokens);
bool cuda_delta_chunks_fit(const struct gated_delta_shape *shape,
                           const struct cuda_device_info *info);
enum {
    CUDA_DELTA_CHUNKED_MIN = 32, // sequences with so many tokens go through in chunks
    CUDA_DELTA_SEGMENT = 2048, // tokens of a step that go through at a time
};
// Both kernels for the segment of the step's tokens that begins with `from`, one after the other.
void cuda_delta_parts_launch(const struct gated_delta_args *args, uint32_t from,
                             const struct cuda_device_info *info, cudaStream_t stream);
void cuda_delta_scan_launch(const struct gated_delta_args *args, uint32_t from,
                            const struct cuda_device_info *info, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
