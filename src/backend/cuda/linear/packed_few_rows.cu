/* Linear layers of 1 to 8 rows whose weights are packed (linear/packed.h), with the work around
 * them as in linear/few_rows.cu:
 *
 *   x' = norm ? x * norm / sqrt(mean(x^2) + eps) : x       (the root is applied to the sums)
 *   y = x' W^T + b;   gated: y = silu(y[first half]) * y[second half]
 *   residual ? residual += y : out = y
 *
 * The time is that of one pass over the codes. They are converted to bf16 in registers and
 * multiplied by tensor cores (mma.sync m16n8k16): a unit of 16 outputs, which is two tiles, is the
 * left operand, and rows of x are its 8 columns. Scales multiply the sums of a group in float32, so
 * a weight is never rounded. Offsets, and the zeros of 4-bit codes, are added as a factor of the
 * group's sum of x'.
 *
 * A block takes several units in turn, and its warps take the steps of a unit in turn. Each lane
 * has the loads of AHEAD steps in flight, across the ends of units. So memory is busy from the
 * first load, which comes before the wait for the previous kernel (rule 1 of handover.cuh), to the
 * last. x' is in shared memory. The warps' sums of a unit are joined there, in order.
 *
 * Launch: a block per multiprocessor, each with the same number of units or one less. */
#include "backend/cuda/linear/few_rows.cuh"
#include "backend/cuda/linear/packed_steps.cuh"

namespace {

// One block per multiprocessor. A lane has the loads of AHEAD steps in flight. More blocks of fewer
// warps, and fewer steps ahead, are slower (doc/log-cuda.md).
constexpr int WARPS = 16, AHEAD = 4;

struct packed_params {
    few_rows_params base; // `weight` is not used
    packed_matrix weights;
    int units;
    int x_stride; // bytes between rows of x'
    int warps_per_row; // that bring a row of x to shared memory
};

__device__ __forceinline__ unit_tiles tiles_of(const packed_params &p, int unit) {
    if (p.base.is_gated) return {unit, unit + p.weights.tiles / 2};
    return {2 * unit,
            min(2 * unit + 1, p.weights.tiles - 1)}; // a missing tile is multiplied for nothing
}

// Brings x' to shared memory, and the sums of its groups if they are needed. Warps share a row;
// each keeps its squares in squares[warp of the row][row].
template <typename K>
__device__ __forceinline__ void bring_x(const packed_params &p, uint32_t x, uint32_t x_sums,
                                        float *squares, int warp, int lane) {
    constexpr int BATCH = 4; // loads that are issued together
    int row = warp / p.warps_per_row, part = warp % p.warps_per_row, chunks = p.base.in / 8;
    if (row >= p.base.rows) return;
    const __nv_bfloat16 *from = of_step(p.base.x) + (size_t)row * p.base.in;
    int stride = p.warps_per_row * 32;
    float sum = 0;
    for (int begin = part * 32; begin < chunks; begin += BATCH * stride) {
        uint4 v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int chunk = begin + i * stride + lane;
            v[i] = make_uint4(0, 0, 0, 0);
            if (chunk < chunks) v[i] = __ldcg(reinterpret_cast<const uint4 *>(from) + chunk);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int chunk = begin + i * stride + lane;
            bool is_there = chunk < chunks;
            const float *norm = p.base.norm && is_there ? p.base.norm + chunk * 8 : nullptr;
            v[i] = prepare_inputs<K>(v[i], norm, sum);
            if (is_there) store_inputs(x + row * p.x_stride, chunk, v[i]);
            if constexpr (K::ZEROS || K::OFFSETS) {
                keep_group_sums<K>(v[i], x_sums, row, chunk, is_there);
            }
        }
    }
    if (!p.base.norm) return;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, lanes);
    if (lane == 0) squares[part * ROWS_TILE + row] = sum;
}

// The result of this thread in the unit.
__device__ __forceinline__ result_place place_in(const packed_params &p, int unit) {
    int per_unit = p.base.is_gated ? OUTPUTS / 2 : OUTPUTS, columns = columns_of(p.base);
    result_place r = {};
    r.local = threadIdx.x % per_unit, r.row = threadIdx.x / per_unit;
    r.output = unit * per_unit + r.local;
    r.at = r.row * columns + r.output;
    r.is_there = r.row < p.base.rows && r.output < columns;
    return r;
}

__device__ __forceinline__ float residual_of(const packed_params &p, int unit) {
    result_place r = place_in(p, unit);
    return p.base.residual && r.is_there ? __bfloat162float(of_step(p.base.residual)[r.at]) : 0;
}

template <typename K, typename SUMS>
__device__ __forceinline__ void write_unit(const packed_params &p, const SUMS &found, int unit,
                                           float norm_scale, float residual) {
    result_place r = place_in(p, unit);
    if (!r.is_there) return;
    const few_rows_params &b = p.base;
    float scale = norm_scale * K::SUM_SCALE;
    float y = found.total(r.local, r.row) * scale;
    if (K::GROUP == 0) y *= p.weights.scales.rows[r.output];
    if (b.bias) y += __bfloat162float(b.bias[r.output]);
    if (b.is_gated) {
        int output = r.output + columns_of(b);
        float up = found.total(r.local + OUTPUTS / 2, r.row) * scale;
        if (K::GROUP == 0) up *= p.weights.scales.rows[output];
        if (b.bias) up += __bfloat162float(b.bias[output]);
        y = silu(y) * up;
    }
    if (b.residual) {
        of_step(b.residual)[r.at] = __float2bfloat16(residual + y);
    } else if (b.out_is_float) {
        of_step(static_cast<float *>(b.out))[r.at] = y;
    } else {
        of_step(static_cast<__nv_bfloat16 *>(b.out))[r.at] = __float2bfloat16(y);
    }
}

template <typename K>
__global__ void __launch_bounds__(WARPS * 32, 1)
    packed_few_rows_kernel(const __grid_constant__ packed_params p) {
    using sums_type = few_rows_sums<WARPS, OUTPUTS>;
    extern __shared__ __align__(128) char memory[]; // x' [rows][x_stride], sums of groups
    __shared__ sums_type found[2]; // of alternate units
    static_assert(OUTPUTS * ROWS_TILE <= WARPS * 32, "a thread for each result");
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    int unit = static_cast<int>(static_cast<long long>(p.units) * blockIdx.x / gridDim.x);
    int end = static_cast<int>(static_cast<long long>(p.units) * (blockIdx.x + 1) / gridDim.x);
    bool has_steps = warp < p.weights.steps; // in each unit
    // The next step to load.
    int next_unit = unit, next_step = warp;
    step_loads<K> loads[AHEAD] = {};
    auto load_next = [&](step_loads<K> &to) {
        if (next_unit >= end) return;
        load_step<K>(to, p.weights, tiles_of(p, next_unit), next_step, lane);
        next_step += WARPS;
        if (next_step >= p.weights.steps) next_step = warp, next_unit++;
    };
    if (has_steps) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) load_next(loads[a]);
    }
    prefetch_floats(p.base.norm, p.base.in, threadIdx.x);
    let_next_start();
    wait_for_earlier();
    uint32_t x = shared_address(memory), x_sums = x + p.base.rows * p.x_stride;
    bring_x<K>(p, x, x_sums, found[0].squares, warp, lane);
    float residual = residual_of(p, unit);
    __syncthreads();
    float norm_scale = 1;
    if (p.base.norm) {
        int row = place_in(p, unit).row;
        float squares = 0;
        if (row < p.base.rows) {
            for (int w = 0; w < p.warps_per_row; w++)
                squares += found[0].squares[w * ROWS_TILE + row];
        }
        norm_scale = rsqrtf(squares * p.base.per_input + p.base.eps);
    }
    x += min(lane / 4, p.base.rows - 1) * p.x_stride + lane % 4 * 16;
    x_sums += lane % 4 * 8;
    float sums[4] = {};
    int step = warp, parity = 0;
    auto end_unit = [&]() {
        found[parity].keep(sums, warp, lane / 4, lane, true);
        __syncthreads();
        write_unit<K>(p, found[parity], unit, norm_scale, residual);
        unit++, parity ^= 1, step = warp;
        if (unit < end) residual = residual_of(p, unit);
#pragma unroll
        for (int i = 0; i < 4; i++) sums[i] = 0;
    };
    while (unit < end) {
        if (!has_steps) {
            end_unit();
            continue;
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            if (unit >= end) break;
            constexpr int GROUPS = K::GROUP ? K::SPAN / K::GROUP : 0; // of a span
            uint32_t its_sums = x_sums + step * K::STEP / K::SPAN * (GROUPS * 32);
            multiply_step<K>(sums, loads[a], x + step * (K::STEP * 2), its_sums, lane);
            load_next(loads[a]);
            step += WARPS;
            if (step >= p.weights.steps) end_unit();
        }
    }
}

packed_params params_of(const cuda_few_rows_linear *args) {
    const cuda_linear_view &v = args->linear;
    packed_params p = {};
    p.base = few_rows_params_of(args);
    p.weights = packed_matrix_of(v);
    p.units = args->is_gated ? p.weights.tiles / 2 : (p.weights.tiles + 1) / 2;
    return p;
}

size_t shared_bytes(size_t rows, size_t in, weight_code code, uint32_t group, bool has_offsets) {
    bool has_sums = has_offsets || code == WEIGHT_CODE_INT4;
    return rows * (in * 2 + X_PAD) + (has_sums ? in / group * ROWS_TILE * sizeof(float) : 0);
}

// Static shared memory.
constexpr size_t STATIC_BYTES = 2 * sizeof(few_rows_sums<WARPS, OUTPUTS>);

template <typename K>
void launch_kind(packed_params p, size_t bytes, const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = packed_few_rows_kernel<K>;
    int rows = 1;
    while (rows < p.base.rows) rows *= 2;
    p.warps_per_row = WARPS / rows;
    p.x_stride = p.base.in * 2 + X_PAD;
    // The same values at every launch: attributes belong to the process.
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         info->shared_bytes_max - static_cast<int>(STATIC_BYTES));
    launch_dependent(kernel, dim3(info->num_sms < p.units ? info->num_sms : p.units), WARPS * 32,
                     bytes, info, stream, p);
}

} // namespace

extern "C" size_t cuda_packed_few_rows_bytes(uint32_t rows, uint32_t in,
                                             const struct weight_format *format) {
    return shared_bytes(rows, in, format->code, format->group, format->has_offsets) + STATIC_BYTES;
}

extern "C" void cuda_packed_few_rows_launch(const struct cuda_few_rows_linear *args,
                                            const struct cuda_device_info *info,
                                            cudaStream_t stream) {
    const cuda_linear_view &v = args->linear;
    size_t bytes = shared_bytes(args->rows, v.in, v.code, v.group, v.has_offsets);
    with_kind(
        v, [&](auto kind) { launch_kind<decltype(kind)>(params_of(args), bytes, info, stream); });
}
