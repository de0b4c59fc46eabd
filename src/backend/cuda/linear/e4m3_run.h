/* Runs linears of rounded inputs (linear/e4m3.h): as many rows at a time as fit in the scratch
 * memory. */
#ifndef BACKEND_CUDA_LINEAR_E4M3_RUN_H
#define BACKEND_CUDA_LINEAR_E4M3_RUN_H

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/e4m3.h"

// `few` has x and its norm, `task` the same linear and its result.
void cuda_e4m3_run(struct cuda_backend *cuda, const struct cuda_few_rows_linear *few,
                   const struct cuda_linear_task *task);
// Keeps the linear's codes as plain rows too, if memory allows.
void cuda_e4m3_add_plain(struct cuda_backend *cuda, struct linear *linear);

#endif
