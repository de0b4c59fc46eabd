/* State of the CUDA backend and helpers that its files share. Host code is C and uses the C
 * interfaces of the CUDA runtime and cuBLASLt. Each .cu file has one op behind an `extern "C"`
 * launcher declared in kernels.h.
 *
 * Activations are bfloat16. Everything runs on one stream, except the copies of upload_beside.
 * Ops cannot fail (backend.h): what CUDA refuses of their launches is kept, and synchronize reports
 * it. */
#ifndef BACKEND_CUDA_CUDA_BACKEND_H
#define BACKEND_CUDA_CUDA_BACKEND_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "backend/gpu_choice.h"

struct cuda_gemm; // gemm.h
struct cuda_staging; // staging.h

// The kernels chosen for the step that is being launched.
struct cuda_step {
    int cluster_size; // as in struct cuda_attention_choice; of the last attention_begin
    bool is_compact; // likewise; of the last project_in
    bool leaves_gating; // project_in left SiLU to the linear that reads its result
    const void *gate_up; // its input then; NULL otherwise
    // the step has launched an attention, which waits before it reads (rule 5 of handover.cuh)
    bool has_attended;
};

struct cuda_backend {
    struct backend base; // must be first: a struct backend * is cast to struct cuda_backend *
    struct cuda_device_info info;
    struct cuda_refusal refusal; // of info
    struct gpu_choice gpus; // of all ranks of the host
    uint32_t rank_on_host;
    int device; // this rank's GPU
    cudaStream_t stream;
    cudaStream_t copies; // of upload_beside
    cudaEvent_t copied; // behind the last of them
    struct cuda_gemm *gemm;
    struct cuda_staging *staging; // while weights are copied; else NULL
    uint32_t num_copy_threads; // of staging
    // dev [unpacked_bytes]: scratch for the largest packed linear as bf16, or for rounded rows of x
    void *unpacked;
    size_t unpacked_bytes;
    struct linear *waiting; // list of linears whose codes may be kept as plain rows too
    struct cuda_step step;
    enum status failure; // sticky: after a failed kernel or copy nothing more runs
    char failure_text[256];
};

static inline struct cuda_backend *cuda_backend_of(const struct backend *backend) {
    return (struct cuda_backend *)(uintptr_t)backend;
}

// The same, and makes the backend's device the calling thread's. Ops that may be a thread's first
// call it; later ones of a step need not.
struct cuda_backend *cuda_enter(const struct backend *backend);

// Call only after device_cuda.available has found a usable device. ERR_UNSUPPORTED with the reason
// if cuBLAS cannot be loaded or the options ask for weights in another format than bfloat16.
MUST_USE enum status cuda_backend_create(struct backend **out,
                                         const struct backend_options *options, struct err *err);

// Copies a slice to dense device rows as bf16, complete after weights_finish. The host data may be
// released on return.
MUST_USE enum status cuda_copy_weights(struct cuda_backend *cuda, void *dev,
                                       const struct matrix_slice *slice, struct err *err);

// Copies the codes of a slice to device rows, a byte each, and their scales and offsets to host
// arrays. Complete on return.
struct cuda_code_rows;
MUST_USE enum status cuda_copy_codes(struct cuda_backend *cuda, void *dev,
                                     const struct matrix_slice *slice,
                                     const struct cuda_code_rows *rows, struct err *err);

// Writes "CUDA: <call>: <reason>" and returns ERR_NOMEM for an allocation, else ERR_DEVICE.
enum status cuda_error(struct err *err, cudaError_t error, const char *call);

// Needs variables `status` and `err` and a label `fail` in the function.
#define CU(call)                                                                                   \
    do {                                                                                           \
        cudaError_t cuda_result_ = (call);                                                         \
        if (cuda_result_ != cudaSuccess) {                                                         \
            status = cuda_error(err, cuda_result_, #call);                                         \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

#endif
