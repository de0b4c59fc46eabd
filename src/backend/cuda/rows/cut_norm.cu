/* RMS norms of vectors that are cut among ranks, in two kernels: sums of squares, and the norms by
 * the ranks' sums. The sum over ranks between them is in bfloat16, so a sum of squares is stored as
 * three bfloat16 terms, which together have all bits of a float.
 *
 * Bytes: 2 (then 4) x rows x (both vectors' columns) + the sums. Launch: a block per row. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows/row_norm.cuh"

namespace {

constexpr int THREADS = 256;

struct params {
    uint4 *x; // [rows][stride]
    uint4 *sums; // [rows][world_size] of one vector of 8 elements each
    const float4 *weights[CUT_NORM_VECTORS]; // [vectors * 2]
    int vectors[CUT_NORM_VECTORS];
    int stride, rank, world_size;
    size_t sum_vectors;
    float eps;
};
static_assert(CUT_NORM_SUMS == 8 && CUT_NORM_VECTORS == 2, "a rank's sums are one vector");

// Adds `value` over the block. Every call has its own barrier before.
__device__ __forceinline__ float block_sum(float value) {
    __syncthreads();
    return norm_block_sum(value);
}

// Two words of bfloat16: the terms of a float, the last one 0.
__device__ __forceinline__ uint2 terms_of(float value) {
    uint32_t high = pack_bf16(value, 0);
    float rest = value - bf16_low(high);
    uint32_t middle = pack_bf16(rest, 0);
    return make_uint2(pack_bf16(bf16_low(high), bf16_low(middle)),
                      pack_bf16(rest - bf16_low(middle), 0));
}

__global__ void __launch_bounds__(THREADS) square_sums_kernel(const __grid_constant__ params p) {
    let_next_start();
    wait_for_earlier();
    const uint4 *x = of_step(p.x) + (size_t)blockIdx.x * p.stride;
    float totals[CUT_NORM_VECTORS];
#pragma unroll
    for (int v = 0; v < CUT_NORM_VECTORS; x += p.vectors[v++]) {
        float sum = 0;
        for (int i = threadIdx.x; i < p.vectors[v]; i += THREADS) sum += sum_of_squares(x[i]);
        totals[v] = block_sum(sum);
    }
    // The last block fills up what follows its row's sums.
    size_t first = (size_t)blockIdx.x * p.world_size, end = first + p.world_size;
    if (blockIdx.x + 1 == gridDim.x) end = p.sum_vectors;
    uint2 q = terms_of(totals[0]), k = terms_of(totals[1]);
    for (size_t i = first + threadIdx.x; i < end; i += THREADS) {
        of_step(p.sums)[i] =
            i == first + p.rank ? make_uint4(q.x, q.y, k.x, k.y) : make_uint4(0, 0, 0, 0);
    }
}

// The sum over ranks, in their order.
__device__ __forceinline__ float total_of(const uint4 *sums, int world_size, int vector) {
    float total = 0;
    for (int r = 0; r < world_size; r++) {
        uint4 v = sums[r];
        uint32_t first = vector ? v.z : v.x, second = vector ? v.w : v.y;
        total += bf16_low(first) + bf16_high(first) + bf16_low(second);
    }
    return total;
}

__global__ void __launch_bounds__(THREADS) cut_norm_kernel(const __grid_constant__ params p) {
    let_next_start();
    wait_for_earlier();
    uint4 *x = of_step(p.x) + (size_t)blockIdx.x * p.stride;
    const uint4 *sums = of_step(p.sums) + (size_t)blockIdx.x * p.world_size;
#pragma unroll
    for (int v = 0; v < CUT_NORM_VECTORS; x += p.vectors[v++]) {
        float cols = static_cast<float>(p.vectors[v] * 8) * p.world_size;
        float scale = rsqrtf(total_of(sums, p.world_size, v) / cols + p.eps);
        const float4 *weight = p.weights[v];
        for (int i = threadIdx.x; i < p.vectors[v]; i += THREADS) {
            float4 w0 = weight[i * 2], w1 = weight[i * 2 + 1];
            uint4 e = x[i];
            x[i] =
                make_uint4(pack_bf16(bf16_low(e.x) * scale * w0.x, bf16_high(e.x) * scale * w0.y),
                           pack_bf16(bf16_low(e.y) * scale * w0.z, bf16_high(e.y) * scale * w0.w),
                           pack_bf16(bf16_low(e.z) * scale * w1.x, bf16_high(e.z) * scale * w1.y),
                           pack_bf16(bf16_low(e.w) * scale * w1.z, bf16_high(e.w) * scale * w1.w));
        }
    }
}

params params_of(const struct cut_norm_args *args) {
    params p = {};
    p.x = static_cast<uint4 *>(args->x);
    p.sums = static_cast<uint4 *>(args->sums);
    for (int v = 0; v < CUT_NORM_VECTORS; v++) {
        p.weights[v] = reinterpret_cast<const float4 *>(args->weights[v]);
        p.vectors[v] = static_cast<int>(args->cols[v] / 8);
    }
    p.stride = static_cast<int>(args->stride / 8);
    p.rank = static_cast<int>(args->rank);
    p.world_size = static_cast<int>(args->world_size);
    p.sum_vectors = args->count / 8;
    p.eps = args->eps;
    return p;
}

} // namespace

extern "C" void cuda_square_sums_launch(const struct cut_norm_args *args,
                                        const struct cuda_device_info *info, cudaStream_t stream) {
    launch_dependent(square_sums_kernel, dim3(args->rows), THREADS, 0, info, stream,
                     params_of(args));
}

extern "C" void cuda_cut_norm_launch(const struct cut_norm_args *args,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    launch_dependent(cut_norm_kernel, dim3(args->rows), THREADS, 0, info, stream, params_of(args));
}
