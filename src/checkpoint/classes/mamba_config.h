/* The keys of Mamba-2 layers, which each class calls by other names. */
#ifndef CHECKPOINT_MAMBA_CONFIG_H
#define CHECKPOINT_MAMBA_CONFIG_H

#include "checkpoint/classes/own_config.h"

// Fills in out->is_linear and, if some layer is one, out->mamba.
// An architecture without such layers changes nothing.
MUST_USE enum status mamba_config_read(struct own_config *out, const json_t *root,
                                       const char *architecture, uint32_t num_layers,
                                       const char *what, struct err *err);

#endif
