/* Copies between pinned host memory and the device by a kernel that accesses the host's memory over
 * the bus. It serves a step's input and sampled tokens, a few kilobytes each. At that size a copy
 * engine takes longer to start and to signal its end than the copy itself.
 *
 * Launch: up to 32 blocks of 256 threads; each thread copies 16 bytes per iteration. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr int THREADS = 256, BLOCKS_MAX = 32;

__global__ void __launch_bounds__(THREADS)
    copy_kernel(uint4 *to, const uint4 *from, size_t vectors, size_t rest) {
    size_t first = blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS;
    for (size_t i = first; i < vectors; i += step) to[i] = __ldcv(from + i);
    if (first < rest) {
        reinterpret_cast<uint32_t *>(to + vectors)[first] =
            __ldcv(reinterpret_cast<const uint32_t *>(from + vectors) + first);
    }
}

} // namespace

extern "C" void cuda_copy_launch(void *to, const void *from, size_t bytes, cudaStream_t stream) {
    size_t vectors = bytes / sizeof(uint4), rest = bytes % sizeof(uint4) / sizeof(uint32_t);
    size_t blocks = (vectors + THREADS - 1) / THREADS;
    if (blocks > BLOCKS_MAX) blocks = BLOCKS_MAX;
    copy_kernel<<<blocks ? static_cast<unsigned>(blocks) : 1, THREADS, 0, stream>>>(
        static_cast<uint4 *>(to), static_cast<const uint4 *>(from), vectors, rest);
}
