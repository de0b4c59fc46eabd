/* Where numbers of each kind of KV cache lie (attention_kernels.h has the layouts), for kernels
 * that are written once for all kinds. `part` says what the first of two neighbours along the
 * summed index is. A header of vectors, which has enum vector_part, was included before. */
#ifndef BACKEND_CPU_ATTENTION_ATTENTION_PART_H
#define BACKEND_CPU_ATTENTION_ATTENTION_PART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

// Whether numbers are bytes, with a scale for each position.
static ALWAYS_INLINE bool has_scales(enum vector_part part) {
    return part == PART_INT8 || part == PART_E4M3;
}

// Bytes of a line of `lanes` numbers, or pairs of bf16.
static ALWAYS_INLINE size_t line_bytes(size_t lanes, enum vector_part part) {
    return has_scales(part) ? lanes : lanes * sizeof(float);
}

// Bytes from a number to its neighbour.
static ALWAYS_INLINE size_t second_bytes(size_t lanes, enum vector_part part) {
    return part == PART_BF16_FIRST ? 0 : line_bytes(lanes, part);
}

// Bytes of two neighbours, in `lanes` lanes.
static ALWAYS_INLINE size_t pair_bytes(size_t lanes, enum vector_part part) {
    return second_bytes(lanes, part) + line_bytes(lanes, part);
}

static ALWAYS_INLINE enum vector_part second_part(enum vector_part part) {
    return part == PART_BF16_FIRST ? PART_BF16_SECOND : part;
}

#endif
