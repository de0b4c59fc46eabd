// Kernels that break the rules of handover.cuh, for test_cuda_stuck.c. Without checks the first two
// would never end, so this file is only built with them.
#include "backend/cuda/stuck.h"

#include <nv/target>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/layers/flagged.cuh"

#pragma nv_diag_suppress 177 // before sm_90 the first kernel is empty

namespace {

enum { THREADS = 64 };

// The second warp waits for an arrival that never comes.
__global__ void barrier_kernel() {
    __shared__ uint64_t barrier;
    NV_IF_TARGET(NV_PROVIDES_SM_90, (if (threadIdx.x == 0) {
                     barrier_init(shared_address(&barrier), 1);
                     barrier_init_done();
                 } __syncthreads();
                                     if (threadIdx.x >= 32) barrier_wait(
                                         shared_address(&barrier), 0, "what nobody brings,", 7);))
}

// One thread waits for a flagged value that nobody stores.
__global__ void flagged_kernel(const uint4 *values) {
    flagged v[1];
    if (threadIdx.x == 0) flagged_wait(v, values, 0, 1, 5, 42, 1);
}

// Writes without waiting for the earlier kernels.
__global__ void hasty_kernel(int *out) {
    *of_step(out) = 1;
}

} // namespace

extern "C" cudaError_t stuck_run(enum stuck_kind kind) {
    void *memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, 64);
    if (!error) error = cudaMemset(memory, 0, 64);
    if (error) return error;
    switch (kind) {
    case STUCK_BARRIER:
        barrier_kernel<<<1, THREADS>>>();
        break;
    case STUCK_FLAGGED:
        flagged_kernel<<<1, THREADS>>>(static_cast<const uint4 *>(memory));
        break;
    case STUCK_HASTY:
        hasty_kernel<<<1, THREADS>>>(static_cast<int *>(memory));
        break;
    }
    error = cudaGetLastError();
    return error ? error : cudaDeviceSynchronize();
}
