/* RMS norm, with the addition to the residual before it if there is one: residual += x; out =
 * residual / sqrt(mean(residual^2) + eps) * weight (Zhang and Sennrich 2019). The sum is rounded to
 * bf16 before the norm, since it is stored so.
 *
 * Bytes: (2 to 4) x rows x cols x 2. Launch: a block per row, 8 elements per thread and turn. The
 * row stays in registers. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS_MAX = 512, TURNS_MAX = 8; // rows of up to 32,768 columns

__device__ float block_sum(float value) {
    __shared__ float sums[THREADS_MAX / 32];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < blockDim.x / 32; w++) total += sums[w];
    return total;
}

__device__ __forceinline__ uint32_t add_pair(uint32_t a, uint32_t b) {
    return pack_bf16(bf16_low(a) + bf16_low(b), bf16_high(a) + bf16_high(b));
}

template <int TURNS>
__global__ void __launch_bounds__(THREADS_MAX)
    rms_norm_kernel(const uint4 *x, uint4 *residual, const float4 *weight, uint4 *out, int vectors,
                    float eps) {
    let_next_start();
    // Loads the constant weights before the wait. For long rows they would take too many registers.
    constexpr bool IS_AHEAD = TURNS <= 2;
    float4 ahead[IS_AHEAD ? TURNS : 1][2];
#pragma unroll
    for (int t = 0; IS_AHEAD && t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= vectors) break;
        ahead[t][0] = weight[i * 2];
        ahead[t][1] = weight[i * 2 + 1];
    }
    wait_for_earlier();
    uint4 row[TURNS];
    float sum = 0;
    size_t start = (size_t)blockIdx.x * vectors;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= vectors) break;
        uint4 v = of_step(x)[start + i];
        if (residual) {
            uint4 r = of_step(residual)[start + i];
            v = make_uint4(add_pair(v.x, r.x), add_pair(v.y, r.y), add_pair(v.z, r.z),
                           add_pair(v.w, r.w));
            of_step(residual)[start + i] = v;
        }
        row[t] = v;
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            sum += bf16_low(words[j]) * bf16_low(words[j]);
            sum += bf16_high(words[j]) * bf16_high(words[j]);
        }
    }
    float scale = rsqrtf(block_sum(sum) / (vectors * 8) + eps);
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= vectors) break;
        float4 w0 = IS_AHEAD ? ahead[t][0] : weight[i * 2];
        float4 w1 = IS_AHEAD ? ahead[t][1] : weight[i * 2 + 1];
        uint4 v = row[t];
        of_step(out)[start + i] =
            make_uint4(pack_bf16(bf16_low(v.x) * scale * w0.x, bf16_high(v.x) * scale * w0.y),
                       pack_bf16(bf16_low(v.y) * scale * w0.z, bf16_high(v.y) * scale * w0.w),
                       pack_bf16(bf16_low(v.z) * scale * w1.x, bf16_high(v.z) * scale * w1.y),
                       pack_bf16(bf16_low(v.w) * scale * w1.z, bf16_high(v.w) * scale * w1.w));
    }
}

} // namespace

extern "C" void cuda_rms_norm_launch(const struct rms_norm_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    int vectors = static_cast<int>(args->cols / 8);
    unsigned threads = vectors < THREADS_MAX ? (vectors + 31) / 32 * 32 : THREADS_MAX;
    auto x = static_cast<const uint4 *>(args->x);
    auto residual = static_cast<uint4 *>(args->residual);
    auto weight = reinterpret_cast<const float4 *>(args->weight);
    auto out = static_cast<uint4 *>(args->out);
    if (vectors <= static_cast<int>(threads)) {
        launch_dependent(rms_norm_kernel<1>, dim3(args->rows), threads, 0, info, stream, x,
                         residual, weight, out, vectors, args->eps);
    } else if (vectors <= 2 * static_cast<int>(threads)) {
        launch_dependent(rms_norm_kernel<2>, dim3(args->rows), threads, 0, info, stream, x,
                         residual, weight, out, vectors, args->eps);
    } else {
        launch_dependent(rms_norm_kernel<TURNS_MAX>, dim3(args->rows), threads, 0, info, stream, x,
                         residual, weight, out, vectors, args->eps);
    }
}
