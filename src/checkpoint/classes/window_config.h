/* The keys of config.json that limit which tokens a query sees: sliding_window, use_sliding_window,
 * max_window_layers, layer_types. */
#ifndef CHECKPOINT_WINDOW_CONFIG_H
#define CHECKPOINT_WINDOW_CONFIG_H

#include <jansson.h>

#include "base/err.h"
#include "checkpoint/model_config.h"

// Sets sliding_window and is_sliding. architecture and num_layers must be set before.
MUST_USE enum status window_config_read(struct model_config *config, const json_t *root,
                                        const char *what, struct err *err);

#endif
