/* MLX's "quantization" of config.json: {"group_size": 64, "bits": 4, "mode": "affine"}. A key that
 * is a module's name has other sizes for that module, or false: it is not quantized. A module is
 * quantized only if its tensors are. In the modes mxfp4, mxfp8 and nvfp4 codes are floats. */
#ifndef CHECKPOINT_QUANTIZED_MLX_CONFIG_H
#define CHECKPOINT_QUANTIZED_MLX_CONFIG_H

#include "checkpoint/quantized/quantization_config.h"

// After an error `out` may have parts to free.
MUST_USE enum status mlx_config_read(struct quantization_config *out, const json_t *object,
                                     const char *what, struct err *err);

#endif
