/* Launches a kernel whose blocks may start before the previous kernel has ended (programmatic
 * dependent launch, sm_90 and later). Earlier devices run one kernel after the other. Rules 1 to 6
 * of handover.cuh say what such a kernel may do before and after its wait. Asks for the attributes
 * that a kernel needs, and keeps what CUDA refuses. */
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/handover.cuh"
#include "backend/cuda/kernels.h"

namespace {

// Keeps the first call that CUDA refuses, for synchronize to report it. launch_by launches nothing
// after that: without its tensor map a kernel would wait for ever. Kernels launched by <<<>>> need
// neither a map nor an attribute, so they go on, and cudaGetLastError reports theirs.
inline void keep_refusal(const cuda_device_info *info, const char *call, cudaError_t error) {
    if (error != cudaSuccess && !info->refusal->call) *info->refusal = {call, error};
}

// Attributes of a kernel belong to the process, not to the launch, and two engines may launch at
// the same time. So `bytes`, the most that any launch of the kernel takes, must be the same number
// at every launch.
template <typename... PARAMS>
void allow_shared_bytes(void (*kernel)(PARAMS...), int bytes, const cuda_device_info *info) {
    keep_refusal(info, "shared memory for a kernel",
                 cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// Gives the kernel the split of L1 and shared memory with the most of the latter. A kernel with
// another split than the one before it waits until a multiprocessor is idle.
template <typename... PARAMS>
void prefer_shared_memory(void (*kernel)(PARAMS...), const cuda_device_info *info) {
    keep_refusal(info, "the split of L1 and shared memory",
                 cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                      cudaSharedmemCarveoutMaxShared));
}

inline cudaLaunchAttribute dependent_attribute() {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return attribute;
}
inline cudaLaunchAttribute cluster_attribute(int size) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    return attribute;
}

// The config keeps the pointer to `attributes`.
inline cudaLaunchConfig_t launch_config(dim3 grid, unsigned threads, size_t shared_bytes,
                                        cudaStream_t stream, cudaLaunchAttribute *attributes,
                                        unsigned num_attributes) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = num_attributes;
    return config;
}

// Launches, unless something was refused before.
template <typename... PARAMS, typename... ARGS>
void launch_by(const cudaLaunchConfig_t &config, void (*kernel)(PARAMS...),
               const cuda_device_info *info, const ARGS &...args) {
    if (info->refusal->call) return;
    keep_refusal(info, "a kernel could not be started",
                 cudaLaunchKernelEx(&config, kernel, PARAMS(args)...));
}

template <typename... PARAMS, typename... ARGS>
void launch_dependent(void (*kernel)(PARAMS...), dim3 grid, unsigned threads, size_t shared_bytes,
                      const cuda_device_info *info, cudaStream_t stream, const ARGS &...args) {
    cudaLaunchAttribute attribute = dependent_attribute();
    cudaLaunchConfig_t config =
        launch_config(grid, threads, shared_bytes, stream, &attribute, info->major >= 9 ? 1 : 0);
    launch_by(config, kernel, info, args...);
}

// Of clusters of `size` blocks. The config keeps the pointer to `attributes`.
inline cudaLaunchConfig_t cluster_config(int clusters, int size, unsigned threads,
                                         size_t shared_bytes, cudaStream_t stream,
                                         cudaLaunchAttribute (&attributes)[2]) {
    attributes[0] = dependent_attribute();
    attributes[1] = cluster_attribute(size);
    return launch_config(dim3(static_cast<unsigned>(clusters * size)), threads, shared_bytes,
                         stream, attributes, 2);
}

// Needs sm_90 or later.
template <typename... PARAMS, typename... ARGS>
void launch_clusters(void (*kernel)(PARAMS...), int clusters, int size, unsigned threads,
                     size_t shared_bytes, const cuda_device_info *info, cudaStream_t stream,
                     const ARGS &...args) {
    cudaLaunchAttribute attributes[2];
    launch_by(cluster_config(clusters, size, threads, shared_bytes, stream, attributes), kernel,
              info, args...);
}

// The same where another kernel can do the work: returns false if the device refuses, for example
// because such a cluster does not fit, and clears the error. Asks for the shared memory too, so
// shared_bytes must be the same at every launch of the kernel.
template <typename... PARAMS, typename... ARGS>
bool try_launch_clusters(void (*kernel)(PARAMS...), int clusters, int size, unsigned threads,
                         int shared_bytes, const cuda_device_info *info, cudaStream_t stream,
                         const ARGS &...args) {
    if (info->refusal->call) return true; // that is reported
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = cluster_config(
        clusters, size, threads, static_cast<size_t>(shared_bytes), stream, attributes);
    cudaError_t error = cudaSuccess;
    if (shared_bytes) {
        error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    }
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, PARAMS(args)...);
    if (error == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
}

} // namespace
