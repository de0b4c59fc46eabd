/* Products of packed codes and x as 16-bit integers. Codes are not decoded. Of 32 inputs (a chunk
 * of packed.h) their products with x are added up as integers, which is exact, and then
 *
 *   bracket = scale * (products - zero * total of x) + offset * total of x
 *   sum += x_scale * bracket
 *
 * in float32, chunk by chunk in ascending order. A chunk of x has a scale of its own: the largest
 * magnitude / 32639. So x keeps some 15 bits, where bf16 has 8. In groups of 16 inputs the bracket
 * is that of both halves.
 *
 * A chunk of x takes 64 bytes of a tile (kernels.h), whose order follows from the weights':
 *
 *   8 bits   [32 inputs] int16: VPDPWSSD multiplies pairs
 *   4 bits   for each half: high bytes of inputs 0 4 8 12 1 5 9 13 2 6 10 14 3 7 11 15, then their
 *            low bytes, x = 256 * high + low, all with signs: VPDPBUSD multiplies quads
 *
 * Behind the chunks of x, each 64 bytes have the struct fixed_head of four chunks. */
#ifndef BACKEND_CPU_LINEAR_FIXED_H
#define BACKEND_CPU_LINEAR_FIXED_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cpu/linear/packed.h"

enum {
    FIXED_LARGEST = 127 * 256 + 127, // its high and low bytes are both 127
    FIXED_HEADS = 4, // in 64 bytes
    FIXED_CHUNK_BYTES = 64,
};

// Of a chunk of x.
struct fixed_head {
    float scale; // NaN if a value is not finite
    float totals[2]; // of the integers of each half
    float total; // of both
};

// Whether codes are integers, or halves of integers.
static inline bool fixed_suits(enum weight_code code) {
    return code != WEIGHT_CODE_NONE && code != WEIGHT_CODE_E4M3;
}

// With the heads' chunks behind them.
static inline uint32_t fixed_all_chunks(uint32_t chunks) {
    return chunks + (chunks + FIXED_HEADS - 1) / FIXED_HEADS;
}

// Where the head of a chunk is from the row's first byte on. Chunks are `stride` bytes apart.
static inline size_t fixed_head_at(uint32_t chunks, uint32_t chunk, size_t stride) {
    return (chunks + chunk / FIXED_HEADS) * stride +
           chunk % FIXED_HEADS * sizeof(struct fixed_head);
}

#endif
