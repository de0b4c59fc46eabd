/* Linears of more rows than the small kernels take, with what follows a linear in a layer
 * (kernels.h, struct cuda_linear_task): by cuBLASLt and a kernel after it, or by a kernel of our
 * own that does both at once.
 *
 * The library's heuristic proposes algorithms for a shape; the first time that a shape is met the
 * best few are timed on the device beside our kernels (linear/gemm_trial.c), and the winner is kept, in
 * memory and in a file for the next start. Rows are put into buckets, so that a shape is met soon.
 * A way that was chosen stays, so a run's results do not depend on timing noise within the run.
 *
 * libcublasLt is opened at run time: a program without it still starts, and says so when a GPU is
 * asked for. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_H
#define BACKEND_CUDA_LINEAR_GEMM_H

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"

struct cuda_gemm;

struct cuda_gemm_options {
    const char *cache_path; // file of chosen ways, NULL: none is read or written
    const char *device_name; // part of the file's key
    const struct cuda_device_info *info; // borrowed for the object's life
};

MUST_USE enum status cuda_gemm_create(struct cuda_gemm **out,
                                      const struct cuda_gemm_options *options, struct err *err);
void cuda_gemm_destroy(struct cuda_gemm *gemm); // NULL is fine; writes the file where it grew

// Shapes that were timed so far.
uint32_t cuda_gemm_num_timed(const struct cuda_gemm *gemm);
// Enqueues the task. While a graph is being captured nothing is timed: the heuristic's first choice
// serves unknown shapes. false: cuBLASLt refused.
bool cuda_gemm_run(struct cuda_gemm *gemm, const struct cuda_linear_task *task,
                   cudaStream_t stream);

#endif
