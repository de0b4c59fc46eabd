/* The "quantization_config" of config.json: in which format a checkpoint's linears are stored. One
 * row here, and one file that reads the format, for each that is supported. */
#ifndef CHECKPOINT_QUANTIZATION_CONFIG_H
#define CHECKPOINT_QUANTIZATION_CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

enum quantization_method {
    QUANTIZED_NOT,
    QUANTIZED_FP8, // fp8_matrix.h
};

struct quantization_config {
    enum quantization_method method;
    uint32_t block_rows, block_cols; // fp8: elements that share a scale; 0: all of a matrix
};

// Reads root's "quantization_config". None: all zero. A format that is not supported is an error
// that names it.
MUST_USE enum status quantization_config_read(struct quantization_config *out, const json_t *root,
                                              const char *what, struct err *err);

#endif
