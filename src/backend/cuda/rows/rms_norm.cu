/* RMS norm, with the addition to the residual before it if there is one: residual += x; out =
 * residual / sqrt(mean(residual^2) + eps) * weight (Zhang and Sennrich 2019). The sum is rounded to
 * bf16 before the norm, since it is stored so. x may be normed first (Gemma 3).
 *
 * Bytes: (2 to 4) x rows x cols x 2. Launch: a block per row, 8 elements per thread and turn. The
 * row stays in registers. Rows lie `stride` vectors apart, and have `groups` that are normed one by
 * one, with a block for each. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows/row_norm.cuh"

namespace {

// x * scale * weight, rounded as the op that writes it would.
__device__ __forceinline__ uint4 normed(uint4 v, const float4 *weight, float scale) {
    float4 a = weight[0], b = weight[1];
    return make_uint4(pack_bf16(bf16_low(v.x) * scale * a.x, bf16_high(v.x) * scale * a.y),
                      pack_bf16(bf16_low(v.y) * scale * a.z, bf16_high(v.y) * scale * a.w),
                      pack_bf16(bf16_low(v.z) * scale * b.x, bf16_high(v.z) * scale * b.y),
                      pack_bf16(bf16_low(v.w) * scale * b.z, bf16_high(v.w) * scale * b.w));
}

// residual += x normed by x_norm; the same as two kernels would, to the bit.
template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS_MAX)
    rms_norm_sum_kernel(const uint4 *x, const float4 *x_norm, uint4 *residual, const float4 *weight,
                        uint4 *out, int vectors, float eps) {
    let_next_start();
    norm_weights<TURNS> weights;
    weights.load_ahead(weight, vectors);
    prefetch_floats(reinterpret_cast<const float *>(x_norm), vectors * 8, threadIdx.x);
    wait_for_earlier();
    uint4 row[TURNS], sums[TURNS];
    float sum = 0;
    size_t start = (size_t)blockIdx.x * vectors;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= vectors) break;
        row[t] = of_step(x)[start + i];
        sums[t] = of_step(residual)[start + i];
        sum += sum_of_squares(row[t]);
    }
    float scale = rsqrtf(norm_block_sum(sum) / (vectors * 8) + eps);
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= vectors) break;
        uint4 v = normed(row[t], x_norm + i * 2, scale), r = sums[t];
        v = make_uint4(add_pair(v.x, r.x), add_pair(v.y, r.y), add_pair(v.z, r.z),
                       add_pair(v.w, r.w));
        of_step(residual)[start + i] = row[t] = v;
        sum += sum_of_squares(v);
    }
    scale = rsqrtf(norm_block_sum(sum) / (vectors * 8) + eps);
    weights.store(out + start, row, scale, vectors);
}

template <int TURNS>
__global__ void __launch_bounds__(NORM_THREADS_MAX)
    rms_norm_kernel(const uint4 *x, uint4 *residual, const float4 *weight, uint4 *out, int vectors,
                    int stride, int groups, bool has_group_weights, float eps) {
    let_next_start();
    norm_weights<TURNS> weights;
    if (has_group_weights) weight += blockIdx.x % groups * vectors * 2;
    weights.load_ahead(weight, vectors);
    wait_for_earlier();
    uint4 row[TURNS];
    float sum = 0;
    size_t start = (size_t)(blockIdx.x / groups) * stride + blockIdx.x % groups * vectors;
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
        sum += sum_of_squares(v);
    }
    float scale = rsqrtf(norm_block_sum(sum) / (vectors * 8) + eps);
    weights.store(out + start, row, scale, vectors);
}

} // namespace

extern "C" void cuda_rms_norm_launch(const struct rms_norm_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    int vectors = static_cast<int>(args->cols / 8), turns = norm_turns(vectors);
    int groups = args->groups ? static_cast<int>(args->groups) : 1;
    auto kernel = turns == 1   ? rms_norm_kernel<1>
                  : turns == 2 ? rms_norm_kernel<2>
                               : rms_norm_kernel<NORM_TURNS_MAX>;
    if (args->x_norm) {
        auto sum_kernel = turns == 1   ? rms_norm_sum_kernel<1>
                          : turns == 2 ? rms_norm_sum_kernel<2>
                                       : rms_norm_sum_kernel<NORM_TURNS_MAX>;
        launch_dependent(
            sum_kernel, dim3(args->rows), norm_threads(vectors), 0, info, stream,
            static_cast<const uint4 *>(args->x), reinterpret_cast<const float4 *>(args->x_norm),
            static_cast<uint4 *>(args->residual), reinterpret_cast<const float4 *>(args->weight),
            static_cast<uint4 *>(args->out), vectors, args->eps);
        return;
    }
    launch_dependent(kernel, dim3(args->rows * groups), norm_threads(vectors), 0, info, stream,
                     static_cast<const uint4 *>(args->x), static_cast<uint4 *>(args->residual),
                     reinterpret_cast<const float4 *>(args->weight),
                     static_cast<uint4 *>(args->out), vectors,
                     args->stride ? static_cast<int>(args->stride / 8) : groups * vectors, groups,
                     args->has_group_weights, args->eps);
}
