/* Linear layers for 1 to 8 rows, as in the decode of few sequences. The time is that of one pass
 * over the weights: out x in x 2 bytes. The work around the linear in a layer is done here too,
 * because a kernel of its own would cost more than the work:
 *
 *   x' = norm ? x * norm / sqrt(mean(x^2) + eps) : x       (the root is applied to the sums)
 *   y = x' W^T + b;   gated: y = silu(y[first half]) * y[second half]
 *   residual ? residual += y : out = y
 *
 * Tensor cores compute the sums. A tile of 16 outputs is the left operand of mma.sync m16n8k16, and
 * up to 8 rows of x are its 8 columns. In a slice of 32 inputs every lane reads 8 consecutive
 * inputs of weights and of x. So loads are 16 bytes wide and need no shared memory. Both operands
 * have their inputs in the same permuted order, so the sums are the same. In a gated tile rows 0-7
 * are gates and 8-15 their ups.
 *
 * Launch: a block per 16 outputs. Its warps take every n-th slice of the inputs and join their sums
 * in shared memory. The loads of the first weights start before the previous kernel has ended
 * (rule 1 of handover.cuh). */
#include "backend/cuda/linear/few_rows.cuh"

namespace {

constexpr int SLICE = 32;

// Columns of the result per block.
__host__ __device__ inline int outputs_per_block(const few_rows_params &p) {
    return p.is_gated ? OUTPUTS / 2 : OUTPUTS;
}

// First input of slice number i, counted over all warps. A warp takes two adjacent slices, a whole
// line of memory; the next warp takes the next two.
template <int WARPS> __device__ __forceinline__ int slice_column(int i) {
    int pair = i / (2 * WARPS) * WARPS + i % WARPS, half = i / WARPS % 2;
    return (pair * 2 + half) * SLICE;
}

// The two weight rows that this lane reads of its block's tile.
__device__ __forceinline__ void tile_rows(const few_rows_params &p, int lane, int *low, int *high) {
    int row = lane / 4;
    if (p.is_gated) {
        *low = blockIdx.x * (OUTPUTS / 2) + row;
        *high = *low + p.num_outputs / 2;
    } else {
        *low = blockIdx.x * OUTPUTS + row;
        *high = *low + OUTPUTS / 2;
    }
}

__device__ __forceinline__ uint4 load_weights(const few_rows_params &p, int row, int column,
                                              bool inside) {
    if (!inside || column >= p.in) return make_uint4(0, 0, 0, 0);
    return __ldcs(reinterpret_cast<const uint4 *>(p.weight + (size_t)row * p.in + column));
}

// 8 inputs of a row times the norm's weights. Adds their squares to `squares`.
__device__ __forceinline__ uint4 load_inputs(const few_rows_params &p, int row, int column,
                                             float *squares) {
    if (row >= p.rows || column >= p.in) return make_uint4(0, 0, 0, 0);
    uint4 x = *reinterpret_cast<const uint4 *>(of_step(p.x) + (size_t)row * p.in + column);
    if (!p.norm) return x;
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        *squares += bf16_low(words[i]) * bf16_low(words[i]);
        *squares += bf16_high(words[i]) * bf16_high(words[i]);
    }
    float4 a = *reinterpret_cast<const float4 *>(p.norm + column);
    float4 b = *reinterpret_cast<const float4 *>(p.norm + column + 4);
    return make_uint4(scale_pair(x.x, a.x, a.y), scale_pair(x.y, a.z, a.w),
                      scale_pair(x.z, b.x, b.y), scale_pair(x.w, b.z, b.w));
}

// The result that this thread writes, if any.
template <int WARPS> __device__ __forceinline__ result_place place_of(const few_rows_params &p) {
    static_assert(OUTPUTS * ROWS_TILE <= WARPS * 32, "a thread each");
    int per_block = outputs_per_block(p), columns = columns_of(p);
    result_place r = {};
    r.local = threadIdx.x % per_block, r.row = threadIdx.x / per_block;
    r.output = blockIdx.x * per_block + r.local;
    r.at = r.row * columns + r.output;
    r.is_there = r.row < p.rows && r.output < columns;
    return r;
}

// Terms added to a result; 0 if absent. up_value: for a gated result.
struct result_addends {
    float bias_value, up_value, residual_value;

    __device__ __forceinline__ float bias() const {
        return bias_value;
    }
    __device__ __forceinline__ float up_bias() const {
        return up_value;
    }
    __device__ __forceinline__ float residual() const {
        return residual_value;
    }
};

// Biases are constant, so they are loaded before the wait.
__device__ __forceinline__ result_addends load_bias(const few_rows_params &p,
                                                    const result_place &r) {
    result_addends a = {};
    if (!p.bias || !r.is_there) return a;
    a.bias_value = __bfloat162float(p.bias[r.output]);
    if (p.is_gated) a.up_value = __bfloat162float(p.bias[r.output + columns_of(p)]);
    return a;
}

template <int WARPS, int AHEAD>
__global__ void __launch_bounds__(WARPS * 32) few_rows_kernel(few_rows_params p) {
    __shared__ few_rows_sums<WARPS, OUTPUTS> found;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, low_row, high_row;
    tile_rows(p, lane, &low_row, &high_row);
    bool has_low = low_row < columns_of(p);
    bool has_high = high_row < p.num_outputs && (has_low || !p.is_gated);
    int num_slices = (p.in + 2 * SLICE - 1) / (2 * SLICE) * 2;
    // First input of this lane in a slice. Slices past the end load zeros.
    auto column = [&](int slice) { return slice_column<WARPS>(slice) + lane % 4 * 8; };
    uint4 low[AHEAD], high[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        low[a] = load_weights(p, low_row, column(warp + a * WARPS), has_low);
        high[a] = load_weights(p, high_row, column(warp + a * WARPS), has_high);
    }
    prefetch_floats(p.norm, p.in, threadIdx.x);
    const result_place place = place_of<WARPS>(p);
    result_addends mine = load_bias(p, place);
    let_next_start();
    wait_for_earlier();
    // Loaded here: at the end every thread would wait for it.
    mine.residual_value =
        p.residual && place.is_there ? __bfloat162float(of_step(p.residual)[place.at]) : 0;
    float acc[4] = {}, own_squares = 0;
    for (int slice = warp; slice < num_slices; slice += AHEAD * WARPS) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            int at = slice + a * WARPS;
            uint4 x = load_inputs(p, lane / 4, column(at), &own_squares);
            multiply_slice(acc, low[a], high[a], x);
            low[a] = load_weights(p, low_row, column(at + AHEAD * WARPS), has_low);
            high[a] = load_weights(p, high_row, column(at + AHEAD * WARPS), has_high);
        }
    }
    found.keep(acc, warp, lane / 4, lane, true);
    found.keep_squares(own_squares, warp, lane / 4, lane);
    __syncthreads();
    write_result(p, place, mine, found, p.norm, p.is_gated, p.residual);
}

void launch(const few_rows_params &p, const cuda_device_info *info, cudaStream_t stream) {
    int per_block = outputs_per_block(p), blocks = (columns_of(p) + per_block - 1) / per_block;
    // With few blocks, each needs more warps to have enough loads in flight, ideally all its loads.
    // Measured in doc/log-cuda.md.
    if (blocks <= info->num_sms) {
        launch_dependent(few_rows_kernel<16, 4>, dim3(blocks), 16 * 32, 0, info, stream, p);
    } else if (blocks <= 2 * info->num_sms && p.in >= 4096) {
        launch_dependent(few_rows_kernel<16, 2>, dim3(blocks), 16 * 32, 0, info, stream, p);
    } else {
        launch_dependent(few_rows_kernel<8, 4>, dim3(blocks), 8 * 32, 0, info, stream, p);
    }
}

} // namespace

extern "C" void cuda_linear_few_rows_launch(const struct cuda_few_rows_linear *args,
                                            const struct cuda_device_info *info,
                                            cudaStream_t stream) {
    launch(few_rows_params_of(args), info, stream);
}
