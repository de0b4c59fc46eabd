/* Which architecture's code the device runs: of what a build has, the driver takes the nearest, and
 * where that is PTX of an earlier architecture, kernels do without what came later. What a launch
 * assumes of its kernel (launch.cuh, layers/all_layers.cu) is to follow the code, not the device. */
#include "backend/cuda/kernels.h"

namespace {

__global__ void probe_kernel() {
}

} // namespace

extern "C" bool cuda_code_has_sm90a(void) {
    return CUDA_HAS_SM90A; // CMake's, from the list of architectures
}

extern "C" cudaError_t cuda_code_major(int *major) {
    cudaFuncAttributes attributes = {};
    cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
    *major = attributes.ptxVersion / 10;
    return error;
}
