/* What the two kernels for few rows share, linear/few_rows.cu and linear/few_rows_sm90.cu: their parameters,
 * a step of their products, and a result with all that surrounds a linear. */
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int OUTPUTS = 16, ROWS_TILE = 8; // of a matrix instruction

struct few_params {
    const __nv_bfloat16 *weight, *bias, *x;
    const float *norm;
    __nv_bfloat16 *residual;
    void *out;
    int rows, in, num_outputs; // of the matrix
    bool is_gated, out_is_float;
    float eps, per_input; // per_input: 1 / in
};

// Of the result.
__host__ __device__ inline int columns_of(const few_params &p) {
    return p.is_gated ? p.num_outputs / 2 : p.num_outputs;
}

inline few_params few_params_of(const cuda_small_linear *args) {
    few_params p = {};
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
    p.out_is_float = args->out_is_float;
    p.eps = args->eps;
    p.per_input = 1.0f / static_cast<float>(p.in);
    return p;
}

__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, float low, float high) {
    return pack_bf16(bf16_low(pair) * low, bf16_high(pair) * high);
}

__device__ __forceinline__ void multiply_piece(float (&sums)[4], uint4 low, uint4 high, uint4 x) {
    const uint32_t first[4] = {low.x, high.x, low.y, high.y};
    const uint32_t second[4] = {low.z, high.z, low.w, high.w};
    multiply(sums, first, x.x, x.y);
    multiply(sums, second, x.z, x.w);
}

// One result of a thread, if it has one.
struct result_place {
    int local, row; // among the block's sums
    int output; // of the result's columns
    uint32_t at;
    bool is_there;
};

// What is added to it; 0 where there is none. up_bias: of a gated result.
struct result_addends {
    float bias, up_bias, residual;
};

// Biases are constant, so at hand before x is.
__device__ __forceinline__ result_addends load_bias(const few_params &p, const result_place &r,
                                                    bool is_gated) {
    result_addends a = {};
    if (!p.bias || !r.is_there) return a;
    a.bias = __bfloat162float(p.bias[r.output]);
    if (is_gated) a.up_bias = __bfloat162float(p.bias[r.output + columns_of(p)]);
    return a;
}
__device__ __forceinline__ float residual_of(const few_params &p, const result_place &r) {
    return p.residual && r.is_there ? __bfloat162float(of_step(p.residual)[r.at]) : 0;
}

// The sums of a block's warps in shared memory, [WARPS][ROWS][STRIDE], and of squares
// [WARPS][ROWS]. All sizes are compiled in, for the loads of a total to go together; rows lie so
// far apart that keep() finds 32 banks.
constexpr int few_stride(int outputs) {
    return (outputs + 15) / 16 * 16 + 4;
}
template <int WARPS, int ALL_OUTPUTS, int ROWS> struct few_sums {
    static constexpr int STRIDE = few_stride(ALL_OUTPUTS);
    float products[WARPS * ROWS * STRIDE], squares[WARPS * ROWS];

    // A matrix instruction's: this lane's output, and the 8th after it where the operand has so
    // many, ROWS_TILE rows from `row` on.
    __device__ __forceinline__ void keep(const float (&acc)[4], int warp, int output, int row,
                                         int lane, bool has_high) {
        float *at = products + (warp * ROWS + row + lane % 4 * 2) * STRIDE + output;
        at[0] = acc[0];
        at[STRIDE] = acc[1];
        if (!has_high) return;
        at[8] = acc[2];
        at[STRIDE + 8] = acc[3];
    }
    // Of four lanes that share a row.
    __device__ __forceinline__ void keep_squares(float sum, int warp, int row, int lane) {
        sum += __shfl_xor_sync(FULL_WARP, sum, 1);
        sum += __shfl_xor_sync(FULL_WARP, sum, 2);
        if (lane % 4 == 0) squares[warp * ROWS + row] = sum;
    }
    __device__ __forceinline__ float total(int output, int row) const {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += products[(w * ROWS + row) * STRIDE + output];
        return sum;
    }
    __device__ __forceinline__ float total_squares(int row) const {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += squares[w * ROWS + row];
        return sum;
    }
};

template <typename SUMS>
__device__ __forceinline__ void write_result(const few_params &p, const result_place &r,
                                             const result_addends &addends, const SUMS &found,
                                             bool has_norm, bool is_gated) {
    if (!r.is_there) return;
    float scale = has_norm ? rsqrtf(found.total_squares(r.row) * p.per_input + p.eps) : 1.0f;
    float y = found.total(r.local, r.row) * scale + addends.bias;
    if (is_gated) {
        float up = found.total(r.local + OUTPUTS / 2, r.row) * scale + addends.up_bias;
        y = silu(y) * up;
    }
    if (p.residual) {
        of_step(p.residual)[r.at] = __float2bfloat16(addends.residual + y);
    } else if (p.out_is_float) {
        of_step(static_cast<float *>(p.out))[r.at] = y;
    } else {
        of_step(static_cast<__nv_bfloat16 *>(p.out))[r.at] = __float2bfloat16(y);
    }
}

} // namespace

// Whether linear/few_rows_sm90.cu's kernel does it; else linear/few_rows.cu's.
bool linear_stream_takes(const cuda_small_linear *args, const cuda_device_info *info);
void linear_stream_launch(const cuda_small_linear *args, const cuda_device_info *info,
                          cudaStream_t stream);
