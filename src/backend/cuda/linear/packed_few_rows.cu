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
#include "backend/cuda/linear/packed.cuh"

namespace {

// Bytes between rows of x' in shared memory beyond its own: 8 lanes that read 16 bytes of two rows
// hit different banks.
constexpr int X_PAD = 64;
// One block per multiprocessor. A lane has the loads of AHEAD steps in flight. More blocks of fewer
// warps, and fewer steps ahead, are slower (doc/log-cuda.md).
constexpr int WARPS = 16, AHEAD = 4;

struct packed_params {
    few_rows_params base; // `weight` is not used
    const uint4 *codes;
    packed_scales scales;
    int tiles, units, steps; // steps of a tile
    int x_stride; // bytes between rows of x'
    int warps_per_row; // that bring a row of x to shared memory
};

// What a lane loads for a step: of the unit's first tile and of its second.
template <typename K> struct step_loads {
    uint4 codes[2];
    uint32_t scales[2][K::LANE_WORDS];
};

// The two tiles of a unit.
struct unit_tiles {
    int low, high;
};
__device__ __forceinline__ unit_tiles tiles_of(const packed_params &p, int unit) {
    if (p.base.is_gated) return {unit, unit + p.tiles / 2};
    return {2 * unit, min(2 * unit + 1, p.tiles - 1)}; // a missing tile is multiplied for nothing
}

template <typename K>
__device__ __forceinline__ void load_step(step_loads<K> &to, const packed_params &p, int unit,
                                          int step, int lane) {
    unit_tiles t = tiles_of(p, unit);
    const int tiles[2] = {t.low, t.high};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t at = static_cast<size_t>(tiles[half] * p.steps + step) * 32 + lane;
        to.codes[half] = __ldcs(p.codes + at);
        load_scales<K>(to.scales[half], p.scales, tiles[half], step * K::STEP / K::SPAN, lane);
    }
}

__device__ __forceinline__ uint2 load_shared8(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(address)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store_float(uint32_t address, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

// sums += scale * part; the first two belong to the first tile's output.
__device__ __forceinline__ void add_scaled(float (&sums)[4], const float (&part)[4], float low,
                                           float high) {
    sums[0] = fmaf(part[0], low, sums[0]), sums[1] = fmaf(part[1], low, sums[1]);
    sums[2] = fmaf(part[2], high, sums[2]), sums[3] = fmaf(part[3], high, sums[3]);
}

// A group's sums: what its zeros and offsets add to the products, before or after the scale.
template <typename K>
__device__ __forceinline__ void begin_group(float (&part)[4], const group_factors (&f)[2],
                                            float first, float second) {
    float low = K::ZEROS ? -bf16_low(f[0].zeros) : 0, high = K::ZEROS ? -bf16_low(f[1].zeros) : 0;
    part[0] = low * first, part[1] = low * second;
    part[2] = high * first, part[3] = high * second;
}
template <typename K>
__device__ __forceinline__ void end_group(float (&sums)[4], const float (&part)[4],
                                          const group_factors (&f)[2], float first, float second) {
    if (K::OFFSETS) {
        // Pairs of int4 are the values plus 136.
        float excess = K::CODE == WEIGHT_CODE_INT4 ? -bf16_low(f[0].zeros) : 0;
        float low = fmaf(excess, f[0].scale, f[0].offset);
        float high = fmaf(excess, f[1].scale, f[1].offset);
        const float added[4] = {first, second, first, second};
        add_scaled(sums, added, low, high);
    }
    add_scaled(sums, part, f[0].scale, f[1].scale);
}

// x: this lane's first input of the step in shared memory. x_sums: sums of x' of the step's first
// group, of this lane's two rows; groups are 32 bytes apart.
template <typename K>
__device__ __forceinline__ void multiply_step(float (&sums)[4], const step_loads<K> &s, uint32_t x,
                                              uint32_t x_sums, int lane) {
    constexpr int PER_GROUP = K::GROUP && K::GROUP < K::STEP ? K::GROUP / 16 : K::MULTIPLIES;
    constexpr bool HAS_SUMS = K::ZEROS || K::OFFSETS;
    float part[4] = {}, first = 0, second = 0;
    float(&to)[4] = K::GROUP ? part : sums;
    group_factors f[2];
    uint4 v;
#pragma unroll
    for (int i = 0; i < K::MULTIPLIES; i++) {
        if (i % 2 == 0) v = load_shared16(x + i * 32);
        if (K::GROUP && i % PER_GROUP == 0) {
            int group = i / PER_GROUP;
            if (HAS_SUMS) {
                uint2 both = load_shared8(x_sums + group * 32);
                first = __uint_as_float(both.x), second = __uint_as_float(both.y);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                f[half] = factors_in<K>(s.scales[half], group, lane);
            }
            begin_group<K>(part, f, first, second);
        }
        uint32_t a[4];
        unpack_pairs<K>(s.codes[0], i, a[0], a[2]);
        unpack_pairs<K>(s.codes[1], i, a[1], a[3]);
        multiply(to, a, i % 2 ? v.z : v.x, i % 2 ? v.w : v.y);
        if (K::GROUP && i % PER_GROUP == PER_GROUP - 1) end_group<K>(sums, part, f, first, second);
    }
}

// x times the norm's weights and X_SCALE. Adds the squares of x.
template <typename K>
__device__ __forceinline__ uint4 prepare_inputs(uint4 x, const float *norm, float &squares) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = bf16_element(x, i);
    if (norm) {
        float4 a = *reinterpret_cast<const float4 *>(norm);
        float4 b = *reinterpret_cast<const float4 *>(norm + 4);
        const float weights[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            squares = fmaf(v[i], v[i], squares);
            v[i] *= weights[i];
        }
    }
    if (K::X_SCALE > 1) {
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= K::X_SCALE;
    }
    return pack_bf16(v);
}

// Sums of a group's x', rounded as the products use it. A lane has 8 inputs; all lanes call it.
template <typename K>
__device__ __forceinline__ void keep_group_sums(uint4 x, uint32_t sums, int row, int chunk,
                                                bool is_there) {
    constexpr int LANES = K::GROUP / 8; // of a group
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += bf16_element(x, i);
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) {
        sum += __shfl_xor_sync(FULL_WARP, sum, lanes);
    }
    if (is_there && chunk % LANES == 0)
        store_float(sums + (chunk / LANES * ROWS_TILE + row) * 4, sum);
}

// Stores 8 inputs of x' so that lane q of four finds what it multiplies with 32 inputs of a row in
// 16 bytes: inputs 2 q + {0, 1, 8, 9, 16, 17, 24, 25}.
__device__ __forceinline__ void store_inputs(uint32_t row, int chunk, uint4 x) {
    uint32_t to = row + chunk / 4 * 64 + chunk % 4 * 4;
    store_shared(to, x.x);
    store_shared(to + 16, x.y);
    store_shared(to + 32, x.z);
    store_shared(to + 48, x.w);
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
    if (K::GROUP == 0) y *= p.scales.rows[r.output];
    if (b.bias) y += __bfloat162float(b.bias[r.output]);
    if (b.is_gated) {
        int output = r.output + columns_of(b);
        float up = found.total(r.local + OUTPUTS / 2, r.row) * scale;
        if (K::GROUP == 0) up *= p.scales.rows[output];
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
    bool has_steps = warp < p.steps; // in each unit
    // The next step to load.
    int next_unit = unit, next_step = warp;
    step_loads<K> loads[AHEAD] = {};
    auto load_next = [&](step_loads<K> &to) {
        if (next_unit >= end) return;
        load_step<K>(to, p, next_unit, next_step, lane);
        next_step += WARPS;
        if (next_step >= p.steps) next_step = warp, next_unit++;
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
            if (step >= p.steps) end_unit();
        }
    }
}

packed_params params_of(const cuda_few_rows_linear *args) {
    const cuda_linear_view &v = args->linear;
    packed_params p = {};
    p.base = few_rows_params_of(args);
    p.codes = static_cast<const uint4 *>(v.weight);
    p.scales = packed_scales_of(v);
    p.tiles = static_cast<int>(v.out / CUDA_PACKED_TILE);
    p.units = args->is_gated ? p.tiles / 2 : (p.tiles + 1) / 2;
    p.steps = static_cast<int>(v.in / cuda_packed_step(weight_code_bits(v.code)));
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
