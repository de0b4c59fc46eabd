#include "backend/select.h"

#include "backend/cuda/cuda_backend.h"

enum { CAPABILITY_MAJOR_MIN = 8 }; // bf16 matrix products, cp.async

// The runtime gives one error for "no driver" and "a driver older than the runtime"; the driver's
// version, 0 without one, tells them apart.
static enum status driver_fault(struct err *err) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) || !driver) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda: there is no NVIDIA driver (libcuda.so.1)");
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "device cuda: the driver is for CUDA %d.%d and older, want one for CUDA %d",
                   driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
}

enum status select_cuda_available(struct err *err) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError(); // which would be the next call's, otherwise
    if (error == cudaErrorInsufficientDriver) return driver_fault(err);
    if (error == cudaErrorNoDevice || (!error && !count)) {
        return err_set(err, ERR_UNSUPPORTED, "device cuda: the driver has no device");
    }
    if (error) {
        return err_set(err, ERR_UNSUPPORTED, "device cuda: %s", cudaGetErrorString(error));
    }
    // Asked without starting the device, which takes a while and memory.
    int major = 0;
    if (!cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) &&
        major < CAPABILITY_MAJOR_MIN) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda: the GPU has compute capability %d.x, want %d.0 or later",
                       major, CAPABILITY_MAJOR_MIN);
    }
    return OK;
}

enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    *out = NULL;
    enum status status = select_cuda_available(err);
    return status ? status : cuda_backend_create(out, options, err);
}
