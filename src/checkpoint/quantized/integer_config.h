/* The "quantization_config" of checkpoints with integers that share a format of packing: GPTQ's and
 * AWQ's, and AutoRound's, which has either. AutoRound's floats are read here too. */
#ifndef CHECKPOINT_QUANTIZED_INTEGER_CONFIG_H
#define CHECKPOINT_QUANTIZED_INTEGER_CONFIG_H

#include "checkpoint/quantized/quantization_config.h"

MUST_USE enum status gptq_config_read(struct quantization_config *out, const json_t *object,
                                      const char *what, struct err *err);
MUST_USE enum status awq_config_read(struct quantization_config *out, const json_t *object,
                                     const char *what, struct err *err);
MUST_USE enum status auto_round_config_read(struct quantization_config *out, const json_t *object,
                                            const char *what, struct err *err);

#endif
