/* Shared by few_rows.cu, few_rows_sm90.cu and few_rows_ring.cu: their parameters; by the first two
 * also a step of the products, and writing a result with the work that surrounds a linear. */
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int OUTPUTS = 16, ROWS_TILE = CUDA_FEW_ROWS; // of a matrix instruction

struct few_rows_params {
    const __nv_bfloat16 *weight, *bias, *x;
    const float *norm;
    __nv_bfloat16 *residual;
    void *out;
    int rows, in, num_outputs; // num_outputs: rows of the matrix
    bool is_gated, out_is_float;
    enum activation activation; // with is_gated
    float eps, per_input; // per_input: 1 / in
};

// Columns of the result.
__host__ __device__ inline int columns_of(const few_rows_params &p) {
    return p.is_gated ? p.num_outputs / 2 : p.num_outputs;
}

inline few_rows_params few_rows_params_of(const cuda_few_rows_linear *args) {
    few_rows_params p = {};
    p.weight = static_cast<const __nv_bfloat16 *>(args->linear.weight);
    p.bias = static_cast<const __nv_bfloat16 *>(args->linear.bias);
    p.x = static_cast<const __nv_bfloat16 *>(args->x);
    p.norm = args->norm;
    p.residual = static_cast<__nv_bfloat16 *>(args->residual);
    p.out = args->out;
    p.rows = static_cast<int>(args->rows);
    p.in = static_cast<int>(args->linear.in);
    p.num_outputs = static_cast<int>(args->linear.out);
    p.is_gated = args->is_gated;
    p.activation = args->activation;
    p.out_is_float = args->out_is_float;
    p.eps = args->eps;
    p.per_input = 1.0f / static_cast<float>(p.in);
    return p;
}

__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, float low, float high) {
    return pack_bf16(bf16_low(pair) * low, bf16_high(pair) * high);
}

__device__ __forceinline__ void multiply_slice(float (&sums)[4], uint4 low, uint4 high, uint4 x) {
    const uint32_t first[4] = {low.x, high.x, low.y, high.y};
    const uint32_t second[4] = {low.z, high.z, low.w, high.w};
    multiply(sums, first, x.x, x.y);
    multiply(sums, second, x.z, x.w);
}

// One result of a thread, if it has one.
struct result_place {
    int local, row; // position among the block's sums
    int output; // column of the result
    uint32_t at;
    bool is_there;
};

// The sums of a block's warps in shared memory: products [WARPS][ROWS_TILE][STRIDE], squares
// [WARPS][ROWS_TILE]. All sizes are compile-time constants, so that the loads of a total are issued
// together. STRIDE is padded so that keep()'s 32 stores hit 32 different banks.
constexpr int few_rows_stride(int outputs) {
    return (outputs + 15) / 16 * 16 + 4;
}
template <int WARPS, int ALL_OUTPUTS> struct few_rows_sums {
    static constexpr int STRIDE = few_rows_stride(ALL_OUTPUTS);
    float products[WARPS * ROWS_TILE * STRIDE], squares[WARPS * ROWS_TILE];

    // Stores a matrix instruction's sums: this lane's output, and if has_high the 8th after it.
    __device__ __forceinline__ void keep(const float (&acc)[4], int warp, int output, int lane,
                                         bool has_high) {
        float *at = products + (warp * ROWS_TILE + lane % 4 * 2) * STRIDE + output;
        at[0] = acc[0];
        at[STRIDE] = acc[1];
        if (!has_high) return;
        at[8] = acc[2];
        at[STRIDE + 8] = acc[3];
    }
    // Adds the squares of the four lanes that share a row.
    __device__ __forceinline__ void keep_squares(float sum, int warp, int row, int lane) {
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        sum += __shfl_xor_sync(FULL_WARP, sum, 2);
        if (lane % 4 == 0) squares[warp * ROWS_TILE + row] = sum;
    }
    __device__ __forceinline__ float total(int output, int row) const {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += products[(w * ROWS_TILE + row) * STRIDE + output];
        return sum;
    }
    __device__ __forceinline__ float total_squares(int row) const {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += squares[w * ROWS_TILE + row];
        return sum;
    }
};

// ADDENDS has the terms that are added to the result, 0 if absent: bias(), residual() and, for a
// gated result, up_bias().
template <typename SUMS, typename ADDENDS>
__device__ __forceinline__ void write_result(const few_rows_params &p, const result_place &r,
                                             ADDENDS addends, const SUMS &found, bool has_norm,
                                             bool is_gated, bool has_residual) {
    if (!r.is_there) return;
    float scale = has_norm ? rsqrtf(found.total_squares(r.row) * p.per_input + p.eps) : 1.0f;
    float y = found.total(r.local, r.row) * scale + addends.bias();
    if (is_gated) {
        float up = found.total(r.local + OUTPUTS / 2, r.row) * scale + addends.up_bias();
        y = silu(y) * up;
    }
    if (has_residual) {
        of_step(p.residual)[r.at] = __float2bfloat16(addends.residual() + y);
    } else if (p.out_is_float) {
        of_step(static_cast<float *>(p.out))[r.at] = y;
    } else {
        of_step(static_cast<__nv_bfloat16 *>(p.out))[r.at] = __float2bfloat16(y);
    }
}

} // namespace
