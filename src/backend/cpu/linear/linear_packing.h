/* The formats in which this backend keeps weights: how a block is packed from rows of a checkpoint,
 * and how an output's weights are read again. A format of fewer bits than 16 also has a case in the
 * kernels' inner loop (linear_dots.h, amx_linear.c). */
#ifndef BACKEND_CPU_LINEAR_LINEAR_PACKING_H
#define BACKEND_CPU_LINEAR_LINEAR_PACKING_H

#include "backend/cpu/ops.h"

enum {
    SOURCE_LOAD_MAX = 256, // most elements of a row that are converted at a time
    // Most inputs of a quantized linear: a sum of 65536 products, each up to 255 x 127, fits an
    // int32.
    QUANTIZED_DEPTH_MAX = 65536,
    INT4_ZERO = 7,
};

struct source_row {
    const unsigned char *data; // NULL: padding, all zeros
    enum dtype dtype;
    // Of packed weights, whose data is a code a byte: of each group, as in struct matrix_codes.
    const float *scales, *offsets;
    const int8_t *scale_multiples, *offset_multiples;
};

struct linear_packing {
    struct weight_format format; // packed: any
    // Fills a block: weights and, where x is bytes, scales and sums. Threads may fill different
    // blocks of a linear at the same time.
    void (*pack_block)(const struct cpu_kernels *kernels, const struct linear *linear,
                       uint32_t block, const struct source_row rows[LANES]);
    // out[k] = the weight of input k, k < linear->in.
    void (*load_output)(const struct linear *linear, uint32_t output, float *out);
};

// NULL: there is no such format.
const struct linear_packing *linear_packing_of(struct weight_format format);

// Converts elements begin .. begin + count - 1, at most SOURCE_LOAD_MAX.
void linear_source_load(const struct source_row *row, size_t begin, size_t count, float *out);

// linear_packed.c
bool linear_has_packed(struct weight_format format);
void linear_pack_packed(const struct cpu_kernels *kernels, const struct linear *linear,
                        uint32_t block, const struct source_row rows[LANES]);
void linear_load_packed(const struct linear *linear, uint32_t output, float *out);

// linear_quantize.c
void linear_pack_int8(const struct cpu_kernels *kernels, const struct linear *linear,
                      uint32_t block, const struct source_row rows[LANES]);
void linear_pack_int4(const struct cpu_kernels *kernels, const struct linear *linear,
                      uint32_t block, const struct source_row rows[LANES]);

#endif
