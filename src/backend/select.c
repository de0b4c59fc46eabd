#include "backend/select.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/gpu_choice.h"

enum status backend_create(struct backend **out, const struct backend_options *options,
                           struct err *err) {
    const char *device = options->device ? options->device : "auto";
    struct gpu_choice gpus;
    if (strcmp(device, "cpu") == 0) return cpu_backend_create(out, options, err);
    if (strcmp(device, "auto") == 0) {
        // A GPU that is present but broken is an error. Falling back to the CPU would silently make
        // a fast machine slow.
        return select_cuda_available(NULL) ? cpu_backend_create(out, options, err)
                                           : select_cuda_create(out, options, err);
    }
    if (gpu_choice_parse(&gpus, device)) return select_cuda_create(out, options, err);
    return err_set(err, ERR_INVALID, "unknown device \"%s\" (auto, cuda, cuda:N, cpu)", device);
}

void backend_destroy(struct backend *backend) {
    if (backend) backend->ops->destroy(backend);
}

enum { HOST_ALIGNMENT = 64 };

enum status backend_alloc_host(struct backend *backend, size_t bytes, void **host,
                               struct err *err) {
    if (backend->queue) return backend->queue->alloc_host(backend, bytes, host, err);
    size_t rounded = (bytes + HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT;
    *host = aligned_alloc(HOST_ALIGNMENT, rounded ? rounded : HOST_ALIGNMENT);
    if (!*host) return err_set(err, ERR_NOMEM, "out of memory: %zu bytes", bytes);
    return OK;
}

void backend_release_host(struct backend *backend, void *host) {
    if (backend->queue) {
        backend->queue->release_host(backend, host);
    } else {
        free(host);
    }
}
