/* bitsandbytes' two forms.
 *
 *   4 bits    an index into 16 floats (nf4 or fp4), times the scale of a block of 64 inputs; the
 *             first of a byte's two codes is in its high half. Scales may be stored as codes of 8
 *             bits with a scale for 256 of them, and an offset ("double quantization").
 *   LLM.int8  8-bit integers, and for each output 127 times its scale ("SCB") */
#ifndef CHECKPOINT_QUANTIZED_BITSANDBYTES_H
#define CHECKPOINT_QUANTIZED_BITSANDBYTES_H

#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/quantized/quantized_module.h"

MUST_USE enum status bitsandbytes_config_read(struct quantization_config *out, const json_t *object,
                                              const char *what, struct err *err);
// Checks the tensors of a matrix of 4 bits, whose rows and cols are set, and fills in the rest.
MUST_USE enum status bitsandbytes_load(struct quantized_matrix *matrix,
                                       struct quantized_module *module, struct err *err);

#endif
