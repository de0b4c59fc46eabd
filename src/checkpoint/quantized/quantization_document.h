/* Checkpoints whose config.json does not say that they are quantized, but another document:
 *
 *   hf_quant_config.json   ModelOpt: {"quantization": {"quant_algo": "FP8", ...}}
 *   quantize_config.json   AutoGPTQ: {"bits": 4, "group_size": 128, ...}
 *   quant_config.json      AutoAWQ: {"w_bit": 4, "q_group_size": 128, ...}
 */
#ifndef CHECKPOINT_QUANTIZED_QUANTIZATION_DOCUMENT_H
#define CHECKPOINT_QUANTIZED_QUANTIZATION_DOCUMENT_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantized/quantization_config.h"

// Reads the first of them that there is. None: all zero, as after an error.
MUST_USE enum status quantization_document_read(struct quantization_config *out,
                                                const struct checkpoint *checkpoint,
                                                struct err *err);

#endif
