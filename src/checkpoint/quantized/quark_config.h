/* The "quantization_config" of AMD's Quark: 8-bit floats with a scale for each matrix or row, and
 * MXFP4. Layers may differ from each other in how they round their inputs, outputs and the cache,
 * but not in their weights. */
#ifndef CHECKPOINT_QUANTIZED_QUARK_CONFIG_H
#define CHECKPOINT_QUANTIZED_QUARK_CONFIG_H

#include "checkpoint/quantized/quantization_config.h"

MUST_USE enum status quark_config_read(struct quantization_config *out, const json_t *object,
                                       const char *what, struct err *err);

#endif
