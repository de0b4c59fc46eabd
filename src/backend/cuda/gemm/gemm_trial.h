/* The ways to compute a linear layer of many rows, and the search for the fastest on the device. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_TRIAL_H
#define BACKEND_CUDA_LINEAR_GEMM_TRIAL_H

#include "backend/cuda/gemm/gemm_cache.h"
#include "backend/cuda/gemm/gemm_library.h"
#include "backend/cuda/gemm/gemm_preload.h"
#include "backend/cuda/kernels.h"

struct cuda_gemm {
    struct gemm_library library;
    cublasLtHandle_t handle;
    const struct cuda_device_info *info; // borrowed
    void *workspace; // dev [GEMM_WORKSPACE_BYTES]
    cudaEvent_t start, stop;
    struct gemm_cache *cache;
    struct gemm_preload *preload; // NULL: nothing is loaded ahead
    uint32_t num_timed; // number of shapes timed
};

enum { GEMM_WORKSPACE_BYTES = 64 << 20 }; // enough for split-K of the largest products

// The row count that stands for `rows` in the cache: up to 8, then multiples of 16, then powers of
// two. So few shapes need timing.
uint32_t gemm_bucket(uint32_t rows);

// Enqueues the task that way. False: cuBLASLt, the device or the kernel does not support it, and
// nothing runs.
bool gemm_run_way(const struct cuda_gemm *gemm, const struct cuda_linear_task *task,
                  const struct gemm_way *way, cudaStream_t stream);

// Finds the fastest way for the task's bucket. While a graph is being captured it takes the
// heuristic's first proposal and sets is_timed to false. Returns false if no way runs the task.
bool gemm_choose(const struct cuda_gemm *gemm, const struct cuda_linear_task *task,
                 cudaStream_t stream, struct gemm_way *way, bool *is_timed);

#endif
