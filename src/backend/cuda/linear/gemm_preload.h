/* Loads cuBLASLt's kernels while a model's weights are copied. A kernel is loaded when it is first
 * launched, which takes 2 ms and more; Qwen3-0.6B has some 60 of them. A thread of its own launches
 * each algorithm that the cache has for the model's shapes, on numbers that mean nothing. Its
 * memory is the workspace, which no product uses before the weights are there. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_PRELOAD_H
#define BACKEND_CUDA_LINEAR_GEMM_PRELOAD_H

#include <stdint.h>

struct cuda_gemm;
struct gemm_preload;

// Says that the model has a matrix [out][in]. *preload is NULL at first; the first call makes it
// and starts the thread. If that fails nothing is loaded ahead.
void gemm_preload_shape(struct gemm_preload **preload, struct cuda_gemm *gemm, uint32_t out,
                        uint32_t in);
// Waits until the kernels of all shapes are loaded, and frees *preload, which becomes NULL.
void gemm_preload_finish(struct gemm_preload **preload);
// The same, but leaves out what is not loaded yet.
void gemm_preload_stop(struct gemm_preload **preload);

#endif
