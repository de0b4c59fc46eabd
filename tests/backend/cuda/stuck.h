/* Kernels that are stuck or hasty, as a build with NANOVLLM_CUDA_CHECKS finds them. */
#ifndef OPS_STUCK_H
#define OPS_STUCK_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stuck_kind { STUCK_BARRIER, STUCK_FLAGGED, STUCK_HASTY };

// Runs the kernel to its end; the process's device is lost then.
cudaError_t stuck_run(enum stuck_kind kind);

#ifdef __cplusplus
}
#endif

#endif
