/* x = activation(x), in place, of MLPs without a gate: activate_args of row_args.h.
 *
 * Bytes: 2 x count x 2. Launch: as many blocks of 256 threads as the count needs, 8 elements per
 * thread. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 256;

struct activate_params {
    uint4 *x; // [vectors]
    size_t vectors; // of 8 elements
    float positive, negative;
};

template <activation ACTIVATION>
__device__ __forceinline__ float activated_alone(float v, const activate_params &p) {
    if (ACTIVATION == ACTIVATION_GELU_TANH) return gelu_mul(v, 1);
    if (ACTIVATION == ACTIVATION_RELU_SQUARED) return relu_squared(v);
    float slope = v > 0 ? p.positive * v * v : p.negative * (expm1f(fminf(v, XIELU_EPS)) - v);
    return v / 2 + slope;
}

template <activation ACTIVATION>
__device__ __forceinline__ uint32_t activated_pair(uint32_t pair, const activate_params &p) {
    return pack_bf16(activated_alone<ACTIVATION>(bf16_low(pair), p),
                     activated_alone<ACTIVATION>(bf16_high(pair), p));
}

template <activation ACTIVATION> __global__ void activate_kernel(activate_params p) {
    let_next_start();
    wait_for_earlier();
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.vectors) return;
    uint4 v = of_step(p.x)[i];
    of_step(p.x)[i] =
        make_uint4(activated_pair<ACTIVATION>(v.x, p), activated_pair<ACTIVATION>(v.y, p),
                   activated_pair<ACTIVATION>(v.z, p), activated_pair<ACTIVATION>(v.w, p));
}

} // namespace

extern "C" void cuda_activate_launch(const struct activate_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    activate_params p = {};
    p.x = static_cast<uint4 *>(args->x);
    p.vectors = args->count / 8;
    p.positive = args->positive;
    p.negative = args->negative;
    auto kernel = activate_kernel<ACTIVATION_GELU_TANH>;
    if (args->activation == ACTIVATION_RELU_SQUARED) {
        kernel = activate_kernel<ACTIVATION_RELU_SQUARED>;
    } else if (args->activation == ACTIVATION_XIELU) {
        kernel = activate_kernel<ACTIVATION_XIELU>;
    }
    launch_dependent(kernel, dim3(static_cast<unsigned>((p.vectors + THREADS - 1) / THREADS)),
                     THREADS, 0, info, stream, p);
}
