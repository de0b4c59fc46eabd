/* Matrices of checkpoints in 8-bit floating point: elements of type F8_E4M3 (a sign, 4 bits of
 * exponent, 3 of mantissa; no infinity; 0x7f and 0xff are NaN), and a scale for each block of them:
 *
 *   value[r][c] = element[r][c] * scale[r / block_rows][c / block_cols]
 *
 * Qwen3-*-FP8 and DeepSeek-V3 have blocks of 128 x 128, Ministral 3 and Devstral 2 one scale for
 * each matrix. The scales' name ends in "_scale_inv", although they are factors. */
#ifndef CHECKPOINT_FP8_MATRIX_H
#define CHECKPOINT_FP8_MATRIX_H

#include "base/matrix_reader.h"
#include "checkpoint/quantization_config.h"
#include "checkpoint/safetensors.h"

// Reads and checks the scales. `elements` is borrowed for the reader's life; `path`: the file that
// errors name. The caller frees *out.
MUST_USE enum status fp8_matrix_open(struct matrix_reader **out, const struct tensor *elements,
                                     const struct tensor *scales,
                                     const struct quantization_config *config, const char *path,
                                     struct err *err);

#endif
