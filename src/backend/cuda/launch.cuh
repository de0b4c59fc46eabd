/* Launches a kernel whose blocks may start before the previous kernel has ended (programmatic
 * dependent launch, sm_90 and later). Earlier devices run one kernel after the other. Rules 1 to 6
 * of handover.cuh say what such a kernel may do before and after its wait. */
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/handover.cuh"
#include "backend/cuda/kernels.h"

namespace {

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

template <typename... PARAMS, typename... ARGS>
void launch_dependent(void (*kernel)(PARAMS...), dim3 grid, unsigned threads, size_t shared_bytes,
                      const cuda_device_info *info, cudaStream_t stream, const ARGS &...args) {
    cudaLaunchAttribute attribute = dependent_attribute();
    cudaLaunchConfig_t config =
        launch_config(grid, threads, shared_bytes, stream, &attribute, info->major >= 9 ? 1 : 0);
    cudaLaunchKernelEx(&config, kernel, PARAMS(args)...);
}

// Launches clusters of `size` blocks. Needs sm_90 or later.
template <typename... PARAMS, typename... ARGS>
cudaError_t launch_clusters(void (*kernel)(PARAMS...), int clusters, int size, unsigned threads,
                            size_t shared_bytes, cudaStream_t stream, const ARGS &...args) {
    cudaLaunchAttribute attributes[] = {dependent_attribute(), cluster_attribute(size)};
    cudaLaunchConfig_t config = launch_config(dim3(static_cast<unsigned>(clusters * size)), threads,
                                              shared_bytes, stream, attributes, 2);
    return cudaLaunchKernelEx(&config, kernel, PARAMS(args)...);
}

// Returns false if the device refuses the launch, for example because such a cluster does not fit.
// Clears the error then.
template <typename... ARGS> bool try_launch_clusters(const ARGS &...args) {
    if (launch_clusters(args...) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
}

} // namespace
