/* Linear layers of more rows than linear/few_rows.cu takes, with the work that follows them in a
 * layer (struct cuda_linear_task in kernels.h). Either cuBLASLt runs with a kernel after it, or one
 * kernel of ours does both.
 *
 * For a shape, cuBLASLt's heuristic proposes algorithms. When a shape first occurs, the best few
 * are timed on the device against our kernels (gemm/gemm_trial.c). The winner is kept in memory,
 * and in a file for the next start. Row counts are grouped into buckets, so that few shapes need
 * timing. A choice is never changed during a run, so results do not depend on timing noise within
 * the run.
 *
 * libcublasLt is opened at run time. Without it the program still starts, and reports the missing
 * library when a GPU is asked for. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_H
#define BACKEND_CUDA_LINEAR_GEMM_H

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/linear/e4m3.h"

struct cuda_gemm;

struct cuda_gemm_options {
    const char *cache_path; // file with earlier choices; NULL: memory only
    const char *device_name; // part of the file's first line
    const struct cuda_device_info *info; // borrowed for the object's lifetime
};

MUST_USE enum status cuda_gemm_create(struct cuda_gemm **out,
                                      const struct cuda_gemm_options *options, struct err *err);
// NULL is fine; writes the file if there are new choices
void cuda_gemm_destroy(struct cuda_gemm *gemm);

// Writes new choices to the file, and reads those that another process has written.
void cuda_gemm_write_timings(struct cuda_gemm *gemm);
void cuda_gemm_read_timings(struct cuda_gemm *gemm);

// Number of shapes timed so far.
uint32_t cuda_gemm_num_timed(const struct cuda_gemm *gemm);
// Says that the model that is being loaded has a matrix [out][in]. What cuBLASLt will need for it
// is loaded by a thread (gemm/gemm_preload.h).
void cuda_gemm_expect(struct cuda_gemm *gemm, uint32_t out, uint32_t in);
// Returns when that is loaded.
void cuda_gemm_wait_loaded(struct cuda_gemm *gemm);
// Most bytes of device memory that it will take from now on.
size_t cuda_gemm_later_bytes(const struct cuda_gemm *gemm);
// Enqueues the task. Nothing is timed while a graph is being captured: unknown shapes then get the
// heuristic's first choice. False: cuBLASLt refused. `leaves_loading`: as in struct backend.
bool cuda_gemm_run(struct cuda_gemm *gemm, const struct cuda_linear_task *task, bool leaves_loading,
                   cudaStream_t stream);
// Products of e4m3 weights by rounded rows of x, to bf16 [task->rows][out]; added to `out` if
// task->is_added. Rows are a multiple of CUDA_E4M3_UNIT, and x->scales_stride is so many or 0.
// task->linear has `plain`. False: cuBLASLt refused.
bool cuda_gemm_run_e4m3(struct cuda_gemm *gemm, const struct cuda_linear_task *task,
                        const struct cuda_rounded_rows *x, void *out, cudaStream_t stream);

#endif
