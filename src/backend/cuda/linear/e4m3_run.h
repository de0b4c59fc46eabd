/* Runs linears of rounded inputs (linear/e4m3.h): rows that fit in the scratch memory at a time, by
 * linear/e4m3_sm90.cu or, of many rows, by cuBLASLt. */
#ifndef BACKEND_CUDA_LINEAR_E4M3_RUN_H
#define BACKEND_CUDA_LINEAR_E4M3_RUN_H

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/e4m3.h"

// `few` has x and its norm, `task` the same linear and its result.
void cuda_e4m3_run(struct cuda_backend *cuda, const struct cuda_few_rows_linear *few,
                   const struct cuda_linear_task *task);
// How linear/e4m3_sm90.cu divides the work.
struct cuda_e4m3_blocks cuda_e4m3_blocks_for(const struct cuda_linear_task *task, uint32_t num_sms);

#endif
