/* Gathers rows: out[r] = x[index[r]]. Bytes: 2 x rows x cols x 2. Launch: a block per row, 16 bytes
 * per thread.
 *
 * An ordinary launch, without an early start, on purpose: it is also the end of a step's layers, as
 * layers/layers_end.cu is. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

__global__ void gather_rows_kernel(const uint4 *x, const int32_t *index, uint4 *out, int vectors) {
    size_t from = (size_t)index[blockIdx.x] * vectors, to = (size_t)blockIdx.x * vectors;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) out[to + i] = x[from + i];
}

} // namespace

extern "C" void cuda_gather_rows_launch(const struct gather_rows_args *args, cudaStream_t stream) {
    int vectors = static_cast<int>(args->cols / 8);
    int threads = vectors < 256 ? (vectors + 31) / 32 * 32 : 256;
    gather_rows_kernel<<<args->rows, threads, 0, stream>>>(
        static_cast<const uint4 *>(args->x), args->index, static_cast<uint4 *>(args->out), vectors);
}
