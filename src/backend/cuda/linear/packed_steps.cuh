/* What linear/packed_few_rows.cu and experts/packed_few_tokens.cu share: the products of two tiles
 * of codes with up to 8 rows of x in shared memory, by mma.sync.
 *
 * A step is 512 bytes of each tile. The tiles are the halves of the instruction's left operand, and
 * rows of x its columns. Codes are converted to bf16 in registers. Scales multiply the sums of a
 * group in float32, so a weight is never rounded. Offsets, and the zeros of 4-bit codes, are added
 * as a factor of the sum of the group's x. */
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/cuda/linear/packed.cuh"

namespace {

constexpr int STEP_ROWS = 8; // of x
// Bytes between rows of x' in shared memory beyond its own: 8 lanes that read 16 bytes of two rows
// hit different banks.
constexpr int X_PAD = 64;

struct packed_matrix {
    const uint4 *codes;
    packed_scales scales;
    int tiles, steps; // steps of a tile
};
inline packed_matrix packed_matrix_of(const cuda_linear_view &v) {
    return {static_cast<const uint4 *>(v.weight), packed_scales_of(v),
            static_cast<int>(v.out / CUDA_PACKED_TILE),
            static_cast<int>(v.in / cuda_packed_step(weight_code_bits(v.code)))};
}

// What a lane loads for a step: of the first tile and of the second.
template <typename K> struct step_loads {
    uint4 codes[2];
    uint32_t scales[2][K::LANE_WORDS];
};

// Where this lane's codes and scales are. Steps are numbered through all tiles: step `s` of a tile
// is tile * steps + s.
template <typename K> struct step_source {
    const uint4 *codes; // of the first step
    lane_scales<K> scales;

    __device__ __forceinline__ step_source(const packed_matrix &m, int lane)
        : codes(m.codes + lane), scales(m.scales, lane) {
        // Addresses are computed from these; else the compiler adds the lane at each step.
        asm volatile("" : "+l"(codes), "+l"(scales.words));
    }
    // `low`: the step of the first tile.
    __device__ __forceinline__ void load(step_loads<K> &to, int low, int high) const {
        const int numbers[2] = {low, high};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            to.codes[half] = __ldcs(codes + static_cast<ptrdiff_t>(numbers[half]) * 32);
            scales.load(to.scales[half], numbers[half] / (K::SPAN / K::STEP));
        }
    }
};

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
        store_float(sums + (chunk / LANES * STEP_ROWS + row) * 4, sum);
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

// Shared memory of rows of x' and the sums of their groups.
inline size_t packed_x_bytes(size_t rows, size_t in, weight_code code, uint32_t group,
                             bool has_offsets) {
    bool has_sums = has_offsets || code == WEIGHT_CODE_INT4;
    return rows * (in * 2 + X_PAD) + (has_sums ? in / group * STEP_ROWS * sizeof(float) : 0);
}
inline size_t packed_x_bytes(size_t rows, const cuda_linear_view &v) {
    return packed_x_bytes(rows, v.in, v.code, v.group, v.has_offsets);
}

// Lets blocks have all shared memory of a multiprocessor, static_bytes of it static.
template <typename P>
void allow_shared_memory(void (*kernel)(P), size_t static_bytes, const cuda_device_info *info) {
    prefer_shared_memory(kernel, info);
    allow_shared_bytes(kernel, info->shared_bytes_max - static_cast<int>(static_bytes), info);
}

// Launches `blocks` blocks of `threads`, one on each multiprocessor, with `bytes` of shared memory
// besides static_bytes.
template <typename P>
void launch_packed(void (*kernel)(P), const P &p, int blocks, unsigned threads, size_t bytes,
                   size_t static_bytes, const cuda_device_info *info, cudaStream_t stream) {
    allow_shared_memory(kernel, static_bytes, info);
    launch_dependent(kernel, dim3(static_cast<unsigned>(blocks)), threads, bytes, info, stream, p);
}

} // namespace
