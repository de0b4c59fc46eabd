/* The CUDA backend's own state and what its files share. Host code is C against the CUDA runtime's
 * and cuBLASLt's C interfaces; kernels are one op a .cu file behind `extern "C"` launchers, which
 * are declared in kernels.h.
 *
 * Activations are bfloat16, one stream, every launch unchecked but for the sticky error: ops cannot
 * fail by themselves (backend.h), a fault surfaces at synchronize. */
#ifndef BACKEND_CUDA_CUDA_BACKEND_H
#define BACKEND_CUDA_CUDA_BACKEND_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"

struct cuda_gemm; // gemm.h
struct cuda_staging; // staging.h

// The kernels of the step that is being launched; cuda_step_begin chooses them once.
struct cuda_step {
    bool runs_layers; // layers/all_layers.cu runs all layers
    int few_size; // as in struct cuda_attention_choice
    bool is_dense; // likewise
    bool has_attended; // an attention has been launched, which waits (rule 5 of handover.cuh)
};

struct cuda_backend {
    struct backend base; // first: a struct backend * is a struct cuda_backend *
    struct cuda_device_info info;
    cudaStream_t stream;
    struct cuda_gemm *gemm;
    struct cuda_staging *staging;
    struct cuda_step step;
    enum status failure; // sticky: a kernel or copy failed, nothing more runs
    char failure_text[256];
};

static inline struct cuda_backend *cuda_backend_of(const struct backend *backend) {
    return (struct cuda_backend *)(uintptr_t)backend;
}

// After select_cuda_available has found a device that can run it. ERR_UNSUPPORTED, with the reason,
// where cuBLAS is not to be had or the weights are to be kept otherwise.
MUST_USE enum status cuda_backend_create(struct backend **out,
                                         const struct backend_options *options, struct err *err);

// Writes "CUDA: <call>: <reason>" and returns ERR_NOMEM for an allocation, else ERR_DEVICE.
enum status cuda_error(struct err *err, cudaError_t error, const char *call);

// In functions with `status`, `err` and a label `fail`.
#define CU(call)                                                                                   \
    do {                                                                                           \
        cudaError_t cuda_result_ = (call);                                                         \
        if (cuda_result_ != cudaSuccess) {                                                         \
            status = cuda_error(err, cuda_result_, #call);                                         \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

#endif
