/* Codes of 8 bits as pairs of bf16, by few integer instructions. A pair has each code's bits where
 * bf16 has its sign and its low bits: the value times a small power of 2, also for subnormals,
 * which matrix instructions keep. Who multiplies makes up for that power. Packed weights
 * (linear/packed.cuh) and the KV cache (attention/kv_codes.cuh) share this. */
#pragma once

#include <stdint.h>

namespace {

// A pair of bf16 from e4m3 has the sign in bit 15, and exponent and mantissa in bits 10 to 4: the
// value times 2^-120.
//
// Four codes as a word. In each half, one code (a) lies where bf16 has it, and the other (b) in the
// bits between: its sign in bit 11, its exponent's high bits in 14 to 12, the rest in 3 to 0.
__host__ __device__ inline uint32_t pack_e4m3(uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
    uint32_t a = a0 | a1 << 16, b = b0 | b1 << 16;
    return (a & 0x00800080u) << 8 | (a & 0x007f007fu) << 4 | (b & 0x00800080u) << 4 |
           (b & 0x00700070u) << 8 | (b & 0x000f000fu);
}

// How a word becomes the pair a, by a mask, and the pair b, by two shifts and masks.
struct pair_bits {
    uint32_t first, second_left, second_right; // masks
    int left, right; // shifts of the word
};
__host__ __device__ constexpr pair_bits e4m3_bits() {
    return {0x87f087f0u, 0x80f080f0u, 0x07000700u, 4, 4};
}

__host__ __device__ __forceinline__ void unpack_pairs(const pair_bits &bits, uint32_t word,
                                                      uint32_t &first, uint32_t &second) {
    first = word & bits.first;
    second = (word << bits.left & bits.second_left) | (word >> bits.right & bits.second_right);
}

// The pair a and the pair b.
__host__ __device__ __forceinline__ void unpack_e4m3(uint32_t word, uint32_t &first,
                                                     uint32_t &second) {
    unpack_pairs(e4m3_bits(), word, first, second);
}

// The two codes of a pair of bf16 from e4m3, as 16 bits.
__host__ __device__ __forceinline__ uint32_t codes_of_e4m3(uint32_t pair) {
    uint32_t codes = (pair >> 8 & 0x00800080u) | (pair >> 4 & 0x007f007fu);
    return (codes & 0xffu) | codes >> 8;
}

} // namespace
