/* y = x W^T + b for 1 to 8 rows: decode of few sequences. One pass over the weights, which is all
 * the time there is to spend: bytes = out x in x 2.
 *
 * Launch: a warp per output, 8 weights a lane and turn, the rows of x in shared memory; a block's warps take
 * consecutive outputs. Sums are float32, over the same lanes in the same order for any number of
 * rows, so a row's result does not depend on the others. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr int WARPS = 8;

struct small_params {
    const uint4 *weight; // [out][in / 8]
    const __nv_bfloat16 *bias;
    const uint4 *x; // [rows][in / 8]
    void *out;
    int num_outputs, vectors;
};

__device__ __forceinline__ float dot8(uint4 a, uint4 b, float sum) {
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(bf16_low(x[i]), bf16_low(y[i]), sum);
        sum = fmaf(bf16_high(x[i]), bf16_high(y[i]), sum);
    }
    return sum;
}

template <int ROWS, typename OUT>
__global__ void __launch_bounds__(WARPS * 32) small_kernel(small_params p) {
    constexpr int AHEAD = 4; // 64 bytes a lane in flight
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int output = blockIdx.x * WARPS + warp;
    if (output >= p.num_outputs) return;
    const uint4 *weight = p.weight + (size_t)output * p.vectors;
    float sums[ROWS] = {};
    int i = lane;
    for (; i + (AHEAD - 1) * 32 < p.vectors; i += AHEAD * 32) {
        uint4 w[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) w[u] = __ldcs(&weight[i + u * 32]);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                sums[r] = dot8(w[u], __ldg(&p.x[r * p.vectors + i + u * 32]), sums[r]);
            }
        }
    }
    for (; i < p.vectors; i += 32) {
        uint4 w = __ldcs(&weight[i]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r] = dot8(w, __ldg(&p.x[r * p.vectors + i]), sums[r]);
    }
    float bias = p.bias ? __bfloat162float(p.bias[output]) : 0.0f;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float sum = warp_sum(sums[r]) + bias;
        if (lane == 0) static_cast<OUT *>(p.out)[(size_t)r * p.num_outputs + output] = OUT(sum);
    }
}

template <int ROWS> void launch(const small_params &p, bool out_is_float, cudaStream_t stream) {
    int blocks = (p.num_outputs + WARPS - 1) / WARPS;
    if (out_is_float) {
        small_kernel<ROWS, float><<<blocks, WARPS * 32, 0, stream>>>(p);
    } else {
        small_kernel<ROWS, __nv_bfloat16><<<blocks, WARPS * 32, 0, stream>>>(p);
    }
}

} // namespace

extern "C" void cuda_linear_small_launch(const struct cuda_linear_view *linear, const void *x,
                                         void *out, uint32_t rows, bool out_is_float,
                                         cudaStream_t stream) {
    small_params p = {};
    p.weight = static_cast<const uint4 *>(linear->weight);
    p.bias = static_cast<const __nv_bfloat16 *>(linear->bias);
    p.x = static_cast<const uint4 *>(x);
    p.out = out;
    p.num_outputs = static_cast<int>(linear->out);
    p.vectors = static_cast<int>(linear->in / 8);
    switch (rows) {
    case 1:
        return launch<1>(p, out_is_float, stream);
    case 2:
        return launch<2>(p, out_is_float, stream);
    case 3:
        return launch<3>(p, out_is_float, stream);
    default:
        return launch<4>(p, out_is_float, stream);
    }
}
