/* Finds which architecture's code the device runs. The driver picks the nearest that the build
 * contains. If that is PTX of an earlier architecture, the kernels lack the later features. So
 * assumptions about a kernel at its launch (launch.cuh, layers/all_layers.cu) must follow the code,
 * not the device. */
#include "backend/cuda/kernels.h"

namespace {

__global__ void probe_kernel() {
}

} // namespace

extern "C" bool cuda_code_has_sm90a(void) {
    return CUDA_HAS_SM90A; // set by CMake from the list of architectures
}

extern "C" cudaError_t cuda_code_major(int *major) {
    cudaFuncAttributes attributes = {};
    cudaError_t error = cudaFuncGetAttributes(&attributes, probe_kernel);
    *major = attributes.ptxVersion / 10;
    return error;
}
