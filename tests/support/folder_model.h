/* Parts of the model in a folder, opened for a test in one call. */
#ifndef SUPPORT_FOLDER_MODEL_H
#define SUPPORT_FOLDER_MODEL_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"

// model_config_load and weights_open of the checkpoint at `path`.
enum status folder_model_config(struct model_config *config, struct generation_config *generation,
                                const char *path, struct err *err);
enum status folder_model_weights(struct weights **out, const char *path, struct err *err);

#endif
