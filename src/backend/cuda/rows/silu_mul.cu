/* The SwiGLU product: out = gate / (1 + exp(-gate)) * up (Shazeer 2020), or another activation
 * (activation.cuh). Gate and up are the halves of a row, or apart (gelu_mul).
 *
 * Bytes: 3 x rows x cols x 2. Launch: 8 elements per thread, rows along y. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

struct silu_mul_params {
    const uint4 *gate, *up; // [rows][..]
    uint4 *out; // [rows][vectors]
    int rows, vectors; // of 8 elements
    int gate_stride, up_stride; // vectors from row to row
};

template <activation ACTIVATION>
__device__ __forceinline__ uint32_t activated_pair(uint32_t gate, uint32_t up) {
    return pack_bf16(activated(ACTIVATION, bf16_low(gate), bf16_low(up)),
                     activated(ACTIVATION, bf16_high(gate), bf16_high(up)));
}

template <activation ACTIVATION> __global__ void silu_mul_kernel(silu_mul_params p) {
    let_next_start();
    wait_for_earlier();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.vectors) return;
    for (int row = blockIdx.y; row < p.rows; row += gridDim.y) {
        uint4 gate = of_step(p.gate)[(size_t)row * p.gate_stride + i];
        uint4 up = of_step(p.up)[(size_t)row * p.up_stride + i];
        of_step(p.out)[(size_t)row * p.vectors + i] = make_uint4(
            activated_pair<ACTIVATION>(gate.x, up.x), activated_pair<ACTIVATION>(gate.y, up.y),
            activated_pair<ACTIVATION>(gate.z, up.z), activated_pair<ACTIVATION>(gate.w, up.w));
    }
}

void launch(const silu_mul_params &p, enum activation activation, const cuda_device_info *info,
            cudaStream_t stream) {
    dim3 grid(static_cast<unsigned>((p.vectors + 127) / 128),
              static_cast<unsigned>(p.rows < 65535 ? p.rows : 65535));
    auto kernel = silu_mul_kernel<ACTIVATION_SILU>;
    if (activation == ACTIVATION_GELU_TANH) kernel = silu_mul_kernel<ACTIVATION_GELU_TANH>;
    if (activation == ACTIVATION_CLAMPED_SILU) kernel = silu_mul_kernel<ACTIVATION_CLAMPED_SILU>;
    launch_dependent(kernel, grid, 128, 0, info, stream, p);
}

} // namespace

extern "C" void cuda_silu_mul_launch(const struct silu_mul_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    silu_mul_params p = {};
    p.vectors = static_cast<int>(args->cols / 8);
    p.gate = static_cast<const uint4 *>(args->gate_up);
    p.up = p.gate + p.vectors;
    p.out = static_cast<uint4 *>(args->out);
    p.rows = static_cast<int>(args->rows);
    p.gate_stride = p.up_stride = 2 * p.vectors;
    launch(p, args->activation, info, stream);
}

extern "C" void cuda_gelu_mul_launch(const struct gelu_mul_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    silu_mul_params p = {};
    p.vectors = static_cast<int>(args->cols / 8);
    p.gate = static_cast<const uint4 *>(args->gate);
    p.up = static_cast<const uint4 *>(args->up);
    p.out = static_cast<uint4 *>(args->out);
    p.rows = static_cast<int>(args->rows);
    p.gate_stride = p.vectors;
    p.up_stride = static_cast<int>(args->up_stride / 8);
    launch(p, ACTIVATION_GELU_TANH, info, stream);
}
