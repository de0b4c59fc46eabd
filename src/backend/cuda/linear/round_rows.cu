/* Rows of x rounded to e4m3 (linear/e4m3.h):
 *
 *   x' = norm ? bf16(x * norm / sqrt(mean(x^2) + eps)) : x, or bf16(silu(gate) * up)
 *   scale = max |x'| / 448, of each 128 inputs or of the row;  code = e4m3(x' / scale)
 *
 * Bytes: 3 x rows x in, or 5 of gate and up. A row stays in registers. Launch: a block per row, 16
 * inputs per thread and turn. Behind a norm, from CUDA_E4M3_MANY_ROWS rows on: as many blocks as
 * run at once, 8 inputs per thread and turn. They load their next row while they round one. H200,
 * 16,384 x 4,096: 71 us, by a block per row 92. */
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/e4m3.h"
#include "backend/cuda/rows/row_norm.cuh"

namespace {

constexpr int INPUTS = 16; // of a thread and turn
constexpr int THREADS_MAX = NORM_THREADS_MAX;
constexpr int TURNS_MAX = CUDA_E4M3_INPUTS / (THREADS_MAX * INPUTS);
constexpr int GROUP_THREADS = CUDA_PACKED_BLOCK / INPUTS;
// Of blocks that take many rows: their turns, and how many threads a multiprocessor runs at once.
constexpr int AHEAD_TURNS = 4, AHEAD_INPUTS = 8, AHEAD_RESIDENT = 1024, AHEAD_REGISTERS = 64;
constexpr int AHEAD_GROUP_THREADS = CUDA_PACKED_BLOCK / AHEAD_INPUTS;
static_assert(THREADS_MAX * AHEAD_TURNS * AHEAD_INPUTS >= CUDA_E4M3_MANY_INPUTS,
              "a row's registers");
static_assert(AHEAD_RESIDENT * AHEAD_REGISTERS <= 65536, "of a multiprocessor");
constexpr float LARGEST = 448, TINY = 0x1p-100f; // of a code; what becomes 0

struct round_params {
    const uint4 *x; // [rows][in / 8], or gate and up [rows][2][in / 8]
    const float4 *norm; // [in / 4] or NULL
    uint4 *codes; // [rows][in / 16]
    float *scales;
    int chunks; // of INPUTS inputs
    int scales_stride; // 0: a scale for each row
    float eps;
};

__device__ __forceinline__ uint32_t norm_pair(uint32_t pair, float scale, float low, float high) {
    return pack_bf16(bf16_low(pair) * scale * low, bf16_high(pair) * scale * high);
}
__device__ __forceinline__ uint4 norm_eight(uint4 v, float scale, const float4 *weight) {
    float4 a = weight[0], b = weight[1];
    return make_uint4(norm_pair(v.x, scale, a.x, a.y), norm_pair(v.y, scale, a.z, a.w),
                      norm_pair(v.z, scale, b.x, b.y), norm_pair(v.w, scale, b.z, b.w));
}

// As bits, which order like magnitudes; inf and NaN come last.
__device__ __forceinline__ uint32_t largest_of(uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        largest = max(largest, max(words[i] << 16 & 0x7fff0000u, words[i] & 0x7fff0000u));
    }
    return largest;
}

// The larger magnitudes of two pairs; NaN stays.
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b) {
    __nv_bfloat162 larger = __hmax2_nan(__habs2(reinterpret_cast<const __nv_bfloat162 &>(a)),
                                        __habs2(reinterpret_cast<const __nv_bfloat162 &>(b)));
    return reinterpret_cast<const uint32_t &>(larger);
}

// As largest_of(), with fewer instructions. Beside SiLU it is 2 % slower.
__device__ __forceinline__ uint32_t largest_by_pairs(uint4 v) {
    uint32_t pair = larger_pair(larger_pair(v.x, v.y), larger_pair(v.z, v.w));
    return max(pair << 16, pair & 0x7fff0000u);
}

// Two pairs as four codes.
__device__ __forceinline__ uint32_t codes_of(uint32_t low, uint32_t high, float inverse) {
    float2 a = make_float2(bf16_low(low) * inverse, bf16_high(low) * inverse);
    float2 b = make_float2(bf16_low(high) * inverse, bf16_high(high) * inverse);
    uint32_t first = __nv_cvt_float2_to_fp8x2(a, __NV_SATFINITE, __NV_E4M3);
    uint32_t second = __nv_cvt_float2_to_fp8x2(b, __NV_SATFINITE, __NV_E4M3);
    return first | second << 16;
}

__device__ __forceinline__ uint32_t block_largest(uint32_t value) {
    __shared__ uint32_t found[THREADS_MAX / 32];
    value = __reduce_max_sync(FULL_WARP, value);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = value;
    __syncthreads();
    uint32_t all = 0;
    for (int w = 0; w < blockDim.x / 32; w++) all = max(all, found[w]);
    return all;
}

template <int LANES> __device__ __forceinline__ uint32_t lanes_largest(uint32_t value) {
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) {
        value = max(value, __shfl_xor_sync(FULL_WARP, value, lanes));
    }
    return value;
}

// What codes are made with, if `largest` is the largest magnitude.
__device__ __forceinline__ float inverse_of(uint32_t largest) {
    float most = __uint_as_float(largest);
    return most > TINY ? LARGEST / most : 0;
}

__device__ __forceinline__ uint32_t gate_pair(uint32_t gate, uint32_t up) {
    return pack_bf16(activated(ACTIVATION_SILU, bf16_low(gate), bf16_low(up)),
                     activated(ACTIVATION_SILU, bf16_high(gate), bf16_high(up)));
}
__device__ __forceinline__ uint4 gate_eight(uint4 gate, uint4 up) {
    return make_uint4(gate_pair(gate.x, up.x), gate_pair(gate.y, up.y), gate_pair(gate.z, up.z),
                      gate_pair(gate.w, up.w));
}

template <int TURNS, bool GATED>
__global__ void __launch_bounds__(THREADS_MAX)
    round_rows_kernel(const __grid_constant__ round_params p) {
    let_next_start();
    prefetch_floats(reinterpret_cast<const float *>(p.norm), p.chunks * INPUTS, threadIdx.x);
    wait_for_earlier();
    uint4 v[TURNS][2] = {};
    size_t row = blockIdx.x, start = row * p.chunks;
    float sum = 0;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i >= p.chunks) break;
        const uint4 *from = of_step(p.x) + (GATED ? start * 4 : start * 2) + i * 2;
        v[t][0] = from[0], v[t][1] = from[1];
        if (GATED) {
            const uint4 *up = from + p.chunks * 2;
            v[t][0] = gate_eight(v[t][0], up[0]), v[t][1] = gate_eight(v[t][1], up[1]);
        }
        sum += sum_of_squares(v[t][0]) + sum_of_squares(v[t][1]);
    }
    uint32_t largest[TURNS] = {}, of_row = 0;
    float scale = p.norm ? rsqrtf(norm_block_sum(sum) / (p.chunks * INPUTS) + p.eps) : 1;
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (p.norm && i < p.chunks) {
            v[t][0] = norm_eight(v[t][0], scale, p.norm + i * 4);
            v[t][1] = norm_eight(v[t][1], scale, p.norm + i * 4 + 2);
        }
        largest[t] = max(largest_of(v[t][0]), largest_of(v[t][1]));
        of_row = max(of_row, largest[t]);
    }
    if (!p.scales_stride) of_row = block_largest(of_row);
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        uint32_t bits = p.scales_stride ? lanes_largest<GROUP_THREADS>(largest[t]) : of_row;
        float most = __uint_as_float(bits), inverse = inverse_of(bits);
        const uint4 a = v[t][0], b = v[t][1];
        if (i >= p.chunks) continue;
        of_step(p.codes)[start + i] =
            make_uint4(codes_of(a.x, a.y, inverse), codes_of(a.z, a.w, inverse),
                       codes_of(b.x, b.y, inverse), codes_of(b.z, b.w, inverse));
        if (p.scales_stride && i % GROUP_THREADS == 0) {
            of_step(p.scales)[(size_t)(i / GROUP_THREADS) * p.scales_stride + row] = most / LARGEST;
        }
        if (!p.scales_stride && i == 0) of_step(p.scales)[row] = most / LARGEST;
    }
}

// The sum of the block's values. Calls alternate between two rows of sums, so that one barrier for
// each is enough.
__device__ __forceinline__ float row_sum(float value, int turn) {
    __shared__ float sums[2][THREADS_MAX / 32];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) sums[turn][threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < blockDim.x / 32; w++) total += sums[turn][w];
    return total;
}

__device__ __forceinline__ void load_row(uint4 (&v)[AHEAD_TURNS], const round_params &p, int row) {
    const int vectors = p.chunks * 2;
    const uint4 *from = of_step(p.x) + (size_t)row * vectors;
#pragma unroll
    for (int t = 0; t < AHEAD_TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        if (i < vectors) v[t] = from[i];
    }
}

// Rounds a normed row, and stores it.
__device__ __forceinline__ void store_row(const uint4 (&v)[AHEAD_TURNS], const round_params &p,
                                          int row) {
    const int vectors = p.chunks * 2;
    uint32_t largest[AHEAD_TURNS], of_row = 0;
#pragma unroll
    for (int t = 0; t < AHEAD_TURNS; t++) {
        largest[t] = largest_by_pairs(v[t]);
        of_row = max(of_row, largest[t]);
    }
    if (!p.scales_stride) of_row = block_largest(of_row);
    uint2 *codes = reinterpret_cast<uint2 *>(of_step(p.codes)) + (size_t)row * vectors;
#pragma unroll
    for (int t = 0; t < AHEAD_TURNS; t++) {
        int i = t * blockDim.x + threadIdx.x;
        uint32_t bits = p.scales_stride ? lanes_largest<AHEAD_GROUP_THREADS>(largest[t]) : of_row;
        float inverse = inverse_of(bits), scale = __uint_as_float(bits) / LARGEST;
        if (i >= vectors) continue;
        codes[i] = make_uint2(codes_of(v[t].x, v[t].y, inverse), codes_of(v[t].z, v[t].w, inverse));
        if (p.scales_stride && i % AHEAD_GROUP_THREADS == 0) {
            of_step(p.scales)[(size_t)(i / AHEAD_GROUP_THREADS) * p.scales_stride + row] = scale;
        }
        if (!p.scales_stride && i == 0) of_step(p.scales)[row] = scale;
    }
}

// Every gridDim.x-th row, behind a norm.
__global__ void __maxnreg__(AHEAD_REGISTERS)
    round_many_rows_kernel(const __grid_constant__ round_params p, int rows) {
    let_next_start();
    const int vectors = p.chunks * 2;
    prefetch_floats(reinterpret_cast<const float *>(p.norm), p.chunks * INPUTS, threadIdx.x);
    wait_for_earlier();
    uint4 v[AHEAD_TURNS] = {}, next[AHEAD_TURNS] = {};
    load_row(v, p, blockIdx.x);
    for (int row = blockIdx.x, turn = 0; row < rows; row += gridDim.x, turn ^= 1) {
        int after = row + gridDim.x;
        if (after < rows) load_row(next, p, after);
        float sum = 0;
#pragma unroll
        for (int t = 0; t < AHEAD_TURNS; t++) sum += sum_of_squares(v[t]);
        float scale = rsqrtf(row_sum(sum, turn) / (vectors * AHEAD_INPUTS) + p.eps);
#pragma unroll
        for (int t = 0; t < AHEAD_TURNS; t++) {
            int i = t * blockDim.x + threadIdx.x;
            if (i < vectors) v[t] = norm_eight(v[t], scale, p.norm + i * 2);
        }
        store_row(v, p, row);
#pragma unroll
        for (int t = 0; t < AHEAD_TURNS; t++) v[t] = next[t];
    }
}

void launch_many(const round_params &p, uint32_t rows, const cuda_device_info *info,
                 cudaStream_t stream) {
    constexpr int VECTORS = AHEAD_TURNS * 32; // of a warp
    int threads = (p.chunks * 2 + VECTORS - 1) / VECTORS * 32;
    auto blocks = static_cast<uint32_t>(info->num_sms * (AHEAD_RESIDENT / threads));
    launch_dependent(round_many_rows_kernel, dim3(blocks < rows ? blocks : rows),
                     static_cast<unsigned>(threads), 0, info, stream, p, static_cast<int>(rows));
}

template <int TURNS>
void launch(const round_params &p, bool is_gated, uint32_t rows, int threads,
            const cuda_device_info *info, cudaStream_t stream) {
    auto kernel = is_gated ? round_rows_kernel<TURNS, true> : round_rows_kernel<TURNS, false>;
    launch_dependent(kernel, dim3(rows), threads, 0, info, stream, p);
}

} // namespace

extern "C" void cuda_round_rows_launch(const struct cuda_rounded_rows *to,
                                       const struct cuda_few_rows_linear *args, const void *gate_up,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    round_params p = {};
    p.x = static_cast<const uint4 *>(gate_up ? gate_up : args->x);
    p.norm = reinterpret_cast<const float4 *>(args->norm);
    p.codes = static_cast<uint4 *>(to->codes);
    p.scales = to->scales;
    p.chunks = static_cast<int>(args->linear.in / INPUTS);
    p.scales_stride = static_cast<int>(to->scales_stride);
    p.eps = args->eps;
    int threads = p.chunks < THREADS_MAX ? (p.chunks + 31) / 32 * 32 : THREADS_MAX;
    bool is_gated = gate_up != nullptr;
    if (p.norm && args->rows >= CUDA_E4M3_MANY_ROWS && args->linear.in <= CUDA_E4M3_MANY_INPUTS) {
        return launch_many(p, args->rows, info, stream);
    }
    if (p.chunks <= threads) {
        launch<1>(p, is_gated, args->rows, threads, info, stream);
    } else if (p.chunks <= 2 * threads) {
        launch<2>(p, is_gated, args->rows, threads, info, stream);
    } else {
        launch<TURNS_MAX>(p, is_gated, args->rows, threads, info, stream);
    }
}
