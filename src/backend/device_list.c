#include "backend/device_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

#define DEVICE_ENTRY(NAME) &device_##NAME,
static const struct device_kind *const devices[] = {DEVICE_LIST(DEVICE_ENTRY)};

uint32_t device_list_count(void) {
    return ARRAY_LEN(devices);
}

const struct device_kind *device_list_get(uint32_t i) {
    return devices[i];
}

// A GPU that is present but broken is an error. Falling back to the CPU would silently make a fast
// machine slow. So only `available` counts.
static const struct device_kind *first_available(void) {
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(devices) && devices[i]->available(NULL)) i++;
    const struct device_kind *kind = devices[i]; // the last one is always there
    CHECK(kind, "device %zu of the list", i);
    return kind;
}

const struct device_kind *device_list_find(const char *device) {
    struct gpu_choice gpus;
    if (!device || strcmp(device, "auto") == 0) return first_available();
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        const struct device_kind *kind = devices[i];
        if (strcmp(device, kind->name) == 0) return kind;
        if (kind->has_numbers && gpu_choice_parse(&gpus, kind->name, device)) return kind;
    }
    return NULL;
}

static enum status refuse_device(const char *device, struct err *err) {
    char names[200] = "auto";
    size_t length = strlen(names);
    for (size_t i = 0; i < ARRAY_LEN(devices) && length < sizeof names; i++) {
        const char *name = devices[i]->name;
        int more = snprintf(names + length, sizeof names - length,
                            devices[i]->has_numbers ? ", %s, %s:N" : ", %s", name, name);
        length += more > 0 ? (size_t)more : 0;
    }
    return err_set(err, ERR_INVALID, "unknown device \"%s\" (%s)", device, names);
}

enum status backend_create(struct backend **out, const struct backend_options *options,
                           struct err *err) {
    const struct device_kind *kind = device_list_find(options->device);
    *out = NULL;
    if (!kind) return refuse_device(options->device ? options->device : "auto", err);
    return kind->create(out, options, err);
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
