/* MLX's "quantization" of config.json: {"group_size": 64, "bits": 4, "mode": "affine"}. A key that
 * is a module's name has other sizes for that module, or false: it is not quantized. A module is
 * quantized only if its tensors are.
 *
 * Which classes: those whose tensors mlx-lm keeps as they were published, but for the experts
 * (tensor_table.h). Of others it changes names or numbers, such as a norm's weights by one. */
#ifndef CHECKPOINT_QUANTIZED_MLX_CONFIG_H
#define CHECKPOINT_QUANTIZED_MLX_CONFIG_H

#include "checkpoint/quantized/quantization_config.h"

// `root`: of config.json, with "architectures". After an error `out` may have parts to free.
MUST_USE enum status mlx_config_read(struct quantization_config *out, const json_t *object,
                                     const json_t *root, const char *what, struct err *err);

#endif
