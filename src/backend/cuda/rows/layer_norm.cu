/* LayerNorm, with the addition to the residual before it if there is one: residual += x; out =
 * (residual - mean) / sqrt(variance + eps) * weight + bias (Ba, Kiros and Hinton 2016). The sum is
 * rounded to bf16 before the norm, since it is stored so. The variance is that of the row without
 * its mean, which the row's registers allow in a second pass.
 *
 * With groups, of heads, a row is many short vectors. A warp then has one of them, and reads it
 * from the L1 again for each of the three passes.
 *
 * Bytes: (2 to 4) x rows x cols x 2. Launch: a block per row, 8 elements per thread and turn; with
 * groups a warp per vector. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows/row_norm.cuh"

namespace {

struct layer_norm_params {
    const uint4 *x; // [rows][vectors]
    uint4 *residual; // [rows][vectors] or NULL
    const float4 *weight, *bias; // [vectors * 2]; bias may be NULL
    uint4 *out; // [rows][vectors]
    int vectors;
    float eps;
};

constexpr int GROUP_THREADS = 128; // of a block with groups

// As in layer_norm_args, in vectors of 8 elements.
struct grouped_layer_norm_params {
    const uint4 *x; // [rows][stride]
    const float4 *weight; // [groups][vectors * 2]
    uint4 *out; // as x, and may be x
    int rows, groups, vectors, stride;
    float eps;
};

// The sum of 8 elements, or of their squares, without `center`.
template <bool SQUARES> __device__ __forceinline__ float centered_sum(uint4 v, float center) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float a = bf16_low(words[j]) - center, b = bf16_high(words[j]) - center;
        sum += SQUARES ? a * a + b * b : a + b;
    }
    return sum;
}

__device__ __forceinline__ uint32_t normed_pair(uint32_t pair, float mean, float scale, float w0,
                                                float w1, float b0, float b1) {
    return pack_bf16((bf16_low(pair) - mean) * scale * w0 + b0,
                     (bf16_high(pair) - mean) * scale * w1 + b1);
}

__device__ __forceinline__ uint4 normed(uint4 v, float mean, float scale, float4 w0, float4 w1,
                                        float4 b0, float4 b1) {
    return make_uint4(normed_pair(v.x, mean, scale, w0.x, w0.y, b0.x, b0.y),
                      normed_pair(v.y, mean, scale, w0.z, w0.w, b0.z, b0.w),
                      normed_pair(v.z, mean, scale, w1.x, w1.y, b1.x, b1.y),
                      normed_pair(v.w, mean, scale, w1.z, w1.w, b1.z, b1.w));
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS_MAX) layer_norm_kernel(layer_norm_params p) {
    let_next_start();
    wait_for_earlier();
    uint4 row[TURNS];
    float sum = 0;
    size_t start = (size_t)blockIdx.x * p.vectors;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.vectors) break;
        uint4 v = of_step(p.x)[start + i];
        if (p.residual) {
            uint4 r = of_step(p.residual)[start + i];
            v = make_uint4(add_pair(v.x, r.x), add_pair(v.y, r.y), add_pair(v.z, r.z),
                           add_pair(v.w, r.w));
            of_step(p.residual)[start + i] = v;
        }
        row[t] = v;
        sum += centered_sum<false>(v, 0);
    }
    float mean = norm_block_sum(sum) / (p.vectors * 8);
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        if (t * blockDim.x + threadIdx.x >= p.vectors) break;
        sum += centered_sum<true>(row[t], mean);
    }
    float scale = rsqrtf(norm_block_sum(sum) / (p.vectors * 8) + p.eps);
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.vectors) break;
        const float4 none = make_float4(0, 0, 0, 0);
        float4 w0 = p.weight[i * 2], w1 = p.weight[i * 2 + 1];
        float4 b0 = p.bias ? p.bias[i * 2] : none, b1 = p.bias ? p.bias[i * 2 + 1] : none;
        of_step(p.out)[start + i] = normed(row[t], mean, scale, w0, w1, b0, b1);
    }
}

// A pass over a warp's vector: its sum or that of its squares, without `center`.
template <bool SQUARES>
__device__ __forceinline__ float vector_sum(const uint4 *x, int vectors, float center) {
    float sum = 0;
    for (int i = threadIdx.x % 32; i < vectors; i += 32) sum += centered_sum<SQUARES>(x[i], center);
    return warp_sum(sum);
}

__global__ void __launch_bounds__(GROUP_THREADS)
    grouped_layer_norm_kernel(grouped_layer_norm_params p) {
    let_next_start();
    wait_for_earlier();
    int number = blockIdx.x * (GROUP_THREADS / 32) + threadIdx.x / 32;
    int row = number / p.groups, group = number % p.groups;
    if (row >= p.rows) return;
    size_t start = (size_t)row * p.stride + (size_t)group * p.vectors;
    const uint4 *x = of_step(p.x) + start;
    const float4 *weight = p.weight + (size_t)group * p.vectors * 2;
    float mean = vector_sum<false>(x, p.vectors, 0) / (p.vectors * 8);
    float scale = rsqrtf(vector_sum<true>(x, p.vectors, mean) / (p.vectors * 8) + p.eps);
    for (int i = threadIdx.x % 32; i < p.vectors; i += 32) {
        of_step(p.out)[start + i] =
            normed(x[i], mean, scale, weight[i * 2], weight[i * 2 + 1], {}, {});
    }
}

void launch_grouped(const layer_norm_args *args, const cuda_device_info *info,
                    cudaStream_t stream) {
    grouped_layer_norm_params p = {};
    p.x = static_cast<const uint4 *>(args->x);
    p.weight = reinterpret_cast<const float4 *>(args->weight);
    p.out = static_cast<uint4 *>(args->out);
    p.rows = static_cast<int>(args->rows);
    p.groups = static_cast<int>(args->groups);
    p.vectors = static_cast<int>(args->cols / 8);
    p.stride = static_cast<int>(args->stride / 8);
    p.eps = args->eps;
    int warps = p.rows * p.groups, in_block = GROUP_THREADS / 32;
    dim3 blocks(static_cast<unsigned>((warps + in_block - 1) / in_block));
    launch_dependent(grouped_layer_norm_kernel, blocks, GROUP_THREADS, 0, info, stream, p);
}

} // namespace

extern "C" void cuda_layer_norm_launch(const struct layer_norm_args *args,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    if (args->groups) return launch_grouped(args, info, stream);
    layer_norm_params p = {};
    p.x = static_cast<const uint4 *>(args->x);
    p.residual = static_cast<uint4 *>(args->residual);
    p.weight = reinterpret_cast<const float4 *>(args->weight);
    p.bias = reinterpret_cast<const float4 *>(args->bias);
    p.out = static_cast<uint4 *>(args->out);
    p.vectors = static_cast<int>(args->cols / 8);
    p.eps = args->eps;
    int turns = norm_turns(p.vectors);
    auto kernel = turns == 1   ? layer_norm_kernel<1>
                  : turns == 2 ? layer_norm_kernel<2>
                               : layer_norm_kernel<NORM_TURNS_MAX>;
    launch_dependent(kernel, dim3(args->rows), norm_threads(p.vectors), 0, info, stream, p);
}
