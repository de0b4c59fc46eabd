/* Matrix products y = x W^T + b through cuBLASLt, for more rows than the small kernel takes.
 *
 * The library's heuristic proposes algorithms for a shape; the first time that a shape is met the
 * best few are timed on the device and the winner is kept, in memory and in a file for the next
 * start. Rows are put into buckets, so that a shape is met soon. An algorithm that was chosen stays,
 * so a run's results do not depend on timing noise within the run.
 *
 * libcublasLt is opened at run time: a program without it still starts, and says so when a GPU is
 * asked for. */
#ifndef BACKEND_CUDA_GEMM_H
#define BACKEND_CUDA_GEMM_H

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"

struct cuda_gemm;

struct cuda_gemm_options {
    const char *cache_path; // file of chosen algorithms, NULL: none is read or written
    const char *device_name; // part of the file's key
};

MUST_USE enum status cuda_gemm_create(struct cuda_gemm **out,
                                      const struct cuda_gemm_options *options, struct err *err);
void cuda_gemm_destroy(struct cuda_gemm *gemm); // NULL is fine; writes the file where it grew

// Enqueues out [rows][linear->out] = x [rows][linear->in] W^T + b; out is bf16 or float. While a
// graph is being captured nothing is timed: the heuristic's first choice serves unknown shapes.
// false: cuBLASLt refused.
bool cuda_gemm_run(struct cuda_gemm *gemm, const struct cuda_linear_view *linear, const void *x,
                   void *out, uint32_t rows, bool out_is_float, cudaStream_t stream);

#endif
