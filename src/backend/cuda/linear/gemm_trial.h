/* How a linear of many rows is computed, and the search for the fastest way on the device. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_TRIAL_H
#define BACKEND_CUDA_LINEAR_GEMM_TRIAL_H

#include "backend/cuda/kernels.h"
#include "backend/cuda/linear/gemm_cache.h"
#include "backend/cuda/linear/gemm_library.h"

struct cuda_gemm {
    struct gemm_library library;
    cublasLtHandle_t handle;
    const struct cuda_device_info *info; // borrowed
    void *workspace; // dev [GEMM_WORKSPACE_BYTES]
    cudaEvent_t start, stop;
    struct gemm_cache *cache;
    uint32_t num_timed; // shapes
};

enum { GEMM_WORKSPACE_BYTES = 64 << 20 }; // what split-K of the largest products asks for

// The key of a row count in the cache of ways, so that few are timed: up to 8, then multiples of 16,
// then powers of two. Trials use the largest row count of a key.
uint32_t gemm_bucket(uint32_t rows);

// Enqueues the task that way; false: cuBLASLt or the device refuses it, or the kernel does not take
// it, and nothing runs.
bool gemm_run_way(const struct cuda_gemm *gemm, const struct cuda_linear_task *task,
                  const struct gemm_way *way, cudaStream_t stream);

// The fastest way for tasks of the bucket, timed, or while a graph is captured the heuristic's
// first; is_timed says which. false: none runs it.
bool gemm_choose(const struct cuda_gemm *gemm, const struct cuda_linear_task *task,
                 cudaStream_t stream, struct gemm_way *way, bool *is_timed);

#endif
