/* The SwiGLU product: out = gate / (1 + exp(-gate)) * up (Shazeer 2020), or another activation
 * (backend.h).
 *
 * Bytes: 3 x rows x cols x 2. Launch: 8 elements per thread, rows along y. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

template <int ACTIVATION> __device__ __forceinline__ float activated(float gate, float up) {
    if constexpr (ACTIVATION == ACTIVATION_CLAMPED_SILU) return clamped_silu_mul(gate, up);
    if constexpr (ACTIVATION == ACTIVATION_SILU) return silu(gate) * up;
    float slope = 1.59576912f * (1 + 0.044715f * gate * gate); // 2 sqrt(2 / pi)
    return __fdividef(gate, 1 + __expf(fminf(-gate * slope, 88))) * up;
}

template <int ACTIVATION>
__device__ __forceinline__ uint32_t activated_pair(uint32_t gate, uint32_t up) {
    return pack_bf16(activated<ACTIVATION>(bf16_low(gate), bf16_low(up)),
                     activated<ACTIVATION>(bf16_high(gate), bf16_high(up)));
}

template <int ACTIVATION>
__global__ void silu_mul_kernel(const uint4 *gate_up, uint4 *out, int rows, int vectors) {
    let_next_start();
    wait_for_earlier();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        uint4 gate = of_step(gate_up)[(size_t)row * 2 * vectors + i];
        uint4 up = of_step(gate_up)[((size_t)row * 2 + 1) * vectors + i];
        of_step(out)[(size_t)row * vectors + i] = make_uint4(
            activated_pair<ACTIVATION>(gate.x, up.x), activated_pair<ACTIVATION>(gate.y, up.y),
            activated_pair<ACTIVATION>(gate.z, up.z), activated_pair<ACTIVATION>(gate.w, up.w));
    }
}

} // namespace

extern "C" void cuda_silu_mul_launch(const struct silu_mul_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    int vectors = static_cast<int>(args->cols / 8);
    dim3 grid(static_cast<unsigned>((vectors + 127) / 128),
              args->rows < 65535 ? args->rows : 65535);
    auto kernel = silu_mul_kernel<ACTIVATION_SILU>;
    if (args->activation == ACTIVATION_GELU_TANH) kernel = silu_mul_kernel<ACTIVATION_GELU_TANH>;
    if (args->activation == ACTIVATION_CLAMPED_SILU) {
        kernel = silu_mul_kernel<ACTIVATION_CLAMPED_SILU>;
    }
    launch_dependent(kernel, grid, 128, 0, info, stream, static_cast<const uint4 *>(args->gate_up),
                     static_cast<uint4 *>(args->out), static_cast<int>(args->rows), vectors);
}
