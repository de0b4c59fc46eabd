/* The rope section of config.json, in its two forms. */
#ifndef CHECKPOINT_ROPE_CONFIG_H
#define CHECKPOINT_ROPE_CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/model_config.h"

// Reads rope_parameters (transformers 5), or rope_theta and rope_scaling (before), from
// config.json's object. A file may have both forms if they agree. `max_position_embeddings` is the
// default of original_max_position_embeddings, `theta_default` that of rope_theta. Where
// rope_parameters has an object for each type of layers, the one of `layer_type` is read; NULL: it
// may have none.
MUST_USE enum status rope_config_read(struct rope_config *rope, const json_t *root,
                                      const char *layer_type, uint32_t max_position_embeddings,
                                      double theta_default, const char *what, struct err *err);

// The same for layers with a window, of architectures that have another rotary embedding there:
// "sliding_attention" of rope_parameters or, in files from before, one that is not scaled, with
// rope_local_base_freq.
MUST_USE enum status rope_config_read_local(struct rope_config *local, const json_t *root,
                                            uint32_t max_position_embeddings, double theta_default,
                                            const char *what, struct err *err);

// Granite's layer_rope_theta: *out is a theta for each layer, 0: it has no rotary embedding; for
// the caller to free, also after an error. Without the key NULL.
MUST_USE enum status rope_config_read_thetas(double **out, const json_t *root, uint32_t num_layers,
                                             const char *what, struct err *err);

#endif
