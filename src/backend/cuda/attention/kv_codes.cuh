/* The KV cache in 8-bit codes, e4m3 or integers of -127 to 127: how they are made, and what kernels
 * make of them. Each key and each value has a scale, the head's largest magnitude / 448 or 127,
 * rounded to bf16. So no range has to be known beforehand, and a token's codes depend on no other
 * token.
 *
 * A tile has its codes, then a scale for each position: [16][head_dim] bytes, float [16]. A row is
 * swizzled in chunks of 16 bytes, so that 8 rows of one column fall into 8 different banks. The
 * element of an even dimension and the next one share 16 bits (code_pairs.cuh): a word of a row
 * becomes two pairs of even and of odd dimensions. A word that a transposing load makes of two
 * positions becomes the same dimension at both positions.
 *
 * Decodes do not multiply pairs. Scores are multiplied by their keys' scales, weights by their
 * values'. Prompts multiply pairs, once a tile.
 * A pair of bf16 is the code times 2^-120 (e4m3) or 2^-133 (integers). Scales are stored with the
 * inverse, less CODE_SHIFT: that much queries and results are multiplied by, so that no sum of
 * products leaves float32's range. */
#pragma once

#include <cuda_fp8.h>

#include "backend/cuda/code_pairs.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr float CODE_SHIFT = 0x1p64f;

struct kv_codec {
    pair_bits bits;
    float largest; // magnitude of a code
    float unit; // what scales are stored with
};

// Sign and magnitude: a has the sign in bit 15, b in bit 14 and its magnitude in 13 to 7.
__host__ __device__ constexpr pair_bits integer_bits() {
    return {0x807f807fu, 0x80008000u, 0x007f007fu, 1, 7};
}

inline kv_codec kv_codec_of(enum dtype dtype) {
    if (dtype == DTYPE_F8_E4M3) return {e4m3_bits(), 448, 0x1p56f};
    return {integer_bits(), 127, 0x1p69f};
}

__device__ __forceinline__ bool has_integers(const kv_codec &codec) {
    return codec.largest == 127;
}

// Bytes of the keys, or the values, of a tile; where its scales begin.
template <int D, bool CODES>
constexpr int KV_TILE_BYTES = CODES ? 16 * D + CUDA_KV_SCALES_BYTES : 16 * D * 2;
template <int D> constexpr int KV_SCALES_AT = 16 * D;

// Where chunk c (16 bytes) of position p is within its row of D codes.
template <int D> __device__ __forceinline__ int swizzle_codes(int p, int c) {
    return D % 128 == 0 ? c ^ (p & 7) : D % 128 == 64 ? c ^ (p >> 1 & 3) : c ^ (p >> 2 & 1);
}

// Byte offset of chunk 2 k + half in a tile's row of codes; as chunk_offset() for bf16.
template <int D> __device__ __forceinline__ uint32_t code_offset(int row, int k, int half) {
    constexpr int PERIOD = D % 128 == 0 ? 8 : D % 128 == 64 ? 4 : 2;
    return swizzle_codes<D>(row, k * 2 % PERIOD + half) * 16 + k * 2 / PERIOD * PERIOD * 16;
}

// The larger magnitude of a pair of bf16, as bits. They order like the magnitudes; inf and NaN come
// last.
__device__ __forceinline__ uint32_t largest_bits(uint32_t pair) {
    return max(pair << 16 & 0x7fff0000u, pair & 0x7fff0000u);
}

// The factor that makes codes of a head's elements, and its scale. Not finite: the scale is NaN.
struct head_scale {
    float inverse, stored;

    __device__ __forceinline__ head_scale(const kv_codec &codec, uint32_t bits) {
        constexpr uint32_t INFINITE = 0x7f800000u, TINY = 0x03800000u; // 2^-120
        float largest = __uint_as_float(bits);
        bool is_finite = bits < INFINITE;
        float scale = __fdividef(largest * codec.unit, codec.largest);
        stored = is_finite ? __bfloat162float(__float2bfloat16(scale)) : NAN;
        // Rounded down, the scale makes a code beyond the largest, which becomes the largest.
        inverse = is_finite && bits > TINY ? __fdividef(codec.unit, stored) : 0;
    }
};

// Four codes of e4m3, a byte each, in the order of a word: the even ones where bf16 has them.
__device__ __forceinline__ uint32_t arrange_e4m3(uint32_t bytes) {
    return (bytes << 8 & 0x80008000u) | (bytes << 4 & 0x07f007f0u) | (bytes >> 4 & 0x08000800u) |
           (bytes & 0x70007000u) | (bytes >> 8 & 0x000f000fu);
}

// Two numbers, already divided by the scale, in the low 16 bits: two bytes of e4m3, or two integers
// in their places.
__device__ __forceinline__ uint32_t code_pair(const kv_codec &codec, float even, float odd) {
    if (has_integers(codec)) {
        int a = __float2int_rn(even), b = __float2int_rn(odd);
        return (a < 0 ? 0x8000u : 0u) | (b < 0 ? 0x4000u : 0u) | static_cast<uint32_t>(abs(a)) |
               static_cast<uint32_t>(abs(b)) << 7;
    }
    return __nv_cvt_float2_to_fp8x2(make_float2(even, odd), __NV_SATFINITE, __NV_E4M3);
}

// A word of four such numbers, or with two of them in its low half.
__device__ __forceinline__ uint32_t code_word(const kv_codec &codec, uint32_t pairs) {
    return has_integers(codec) ? pairs : arrange_e4m3(pairs);
}

// Eight elements of bf16 as codes.
__device__ __forceinline__ uint2 code_chunk(const kv_codec &codec, const uint4 &v, float inverse) {
    uint32_t pairs[4];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        pairs[i] = code_pair(codec, bf16_low(words[i]) * inverse, bf16_high(words[i]) * inverse);
    }
    return make_uint2(code_word(codec, pairs[0] | pairs[1] << 16),
                      code_word(codec, pairs[2] | pairs[3] << 16));
}

// Four codes of a word as two pairs of bf16, in order, times their scale, which is a pair too.
__device__ __forceinline__ uint2 decoded_codes(const pair_bits &bits, uint32_t word,
                                               uint32_t scale) {
    const __nv_bfloat162 shift = __float2bfloat162_rn(CODE_SHIFT);
    uint32_t pairs[2];
    unpack_pairs(bits, word, pairs[0], pairs[1]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        __nv_bfloat162 v = __hmul2(reinterpret_cast<const __nv_bfloat162 &>(pairs[i]), shift);
        v = __hmul2(v, reinterpret_cast<const __nv_bfloat162 &>(scale));
        pairs[i] = reinterpret_cast<const uint32_t &>(v);
    }
    return make_uint2(__byte_perm(pairs[0], pairs[1], 0x5410),
                      __byte_perm(pairs[0], pairs[1], 0x7632));
}
// A stored scale as such a pair.
__device__ __forceinline__ uint32_t scale_pair(uint32_t stored) {
    return __byte_perm(stored, stored, 0x3232);
}

// Where a head's row of codes and its scale are: in the cache's tile, or in a block's memory.
struct code_row {
    char *codes; // [D]
    float *scale;
    int position; // in the tile, for the swizzle; 0: none
};

// Where a block begins in the keys or the values of a layer, in units of 2 bytes.
__device__ __forceinline__ size_t block_start(int block, uint32_t block_chunks) {
    return (size_t) static_cast<uint32_t>(block) * block_chunks * 8;
}

// The row of slot `slot` in a part of a layer.
template <int D>
__device__ __forceinline__ code_row code_row_of(void *part, int slot, int block_size,
                                                uint32_t block_chunks, int kv_head) {
    int block = slot / block_size, place = slot % block_size;
    uint32_t tile = kv_head * (block_size / 16) + place / 16; // in the block
    char *at = static_cast<char *>(part) + block_start(block, block_chunks) * 2 +
               (size_t)tile * KV_TILE_BYTES<D, true>;
    place %= 16;
    return {at + place * D, reinterpret_cast<float *>(at + KV_SCALES_AT<D>) + place, place};
}

} // namespace
