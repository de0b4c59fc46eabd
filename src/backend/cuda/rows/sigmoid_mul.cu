/* x *= sigmoid(gate), 8 elements per thread, with a gate for each element or one for a row.
 *
 * Bytes: (2 or 3) x rows x cols x 2. Launch: blocks of 128 threads along a row, rows along y. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

__device__ __forceinline__ float sigmoid(float v) {
    return __fdividef(1, 1 + __expf(fminf(-v, 88)));
}

__device__ __forceinline__ uint32_t gated_pair(uint32_t x, uint32_t gate) {
    return pack_bf16(bf16_low(x) * sigmoid(bf16_low(gate)),
                     bf16_high(x) * sigmoid(bf16_high(gate)));
}

__global__ void sigmoid_mul_kernel(uint4 *x, const uint32_t *gates, int rows, int vectors,
                                   int gate_stride, bool is_per_row) {
    let_next_start();
    wait_for_earlier();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const uint32_t *gate = of_step(gates) + (size_t)row * gate_stride;
        uint4 v = of_step(x)[(size_t)row * vectors + i], g;
        if (is_per_row) {
            uint32_t both = __byte_perm(gate[0], 0, 0x1010); // the first element twice
            g = make_uint4(both, both, both, both);
        } else {
            g = reinterpret_cast<const uint4 *>(gate)[i];
        }
        of_step(x)[(size_t)row * vectors + i] = make_uint4(
            gated_pair(v.x, g.x), gated_pair(v.y, g.y), gated_pair(v.z, g.z), gated_pair(v.w, g.w));
    }
}

} // namespace

extern "C" void cuda_sigmoid_mul_launch(const struct sigmoid_mul_args *args,
                                        const struct cuda_device_info *info, cudaStream_t stream) {
    int vectors = static_cast<int>(args->cols / 8);
    dim3 grid(static_cast<unsigned>((vectors + 127) / 128),
              args->rows < 65535 ? args->rows : 65535);
    launch_dependent(sigmoid_mul_kernel, grid, 128, 0, info, stream, static_cast<uint4 *>(args->x),
                     static_cast<const uint32_t *>(args->gate), static_cast<int>(args->rows),
                     vectors, static_cast<int>(args->gate_stride / 2), args->is_per_row);
}
