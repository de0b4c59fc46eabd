/* Kernels that never end or that read too early, for the checks of a build with
 * NANOVLLM_CUDA_CHECKS. */
#ifndef OPS_STUCK_H
#define OPS_STUCK_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stuck_kind { STUCK_BARRIER, STUCK_FLAGGED, STUCK_HASTY };

// Runs the kernel until it stops. The process cannot use the device afterwards.
cudaError_t stuck_run(enum stuck_kind kind);

#ifdef __cplusplus
}
#endif

#endif
