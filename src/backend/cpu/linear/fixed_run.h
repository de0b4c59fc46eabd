/* What a kernel of linear/fixed.h computes at once: some rows of x by a block of outputs. */
#ifndef BACKEND_CPU_LINEAR_FIXED_RUN_H
#define BACKEND_CPU_LINEAR_FIXED_RUN_H

#include "backend/cpu/kernels.h"

struct fixed_run {
    const struct linear_item *item;
    const unsigned char *weights, *x;
    const float *start;
    float *out;
    size_t stride; // bytes from a chunk of x to the next
    uint32_t cols; // outputs that there are
};

static inline struct fixed_run fixed_run_of(const struct linear_item *item, uint32_t block,
                                            uint32_t row, uint32_t rows) {
    uint32_t first = block * LANES, left = item->cols - first;
    size_t row_bytes = (size_t)fixed_all_chunks(item->chunks) * FIXED_CHUNK_BYTES;
    return (struct fixed_run){.item = item,
                              .weights = item->weights + block * item->block_bytes,
                              .x = item->x + row * row_bytes,
                              .start = item->start + first,
                              .out = item->out + row * item->out_stride + first,
                              .stride = (size_t)rows * FIXED_CHUNK_BYTES,
                              .cols = left < LANES ? left : (uint32_t)LANES};
}

#endif
