#include "support/folder_model.h"

enum status folder_model_config(struct model_config *config, struct generation_config *generation,
                                const char *path, struct err *err) {
    struct checkpoint *checkpoint = NULL;
    *config = (struct model_config){0};
    enum status status = checkpoint_open(&checkpoint, path, err);
    if (!status) status = model_config_load(config, generation, checkpoint, err);
    checkpoint_close(checkpoint);
    return status;
}

enum status folder_model_weights(struct weights **out, const char *path, struct err *err) {
    struct checkpoint *checkpoint = NULL;
    *out = NULL;
    enum status status = checkpoint_open(&checkpoint, path, err);
    if (!status) status = weights_open(out, checkpoint, err);
    checkpoint_close(checkpoint);
    return status;
}
