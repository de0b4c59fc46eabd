/* Linears of e4m3 weights whose checkpoint asks for rounded inputs (matrix_form.rounds_inputs):
 * rows of x become e4m3 too, and the tensor cores multiply codes by codes. linear/round_rows.cu
 * makes the codes of x, cuBLASLt multiplies.
 *
 * cuBLASLt wants the codes of weights as plain rows. A linear has them beside its packed form while
 * all of them take no more than a small part of the device's memory (cuda_e4m3_add_plain). */
#ifndef BACKEND_CUDA_LINEAR_E4M3_H
#define BACKEND_CUDA_LINEAR_E4M3_H

#include "backend/cuda/linear/packed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_E4M3_UNIT = 16, // rows that cuBLASLt takes a multiple of
    CUDA_E4M3_INPUTS = 32768, // most inputs
    // Fewer rows are faster by linear/packed_batch_sm90.cu; where scales are of outputs, and where
    // they are of blocks.
    CUDA_E4M3_ROWS = 65,
    CUDA_E4M3_ROWS_OF_BLOCKS = 33,
};

// Rows of x as codes. A scale is that of a group of CUDA_PACKED_BLOCK inputs of a row, or that of a
// row: the largest magnitude / 448. value = code * scale.
struct cuda_rounded_rows {
    void *codes; // dev [rows][in]
    float *scales; // dev [in / CUDA_PACKED_BLOCK][scales_stride], or [rows]
    uint32_t scales_stride; // 0: a scale for each row
};

static inline uint32_t cuda_e4m3_padded(uint32_t rows) {
    return (rows + CUDA_E4M3_UNIT - 1) / CUDA_E4M3_UNIT * CUDA_E4M3_UNIT;
}
// Scratch memory for a row: its codes and scales, and its result where rows are no multiple of
// CUDA_E4M3_UNIT. `group`: of the weights, CUDA_PACKED_BLOCK or 0.
static inline size_t cuda_e4m3_row_bytes(uint32_t out, uint32_t in, uint32_t group,
                                         bool is_ragged) {
    size_t num_scales = group ? in / group : 1;
    return in + num_scales * sizeof(float) + (is_ragged ? out * sizeof(uint16_t) : 0);
}

// Rounds args->rows rows of args->x, after the RMS norm if args->norm says so. The norm's result is
// rounded to bf16 first, as rows/rms_norm.cu stores it.
void cuda_round_rows_launch(const struct cuda_rounded_rows *to,
                            const struct cuda_few_rows_linear *args,
                            const struct cuda_device_info *info, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
