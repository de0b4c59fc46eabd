/* The kernels of linear/few_rows_sm90.cu, in the order in which kernel_table.c asks them: the first
 * that takes a linear has no more tiles than it needs. C and CUDA C++ include this file. */
#ifndef BACKEND_CUDA_LINEAR_FEW_ROWS_KERNELS_H
#define BACKEND_CUDA_LINEAR_FEW_ROWS_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FEW_ROWS_WARPS = 8, // of a block
    FEW_ROWS_TILE = 8, // rows of the matrix that are a tile
    FEW_ROWS_LINE = 64, // inputs that a warp takes at once
};

// KERNEL(LINES, TILES, WORK). LINES: most lines of a warp; every warp has at least LINES - 2.
// TILES: most tiles of a block, gates and their ups being two. WORK, what is around the products:
// PLAIN: the sum with the residual, if any. NORMED: the norm, but no sum. NORMED_GATED: norm and
// SiLU, but neither sum nor biases.
#define FEW_ROWS_SM90_KERNELS(KERNEL)                                                              \
    KERNEL(2, 2, NORMED) /* qkv: up to 16 outputs per multiprocessor */                            \
    KERNEL(2, 4, NORMED) /* up to 32 */                                                            \
    KERNEL(2, 4, NORMED_GATED) /* gate and up: up to 16 outputs of each */                         \
    KERNEL(2, 6, NORMED_GATED) /* up to 24 */                                                      \
    KERNEL(2, 1, PLAIN) /* o and down: up to 8, and up to 1,024 inputs */                          \
    KERNEL(4, 1, PLAIN) /* up to 2,048 */                                                          \
    KERNEL(6, 1, PLAIN) /* up to 3,072 */

#define FEW_ROWS_NUMBER(LINES, TILES, WORK) FEW_ROWS_SM90_##LINES##_##TILES##_##WORK,
enum few_rows_number { FEW_ROWS_SM90_KERNELS(FEW_ROWS_NUMBER) FEW_ROWS_SM90_COUNT };

#define FEW_ROWS_IN_MAX(LINES) ((LINES)*FEW_ROWS_WARPS * FEW_ROWS_LINE)
#define FEW_ROWS_IN_MIN(LINES) (FEW_ROWS_IN_MAX((LINES)-2) + FEW_ROWS_LINE)

// Most shared memory of a block of that kernel, that of its barriers included.
int cuda_linear_few_rows_sm90_bytes(uint32_t number);

#ifdef __cplusplus
}
#endif

#endif
