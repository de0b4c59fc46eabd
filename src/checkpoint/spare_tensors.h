/* Tensors that a model does not take and a checkpoint may have all the same: they say nothing that
 * the model does not know, or nothing at all.
 *
 *   X.rotary_emb.inv_freq   tables that old versions of transformers saved; they follow from
 *                           config.json
 *
 * and of quantized checkpoints
 *
 *   X.k_scale, ...          scales of keys and values, which the KV cache does not need
 *   X.bias, all zeros       AutoGPTQ gave one to every linear that it quantized */
#ifndef CHECKPOINT_SPARE_TENSORS_H
#define CHECKPOINT_SPARE_TENSORS_H

#include <stdbool.h>

#include "checkpoint/quantized/quantization_config.h"
#include "checkpoint/tensor.h"

// Whether the tensor, which was not taken, may remain. Reads a bias. ERR_IO: it cannot be read.
MUST_USE enum status spare_tensor_check(bool *is_spare, const struct tensor *tensor,
                                        const struct quantization_config *config, struct err *err);

#endif
