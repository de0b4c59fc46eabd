/* Linears of e4m3 weights whose checkpoint asks for rounded inputs (matrix_form.rounds_inputs):
 * rows of x become e4m3 too, and the tensor cores multiply codes by codes. linear/round_rows.cu
 * makes the codes of x. linear/e4m3_batch_sm90.cu multiplies few rows, cuBLASLt more.
 *
 * Both want the codes of weights as plain rows. Linears have them beside their packed form if all
 * of them take no more than a small part of the memory that is left (cuda_e4m3_keep_plain). Else
 * they are written to scratch memory each time, which only many rows are worth. */
#ifndef BACKEND_CUDA_LINEAR_E4M3_H
#define BACKEND_CUDA_LINEAR_E4M3_H

#include "backend/cuda/linear/packed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_E4M3_UNIT = 16, // rows that cuBLASLt takes a multiple of
    CUDA_E4M3_INPUTS = 32768, // most inputs
    // The most rows of linear/e4m3_batch_sm90.cu. More are faster by cuBLASLt.
    CUDA_E4M3_BATCH_ROWS = 128, // scales of outputs
    CUDA_E4M3_BATCH_ROWS_OF_BLOCKS = 64,
    CUDA_E4M3_ROWS_NOT_PLAIN = 257, // the fewest where codes are written as plain rows first
    // Of x behind a norm: from so many on blocks take several rows (linear/round_rows.cu), if a row
    // has no more than so many inputs.
    CUDA_E4M3_MANY_ROWS = 2048,
    CUDA_E4M3_MANY_INPUTS = 16384,
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
// rounded to bf16 first, as rows/rms_norm.cu stores it. With `gate_up`, dev bf16 [rows][2 in], x is
// silu(first half) * second half, rounded to bf16 too, and args->x is not read.
void cuda_round_rows_launch(const struct cuda_rounded_rows *to,
                            const struct cuda_few_rows_linear *args, const void *gate_up,
                            const struct cuda_device_info *info, cudaStream_t stream);

// The fewest rows of x that are rounded, behind those of linear/packed_few_rows.cu.
static inline uint32_t cuda_e4m3_rows_min(bool has_plain) {
    return has_plain ? CUDA_FEW_ROWS + 1 : CUDA_E4M3_ROWS_NOT_PLAIN;
}

// linear/e4m3_batch_sm90.cu: writes bf16 [task->rows][out] to `out`, or adds it if task->is_added.
// task->linear has `plain`. `split` blocks, 1 to CUDA_BATCH_SPLIT_MAX, divide the inputs among
// them; 0 chooses. Returns false if the device refuses the launch, and clears the error then.
bool cuda_e4m3_batch_launch(const struct cuda_linear_task *task, const struct cuda_rounded_rows *x,
                            void *out, uint32_t split, const struct cuda_device_info *info,
                            cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
