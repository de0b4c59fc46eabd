/* Codes of linear/packed.h and their conversion to pairs of bf16 in registers. The packing is here
 * too, next to what it must agree with. */
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/linear/packed.h"

namespace {

// A pair of bf16 from e4m3 has the sign in bit 15, and exponent and mantissa in bits 10 to 4: the
// value times 2^-120, also for subnormals. PACKED_X_SCALE times x, and PACKED_SUM_SCALE times the
// sums, make up for it. Both are powers of 2, and exact.
constexpr float E4M3_SCALE = 0x1p120f, PACKED_X_SCALE = 0x1p64f, PACKED_SUM_SCALE = 0x1p56f;

// Four codes as a word. In each half, one code (a) lies where bf16 has it, and the other (b) in the
// bits between: its sign in bit 11, its exponent's high bits in 14 to 12, the rest in 3 to 0.
__host__ __device__ inline uint32_t pack_e4m3(uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
    uint32_t a = a0 | a1 << 16, b = b0 | b1 << 16;
    return (a & 0x00800080u) << 8 | (a & 0x007f007fu) << 4 | (b & 0x00800080u) << 4 |
           (b & 0x00700070u) << 8 | (b & 0x000f000fu);
}

// The pair a and the pair b.
__host__ __device__ __forceinline__ void unpack_e4m3(uint32_t word, uint32_t &first,
                                                     uint32_t &second) {
    first = word & 0x87f087f0u;
    second = (word << 4 & 0x80f080f0u) | (word >> 4 & 0x07000700u);
}

// Eight 4-bit codes as a word. Pair p has the inputs 8 p and 8 p + 1.
__host__ __device__ inline uint32_t pack_u4(const uint8_t *codes) {
    uint32_t word = 0;
    for (int p = 0; p < 4; p++) {
        word |= static_cast<uint32_t>(codes[p * 8]) << p * 4;
        word |= static_cast<uint32_t>(codes[p * 8 + 1]) << (p * 4 + 16);
    }
    return word;
}

// The pairs as 128 + code: the codes are the low bits of bf16's mantissa.
constexpr float U4_OFFSET = 128;
__host__ __device__ __forceinline__ void unpack_u4(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t CODES = 0x000f000f, OFFSET = 0x43004300;
    pairs[0] = (word & CODES) | OFFSET;
    pairs[1] = (word >> 4 & CODES) | OFFSET;
    pairs[2] = (word >> 8 & CODES) | OFFSET;
    pairs[3] = (word >> 12 & CODES) | OFFSET;
}

// A group's word.
__host__ __device__ inline uint32_t pack_group(uint32_t scale_bits, uint32_t zero) {
    return (scale_bits + 0x80u & 0xffffff00u) | zero;
}
__device__ __forceinline__ float group_scale(uint32_t word) {
    return __uint_as_float(word & 0xffffff00u);
}
// The group's zero plus U4_OFFSET, exact: 2^23 + zero is a float.
__device__ __forceinline__ float group_zero(uint32_t word) {
    return __uint_as_float(0x4b000000u | (word & 0xffu)) - (0x1p23f - U4_OFFSET);
}

// Parameters of a kernel. GROUPS: words of scales that a lane needs for a tile and 128 inputs. 0:
// scales are of whole rows.
template <int BITS_, int GROUPS_> struct packed_kind {
    static constexpr int BITS = BITS_, GROUPS = GROUPS_, WORDS = GROUPS ? GROUPS : 1;
    static constexpr int STEP = BITS == 8 ? 64 : 128; // inputs
    static_assert(BITS == 4 || GROUPS <= 1, "e4m3 has a scale for a row or a block");
};

// Scales of a view, as kernels read them.
struct packed_scales {
    const uint32_t *words;
    const float *rows; // of whole rows; NULL: none
    int blocks; // of 128 inputs
    bool is_shared;
};
inline packed_scales packed_scales_of(const cuda_linear_view &v) {
    bool is_of_rows = v.bits == 8 && !v.group;
    return {is_of_rows ? nullptr : static_cast<const uint32_t *>(v.scales),
            is_of_rows ? static_cast<const float *>(v.scales) : nullptr,
            static_cast<int>(v.in / CUDA_PACKED_BLOCK), v.shares_scales};
}

// The words of this lane's output of a tile, for block number `block` of 128 inputs.
template <typename K>
__device__ __forceinline__ void load_scales(uint32_t (&to)[K::WORDS], const packed_scales &s,
                                            int tile, int block, int lane) {
    if constexpr (K::GROUPS == 0) {
        to[0] = 0;
    } else if constexpr (K::BITS == 8) {
        int at = tile * s.blocks + block;
        to[0] = __ldg(s.words + (s.is_shared ? at : at * CUDA_PACKED_TILE + lane / 4));
    } else {
        size_t at = static_cast<size_t>(tile * s.blocks + block) * CUDA_PACKED_TILE + lane / 4;
        const uint32_t *from = s.words + at * K::GROUPS;
        if constexpr (K::GROUPS == 1) to[0] = __ldcs(from);
        if constexpr (K::GROUPS == 2) {
            uint2 two = __ldcs(reinterpret_cast<const uint2 *>(from));
            to[0] = two.x, to[1] = two.y;
        }
        if constexpr (K::GROUPS == 4) {
            uint4 four = __ldcs(reinterpret_cast<const uint4 *>(from));
            to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        }
    }
}

} // namespace
