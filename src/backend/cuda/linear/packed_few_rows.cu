/* Linear layers of 1 to 8 rows whose weights are packed (linear/packed.h), with the work around
 * them as in linear/few_rows.cu:
 *
 *   x' = norm ? x * norm / sqrt(mean(x^2) + eps) : x       (the root is applied to the sums)
 *   y = x' W^T + b;   gated: y = silu(y[first half]) * y[second half]
 *   residual ? residual += y : out = y
 *
 * The time is that of one pass over the codes. They are converted to bf16 in registers and
 * multiplied by tensor cores (mma.sync m16n8k16): a unit of 16 outputs, which is tile u and tile
 * u + units, is the left operand, and rows of x are its 8 columns. Scales multiply the sums of a
 * group in float32, so a weight is never rounded. Offsets, and the zeros of 4-bit codes, are added
 * as a factor of the group's sum of x'.
 *
 * A block takes units that follow each other, in batches of at most 16. Each of its warps takes an
 * equal part of a batch's steps, which are of two units at most. So warps wait for each other only
 * at a batch's end, where the sums of a unit are joined, in order, through shared memory. Each lane
 * has the loads of AHEAD steps in flight, across the ends of batches. So memory is busy from the
 * first load, which comes before the wait for the previous kernel (rule 1 of handover.cuh), to the
 * last. x' is in shared memory.
 *
 * Launch: a block per multiprocessor, each with the same number of units or one less. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/few_rows.cuh"
#include "backend/cuda/linear/packed_steps.cuh"

namespace {

// One block per multiprocessor. A lane has the loads of AHEAD steps in flight. More blocks of fewer
// warps, and fewer steps ahead, are slower (doc/log-cuda.md).
constexpr int WARPS = 16, THREADS = WARPS * 32, AHEAD = 4;
constexpr int BATCH_UNITS = WARPS; // so that no warp has more steps of a batch than a unit has

struct packed_params {
    few_rows_params base; // `weight` is not used
    packed_matrix weights;
    int units, batch_units; // most of a batch
    int block_units, longer_blocks; // of a block; the first so many have one more
    int x_stride; // bytes between rows of x'
    int warps_per_row; // that bring a row of x to shared memory
};

// Some of a block's units: the number of the first, and how many.
struct unit_batch {
    int first, count;
};

// A walk through a block's batches, and through the warp's steps of each. Steps are numbered
// through all units.
struct step_cursor {
    int next_unit, end_unit; // the units that are left
    unit_batch batch;
    int at, end; // the steps that are left of the batch
    int step; // number `at` within its unit

    __device__ __forceinline__ void begin(const packed_params &p) {
        int block = blockIdx.x;
        next_unit = block * p.block_units + min(block, p.longer_blocks);
        end_unit = next_unit + p.block_units + (block < p.longer_blocks ? 1 : 0);
        at = end = 0;
    }
    // Returns false if there is no other batch.
    __device__ __forceinline__ bool next_batch(const packed_params &p, int warp) {
        if (next_unit == end_unit) return false;
        batch = {next_unit, min(p.batch_units, end_unit - next_unit)};
        next_unit += batch.count;
        int first = batch.first * p.weights.steps;
        int begin = begin_of(warp, p.weights.steps);
        at = first + begin;
        step = begin % p.weights.steps;
        end = first + begin_of(warp + 1, p.weights.steps);
        return true;
    }
    // Where a warp's steps begin, counted from the batch's first; those of warp WARPS: the end.
    __device__ __forceinline__ int begin_of(int warp, int steps) const {
        return static_cast<int>(static_cast<uint32_t>(batch.count * steps * warp) / WARPS);
    }
};

// Of each warp the sums of the two units that it has steps of. STRIDE lets keep()'s 32 stores hit
// 32 different banks. Aligned as dynamic shared memory, so that its size is all of the static one.
struct alignas(128) batch_sums {
    static constexpr int STRIDE = few_rows_stride(OUTPUTS);
    float products[WARPS * 2 * ROWS_TILE * STRIDE];
    float squares[WARPS * ROWS_TILE], norm_scales[ROWS_TILE];

    __device__ __forceinline__ void keep(const float (&sums)[4], int warp, int second, int lane) {
        int row = (warp * 2 + second) * ROWS_TILE + lane % 4 * 2;
        float *at = products + row * STRIDE + lane / 4;
        at[0] = sums[0], at[STRIDE] = sums[1];
        at[8] = sums[2], at[STRIDE + 8] = sums[3];
    }
};

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

// Warp number `row` finds the row's scale.
__device__ __forceinline__ void find_norm_scale(const packed_params &p, batch_sums &found, int row,
                                                int lane) {
    if (row >= p.base.rows) return;
    float sum = p.base.norm && lane < p.warps_per_row ? found.squares[lane * ROWS_TILE + row] : 0;
#pragma unroll
    for (int lanes = 1; lanes < WARPS; lanes *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, lanes);
    if (lane > 0) return;
    found.norm_scales[row] = p.base.norm ? rsqrtf(sum * p.base.per_input + p.base.eps) : 1;
}

// A result of a batch.
struct unit_result {
    int row, output; // output: column of the result
    int at, warps; // its sums: of the first warp in batch_sums.products, and of how many
    int others; // of the second warp; each has them first
    bool is_there;
    float scale, up_scale; // of whole rows
};

__device__ __forceinline__ int results_of(const packed_params &p, const unit_batch &b) {
    return b.count * p.base.rows * (p.base.is_gated ? CUDA_PACKED_TILE : OUTPUTS);
}

template <typename K>
__device__ __forceinline__ unit_result result_of(const packed_params &p, const step_cursor &now,
                                                 int number) {
    constexpr int OF_UNIT = ROWS_TILE * batch_sums::STRIDE;
    int per_unit = p.base.is_gated ? CUDA_PACKED_TILE : OUTPUTS;
    int local = number % per_unit, unit = number / per_unit % now.batch.count;
    int tile = now.batch.first + unit + (local < CUDA_PACKED_TILE ? 0 : p.units);
    unit_result r = {};
    r.row = number / per_unit / now.batch.count;
    r.output = tile * CUDA_PACKED_TILE + local % CUDA_PACKED_TILE;
    r.is_there = r.row < p.base.rows && tile < p.weights.tiles;
    r.scale = r.up_scale = 1;
    if (!r.is_there) return r;
    // The warp in which the unit begins has it first or second, the others have it first.
    int steps = p.weights.steps, all = now.batch.count * steps, begin = unit * steps;
    int first = (WARPS * (begin + 1) - 1) / all, last = (WARPS * (begin + steps) - 1) / all;
    int in_unit = r.row * batch_sums::STRIDE + local;
    int second = now.begin_of(first, steps) < begin ? 1 : 0;
    r.at = (first * 2 + second) * OF_UNIT + in_unit;
    r.others = (first + 1) * 2 * OF_UNIT + in_unit;
    r.warps = last - first + 1;
    if (K::GROUP == 0) {
        r.scale = p.weights.scales.rows[r.output];
        if (p.base.is_gated) r.up_scale = p.weights.scales.rows[r.output + columns_of(p.base)];
    }
    return r;
}

__device__ __forceinline__ float residual_of(const packed_params &p, const unit_result &r) {
    if (!p.base.residual || !r.is_there) return 0;
    size_t at = (size_t)r.row * columns_of(p.base) + r.output;
    return __bfloat162float(of_step(p.base.residual)[at]);
}

// `residual`: what is added.
template <typename K>
__device__ __forceinline__ void write_result(const packed_params &p, const batch_sums &found,
                                             const unit_result &r, float residual) {
    if (!r.is_there) return;
    const few_rows_params &base = p.base;
    const float *others = found.products + r.others;
    float y = found.products[r.at], up = found.products[r.at + CUDA_PACKED_TILE]; // up: if gated
#pragma unroll 2
    for (int w = 1; w < r.warps; w++, others += 2 * ROWS_TILE * batch_sums::STRIDE) {
        y += others[0];
        up += others[CUDA_PACKED_TILE];
    }
    float scale = found.norm_scales[r.row] * K::SUM_SCALE;
    y *= scale * r.scale, up *= scale * r.up_scale;
    if (base.bias) y += __bfloat162float(base.bias[r.output]);
    if (base.is_gated) {
        if (base.bias) up += __bfloat162float(base.bias[r.output + columns_of(base)]);
        y = activated(base.activation, y, up);
    }
    size_t at = (size_t)r.row * columns_of(base) + r.output;
    if (base.residual) {
        of_step(base.residual)[at] = __float2bfloat16(residual + y);
    } else if (base.out_is_float) {
        of_step(static_cast<float *>(base.out))[at] = y;
    } else {
        of_step(static_cast<__nv_bfloat16 *>(base.out))[at] = __float2bfloat16(y);
    }
}

template <typename T> __device__ __forceinline__ void rotate(T (&loads)[AHEAD]) {
    T first = loads[0];
#pragma unroll
    for (int a = 0; a + 1 < AHEAD; a++) loads[a] = loads[a + 1];
    loads[AHEAD - 1] = first;
}

template <typename K>
__global__ void __launch_bounds__(THREADS, 1)
    packed_few_rows_kernel(const __grid_constant__ packed_params p) {
    extern __shared__ __align__(128) char memory[]; // x' [rows][x_stride], sums of groups
    __shared__ batch_sums found;
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    int steps = p.weights.steps;
    int all = p.weights.tiles * steps, high = p.units * steps; // high: to the unit's second tile
    const step_source<K> source(p.weights, lane);
    step_cursor now, next = {}; // `next`: to load
    step_loads<K> loads[AHEAD] = {};
    auto load_next = [&](step_loads<K> &to) {
        while (next.at == next.end) {
            if (!next.next_batch(p, warp)) return;
        }
        // A missing tile is multiplied for nothing.
        source.load(to, next.at, next.at + (next.at + high < all ? high : 0));
        next.at++;
    };
    next.begin(p);
    now = next;
#pragma unroll
    for (int a = 0; a < AHEAD; a++) load_next(loads[a]);
    prefetch_floats(p.base.norm, p.base.in, threadIdx.x);
    let_next_start();
    now.next_batch(p, warp);
    unit_result first = result_of<K>(p, now, threadIdx.x);
    wait_for_earlier();
    float residual = residual_of(p, first);
    uint32_t x = shared_address(memory), x_sums = x + p.base.rows * p.x_stride;
    bring_x<K>(p, x, x_sums, found.squares, warp, lane);
    __syncthreads();
    find_norm_scale(p, found, warp, lane);
    x += min(lane / 4, p.base.rows - 1) * p.x_stride + lane % 4 * 16;
    x_sums += lane % 4 * 8;
    while (true) {
        float sums[4] = {};
        int second = 0; // whether it is the second of the batch
        auto keep = [&]() {
            found.keep(sums, warp, second, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) sums[i] = 0;
        };
        // Returns false if all of the warp's steps are multiplied.
        auto multiply_next = [&](step_loads<K> &from) {
            if (now.at == now.end) return false;
            constexpr int GROUPS = K::GROUP ? K::SPAN / K::GROUP : 0; // of a span
            uint32_t its_sums = x_sums + now.step * K::STEP / K::SPAN * (GROUPS * 32);
            multiply_step<K>(sums, from, x + now.step * (K::STEP * 2), its_sums, lane);
            load_next(from);
            now.at++, now.step++;
            if (now.step == steps) {
                keep();
                now.step = 0, second = 1;
            }
            return true;
        };
        int left = 0; // loads in front of that of the next batch's first step
        while (true) {
            static_assert(AHEAD == 4, "loads");
            if (left = 0, !multiply_next(loads[0])) break;
            if (left = 1, !multiply_next(loads[1])) break;
            if (left = 2, !multiply_next(loads[2])) break;
            if (left = 3, !multiply_next(loads[3])) break;
        }
        for (; left > 0; left--) rotate(loads);
        keep();
        __syncthreads();
        for (int i = threadIdx.x;;) {
            write_result<K>(p, found, first, residual);
            i += THREADS;
            if (i >= results_of(p, now.batch)) break;
            first = result_of<K>(p, now, i);
            residual = residual_of(p, first);
        }
        if (!now.next_batch(p, warp)) break;
        first = result_of<K>(p, now, threadIdx.x);
        residual = residual_of(p, first);
        __syncthreads(); // all have read the sums
    }
}

packed_params params_of(const cuda_few_rows_linear *args) {
    const cuda_linear_view &v = args->linear;
    packed_params p = {};
    p.base = few_rows_params_of(args);
    p.weights = packed_matrix_of(v);
    p.units = (p.weights.tiles + 1) / 2;
    return p;
}

// Divides the units among blocks. Returns the number of blocks.
int divide_units(packed_params &p, const cuda_device_info *info) {
    int blocks = info->num_sms < p.units ? info->num_sms : p.units;
    p.block_units = p.units / blocks;
    p.longer_blocks = p.units % blocks;
    int most = p.block_units + (p.longer_blocks ? 1 : 0);
    int batches = (most + BATCH_UNITS - 1) / BATCH_UNITS;
    p.batch_units = (most + batches - 1) / batches;
    return blocks;
}

// Static shared memory.
constexpr size_t STATIC_BYTES = sizeof(batch_sums);

template <typename K>
void launch_kind(packed_params p, size_t bytes, const cuda_device_info *info, cudaStream_t stream) {
    int rows = 1;
    while (rows < p.base.rows) rows *= 2;
    p.warps_per_row = WARPS / rows;
    p.x_stride = p.base.in * 2 + X_PAD;
    int blocks = divide_units(p, info);
    launch_packed(packed_few_rows_kernel<K>, p, blocks, THREADS, bytes, STATIC_BYTES, info, stream);
}

} // namespace

extern "C" size_t cuda_packed_few_rows_bytes(uint32_t rows, uint32_t in,
                                             const struct weight_format *format) {
    return packed_x_bytes(rows, in, format->code, format->group, format->has_offsets) +
           STATIC_BYTES;
}

extern "C" void cuda_packed_few_rows_launch(const struct cuda_few_rows_linear *args,
                                            const struct cuda_device_info *info,
                                            cudaStream_t stream) {
    const cuda_linear_view &v = args->linear;
    size_t bytes = packed_x_bytes(args->rows, v);
    with_kind(
        v, [&](auto kind) { launch_kind<decltype(kind)>(params_of(args), bytes, info, stream); });
}
