/* Runs linears of rounded inputs (linear/e4m3.h): as many rows at a time as fit in the scratch
 * memory. */
#ifndef BACKEND_CUDA_LINEAR_E4M3_RUN_H
#define BACKEND_CUDA_LINEAR_E4M3_RUN_H

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/e4m3.h"

// `few` has x and its norm, `task` the same linear and its result. If cuda->step.leaves_gating, a
// gated result stays gate and up in task->scratch, and is remembered in cuda->step.gate_up for the
// next call, whose x it is. `is_batch`: linear/e4m3_batch_sm90.cu multiplies, not cuBLASLt.
void cuda_e4m3_run(struct cuda_backend *cuda, const struct cuda_few_rows_linear *few,
                   const struct cuda_linear_task *task, bool is_batch);
// Notes a new linear, if its codes are of use as plain rows.
void cuda_e4m3_wait(struct cuda_backend *cuda, struct linear *linear);
// Forgets a linear that is to be freed.
void cuda_e4m3_forget(struct cuda_backend *cuda, const struct linear *linear);
// Behind the last of a model's weights: keeps the codes of all noted linears as plain rows too, if
// that takes at most an eighth of `spare_bytes` (weights_finish of backend.h).
void cuda_e4m3_keep_plain(struct cuda_backend *cuda, size_t spare_bytes);

#endif
