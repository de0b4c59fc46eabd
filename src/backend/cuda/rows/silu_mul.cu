/* The SwiGLU product: out = gate / (1 + exp(-gate)) * up (Shazeer 2020); for GELU exp of another
 * value (backend.h).
 *
 * Bytes: 3 x rows x cols x 2. Launch: 8 elements per thread, rows along y. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

template <bool GELU> __device__ __forceinline__ float activation(float v) {
    if constexpr (!GELU) return silu(v);
    float slope = 1.59576912f * (1 + 0.044715f * v * v); // 2 sqrt(2 / pi)
    return __fdividef(v, 1 + __expf(fminf(-v * slope, 88)));
}

template <bool GELU> __device__ __forceinline__ uint32_t silu_mul_pair(uint32_t gate, uint32_t up) {
    return pack_bf16(activation<GELU>(bf16_low(gate)) * bf16_low(up),
                     activation<GELU>(bf16_high(gate)) * bf16_high(up));
}

template <bool GELU>
__global__ void silu_mul_kernel(const uint4 *gate_up, uint4 *out, int rows, int vectors) {
    let_next_start();
    wait_for_earlier();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        uint4 gate = of_step(gate_up)[(size_t)row * 2 * vectors + i];
        uint4 up = of_step(gate_up)[((size_t)row * 2 + 1) * vectors + i];
        of_step(out)[(size_t)row * vectors + i] =
            make_uint4(silu_mul_pair<GELU>(gate.x, up.x), silu_mul_pair<GELU>(gate.y, up.y),
                       silu_mul_pair<GELU>(gate.z, up.z), silu_mul_pair<GELU>(gate.w, up.w));
    }
}

} // namespace

extern "C" void cuda_silu_mul_launch(const struct silu_mul_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    int vectors = static_cast<int>(args->cols / 8);
    dim3 grid(static_cast<unsigned>((vectors + 127) / 128),
              args->rows < 65535 ? args->rows : 65535);
    auto kernel = args->is_gelu ? silu_mul_kernel<true> : silu_mul_kernel<false>;
    launch_dependent(kernel, grid, 128, 0, info, stream, static_cast<const uint4 *>(args->gate_up),
                     static_cast<uint4 *>(args->out), static_cast<int>(args->rows), vectors);
}
