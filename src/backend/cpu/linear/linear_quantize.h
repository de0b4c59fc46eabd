/* Shared by linear_pack.c and linear_quantize.c: rows of a checkpoint as floats, and blocks of
 * 8-bit and 4-bit weights made from them. */
#ifndef BACKEND_CPU_LINEAR_QUANTIZE_H
#define BACKEND_CPU_LINEAR_QUANTIZE_H

#include "backend/cpu/ops.h"

enum {
    SOURCE_LOAD_MAX = 256, // most elements of a row that are converted at a time
    // Most inputs of a quantized linear: a sum of 65536 products, each up to 255 x 127, fits an
    // int32.
    QUANTIZED_DEPTH_MAX = 65536,
};

struct source_row {
    const unsigned char *data; // NULL: padding, all zeros
    enum dtype dtype;
};

// Converts elements begin .. begin + count - 1, at most SOURCE_LOAD_MAX.
void linear_source_load(const struct source_row *row, size_t begin, size_t count, float *out);

// Fills a block of a linear of LINEAR_INT8 or LINEAR_INT4: weights, scales and sums. Threads may
// fill different blocks of a linear at the same time.
void linear_quantize_block(const struct linear *linear, uint32_t block,
                           const struct source_row rows[LANES]);

#endif
