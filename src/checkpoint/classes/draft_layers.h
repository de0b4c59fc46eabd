/* How many layers behind the others a checkpoint has, which draft tokens. They are not loaded. */
#ifndef CHECKPOINT_DRAFT_LAYERS_H
#define CHECKPOINT_DRAFT_LAYERS_H

#include <jansson.h>

#include "base/err.h"
#include "checkpoint/model_config.h"

// Sets config->num_draft_layers. The architecture must be set before.
MUST_USE enum status draft_layers_read(struct model_config *config, const json_t *root,
                                       const char *what, struct err *err);

#endif
