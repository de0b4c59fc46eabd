/* The tensors of a linear that is stored in another format than BF16, F16 or F32, and the reader
 * that they make. A format is a function of quantized_module.c that checks its tensors and brings
 * them into the one form of quantized_matrix.h. */
#ifndef CHECKPOINT_QUANTIZED_QUANTIZED_MODULE_H
#define CHECKPOINT_QUANTIZED_QUANTIZED_MODULE_H

#include "base/matrix_reader.h"
#include "checkpoint/quantized/quantization_config.h"
#include "checkpoint/tensor.h"

enum module_part {
    PART_WEIGHT,
    PART_WEIGHT_SCALE_INV,
    PART_WEIGHT_SCALE,
    PART_WEIGHT_SCALE_2,
    PART_WEIGHT_GLOBAL_SCALE,
    PART_WEIGHT_PACKED,
    PART_WEIGHT_SHAPE,
    PART_WEIGHT_ZERO_POINT,
    PART_WEIGHT_G_IDX,
    PART_QWEIGHT,
    PART_QZEROS,
    PART_SCALES,
    PART_BIASES,
    PART_GLOBAL_SCALE,
    PART_G_IDX,
    PART_WEIGHT_ABSMAX,
    PART_WEIGHT_MAP,
    PART_WEIGHT_NESTED_ABSMAX,
    PART_WEIGHT_NESTED_MAP,
    PART_WEIGHT_STATE_NF4,
    PART_WEIGHT_STATE_FP4,
    PART_SCB,
    PART_WEIGHT_FORMAT,
    // These say how inputs are rounded. They are not rounded here, so the results are only closer.
    PART_ACTIVATION_SCALE,
    PART_INPUT_SCALE,
    PART_INPUT_ZERO_POINT,
    PART_INPUT_GLOBAL_SCALE,
    NUM_MODULE_PARTS,
};

struct quantized_module {
    const char *name; // "model.layers.0.mlp.up_proj"; borrowed, as the tensors
    uint64_t out, in;
    const struct tensor *parts[NUM_MODULE_PARTS]; // NULL: there is none
    bool is_used[NUM_MODULE_PARTS]; // set by quantized_module_open
    struct tensor own_scales; // an expert's, where a tensor has those of all: a part may be this
};

const char *module_part_name(enum module_part part); // "weight_scale"

// The reader has the values [out][in]. The caller closes it; the tensors' files must live as long.
MUST_USE enum status quantized_module_open(struct matrix_reader **out,
                                           struct quantized_module *module,
                                           const struct quantization_config *config,
                                           struct err *err);

// The form that the reader will have, without reading the codes.
MUST_USE enum status quantized_module_form(struct matrix_form *out,
                                           const struct quantized_module *module,
                                           const struct quantization_config *config,
                                           struct err *err);

// quantized_columns.c: tensors that are packed across the outputs. `matrix` gets codes, scales and
// zeros, row by row.
struct quantized_matrix;
MUST_USE enum status quantized_columns_load(struct quantized_matrix *matrix,
                                            const struct quantized_module *module,
                                            const struct quantization_config *config,
                                            struct err *err);
// Code `index` of those that follow each other in words, the first in the low bits; a code may be
// in two. A word is at words[i * stride].
uint32_t quantized_code_at(const uint32_t *words, uint64_t stride, uint64_t index, uint32_t bits);

#endif
