/* A model by its name: finds where it lies, and downloads it where the caller asks for that. A
 * folder or a file of that name comes first, then the cache of huggingface_hub, then the hub. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include <stdbool.h>

#include "base/os/file.h"
#include "hub/hub_download.h"

struct hub_request {
    const char *model; // a path or a name
    const char *revision, *quant; // NULL: none
    enum hub_want want;
    bool download; // what the cache lacks
};

// Puts the folder or the GGUF file into `path`. A text that is no name, and a name that exists as a
// path, is its own path: opening it says what is wrong with it. ERR_IO: the cache has no such
// model, or it could not be downloaded. ERR_INVALID: revision or quant beside a path. `watch` may
// be NULL.
MUST_USE enum status hub_find(char path[FILE_PATH_MAX], const struct hub_request *request,
                              const struct hub_watch *watch, struct err *err);

// Downloads the newest commit of a model's revision, and puts its place into `path`. *is_new: the
// cache did not have it whole before. ERR_INVALID: request->model is no name.
MUST_USE enum status hub_pull(char path[FILE_PATH_MAX], bool *is_new,
                              const struct hub_request *request, const struct hub_watch *watch,
                              struct err *err);

#endif
