/* Linears of e4m3 weights whose checkpoint asks for rounded inputs (matrix_form.rounds_inputs):
 * rows of x become e4m3 too, and the tensor cores multiply codes by codes. linear/round_rows.cu
 * makes the codes, linear/e4m3_sm90.cu multiplies. */
#ifndef BACKEND_CUDA_LINEAR_E4M3_H
#define BACKEND_CUDA_LINEAR_E4M3_H

#include "backend/cuda/linear/packed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_E4M3_ROWS = 128, // most rows of a block; scales have memory for a multiple of it
    CUDA_E4M3_INPUTS = 32768, // most inputs
};

// Rows of x as codes. A scale is that of a group of CUDA_PACKED_BLOCK inputs of a row, or that of a
// row: the largest magnitude / 448. value = code * scale.
struct cuda_rounded_rows {
    void *codes; // dev [rows][in], each 64 inputs in the order of linear/packed.h
    float *scales; // dev [in / CUDA_PACKED_BLOCK][scales_stride], or [rows]
    uint32_t scales_stride; // 0: a scale for each row
};

// How the work is divided among blocks.
struct cuda_e4m3_blocks {
    uint32_t width; // rows of x of a block: 32, 64 or 128
    uint32_t split; // blocks that divide the inputs: 1, 2, 4 or 8
};

// Rows that scales have memory for.
static inline size_t cuda_rounded_padded(uint32_t rows) {
    return (rows + (size_t)CUDA_E4M3_ROWS - 1) / CUDA_E4M3_ROWS * CUDA_E4M3_ROWS;
}
// Bytes that so many rows take. `group`: of the weights, CUDA_PACKED_BLOCK or 0.
static inline size_t cuda_rounded_bytes(uint32_t rows, uint32_t in, uint32_t group) {
    return cuda_rounded_padded(rows) * (in + (group ? in / group : 1) * sizeof(float));
}
// Where they lie in memory that has so many bytes.
static inline struct cuda_rounded_rows cuda_rounded_place(void *memory, uint32_t rows, uint32_t in,
                                                          uint32_t group) {
    size_t padded = cuda_rounded_padded(rows);
    struct cuda_rounded_rows place;
    place.codes = memory;
    place.scales = (float *)(void *)((char *)memory + padded * in);
    place.scales_stride = group ? (uint32_t)padded : 0;
    return place;
}

// Rounds args->rows rows of args->x, after the RMS norm if args->norm says so. The norm's result is
// rounded to bf16 first, as rows/rms_norm.cu stores it.
void cuda_round_rows_launch(const struct cuda_rounded_rows *to,
                            const struct cuda_few_rows_linear *args,
                            const struct cuda_device_info *info, cudaStream_t stream);
// Multiplies; task->x is not used. Returns false if the device refuses the launch.
bool cuda_e4m3_launch(const struct cuda_linear_task *task, const struct cuda_rounded_rows *x,
                      const struct cuda_e4m3_blocks *blocks, const struct cuda_device_info *info,
                      cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
