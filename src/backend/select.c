#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"

enum status backend_create(struct backend **out, const struct backend_options *options,
                           struct err *err) {
    const char *device = options->device ? options->device : "auto";
    if (strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0) {
        return cpu_backend_create(out, options, err);
    }
    return err_set(err, ERR_INVALID, "unknown device \"%s\" (auto, cpu)", device);
}

void backend_destroy(struct backend *backend) {
    if (backend) backend->ops->destroy(backend);
}
