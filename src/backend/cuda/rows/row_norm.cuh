/* Normalising a row that a block holds in registers: 8 elements per thread and turn. Shared by
 * rows/rms_norm.cu and ranks/reduce.cu. */
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int NORM_THREADS_MAX = 512, NORM_TURNS_MAX = 8; // rows of up to 32,768 columns

// The sum of the block's values. A barrier must follow before the next call.
__device__ __forceinline__ float norm_block_sum(float value) {
    __shared__ float sums[NORM_THREADS_MAX / 32];
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

__device__ __forceinline__ float sum_of_squares(uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        sum += bf16_low(words[j]) * bf16_low(words[j]);
        sum += bf16_high(words[j]) * bf16_high(words[j]);
    }
    return sum;
}

// The weights of a norm. They are constant, so they are loaded before the wait; for long rows they
// would take too many registers.
template <int TURNS> struct norm_weights {
    static constexpr bool IS_AHEAD = TURNS <= 2;
    const float4 *weight; // [vectors * 2]
    float4 ahead[IS_AHEAD ? TURNS : 1][2];

    __device__ __forceinline__ void load_ahead(const float4 *all, int vectors) {
        weight = all;
#pragma unroll
        for (int t = 0; IS_AHEAD && t < TURNS; t++) {
            int i = t * blockDim.x + threadIdx.x;
            if (!weight || i >= vectors) break;
            ahead[t][0] = weight[i * 2];
            ahead[t][1] = weight[i * 2 + 1];
        }
    }

    // out [vectors] = row * scale * weight.
    __device__ __forceinline__ void store(uint4 *out, const uint4 (&row)[TURNS], float scale,
                                          int vectors) const {
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            int i = t * blockDim.x + threadIdx.x;
            if (i >= vectors) break;
            float4 w0 = IS_AHEAD ? ahead[t][0] : weight[i * 2];
            float4 w1 = IS_AHEAD ? ahead[t][1] : weight[i * 2 + 1];
            uint4 v = row[t];
            of_step(out)[i] =
                make_uint4(pack_bf16(bf16_low(v.x) * scale * w0.x, bf16_high(v.x) * scale * w0.y),
                           pack_bf16(bf16_low(v.y) * scale * w0.z, bf16_high(v.y) * scale * w0.w),
                           pack_bf16(bf16_low(v.z) * scale * w1.x, bf16_high(v.z) * scale * w1.y),
                           pack_bf16(bf16_low(v.w) * scale * w1.z, bf16_high(v.w) * scale * w1.w));
        }
    }
};

// Threads of a block and turns of each, for rows of so many vectors of 8 elements.
inline unsigned norm_threads(int vectors) {
    return vectors < NORM_THREADS_MAX ? (vectors + 31) / 32 * 32 : NORM_THREADS_MAX;
}
inline int norm_turns(int vectors) {
    int threads = static_cast<int>(norm_threads(vectors));
    return vectors <= threads ? 1 : vectors <= 2 * threads ? 2 : NORM_TURNS_MAX;
}

} // namespace
