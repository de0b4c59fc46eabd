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

/* Integers of 4 bits in groups of 64 inputs or more have longer sums where tiles multiply bytes
 * (amx_spans.c). A span is up to four chunks of a group. Its inputs share a scale of x, and their
 * products are added up before they are scaled:
 *
 *   sum += x_scale * (scale * products of (code - 8) + offset * total of x)
 *
 * A product of tiles wants 64 bytes of one kind. So two chunks of x lie side by side: a line of
 * their high bytes, then one of their low bytes, each half in the order above. Behind all chunks,
 * each 64 bytes have the struct span_head of four spans. */
enum { SPAN_SHIFT_MAX = 2 }; // a span has up to 1 << 2 chunks

struct span_head {
    float scale; // NaN if a value is not finite
    float total; // of the integers
    int32_t total_exact;
    int32_t unused;
};

// Whether packed weights are such integers, in groups that are long enough.
static inline bool spans_suit(const struct packed_shape *shape) {
    return shape->code == WEIGHT_CODE_INT4 && shape->span_shift > 0;
}

// Chunks of a span, and their logarithm.
static inline uint32_t spans_shift(const struct packed_shape *shape) {
    uint32_t shift = shape->span_shift, most = SPAN_SHIFT_MAX;
    return shift < most ? shift : most;
}
static inline uint32_t spans_chunks(const struct packed_shape *shape) {
    return 1u << spans_shift(shape);
}

// Lines of 64 bytes of a row of x, before the heads and with them.
static inline uint32_t spans_lines(uint32_t chunks) {
    return (chunks + 1) / 2 * 2;
}

static inline uint32_t spans_all_lines(const struct packed_shape *shape, uint32_t chunks) {
    uint32_t span = spans_chunks(shape), spans = (chunks + span - 1) / span;
    return spans_lines(chunks) + (spans + FIXED_HEADS - 1) / FIXED_HEADS;
}

// Where a row of x is, or what of it begins with a span.
struct span_row {
    const struct packed_shape *shape;
    unsigned char *out; // the row's first line
    size_t stride; // bytes from a line to the next
    uint32_t chunks; // of the row
    uint32_t first; // the chunk that it begins with
};

static inline size_t span_head_at(uint32_t chunks, uint32_t span, size_t stride) {
    return (spans_lines(chunks) + span / FIXED_HEADS) * stride +
           span % FIXED_HEADS * sizeof(struct span_head);
}

#endif
