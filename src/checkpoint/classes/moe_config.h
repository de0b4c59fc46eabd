/* The keys of config.json about a mixture of experts. */
#ifndef CHECKPOINT_MOE_CONFIG_H
#define CHECKPOINT_MOE_CONFIG_H

#include <jansson.h>

#include "base/err.h"
#include "checkpoint/model_config.h"

// Fills config->moe, which model_config_fini frees. architecture, num_layers and intermediate_size
// must be set before. For an architecture without experts the keys are not read.
MUST_USE enum status moe_config_read(struct model_config *config, const json_t *root,
                                     const char *what, struct err *err);

#endif
