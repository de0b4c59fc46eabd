/* The models of the cache: what `list` shows, and removing them. */
#ifndef HUB_HUB_MODELS_H
#define HUB_HUB_MODELS_H

#include <time.h>

#include "hub/hub_cache.h"

// A snapshot's safetensors, or one of its GGUF files.
struct hub_model {
    char name[HUB_NAME_MAX + HUB_QUANT_MAX]; // "Qwen/Qwen3-0.6B", "acme/tiny-GGUF:Q4_K_M"
    char revision[HUB_REVISION_MAX]; // a branch or a tag, "main" first; else the commit
    char commit[HUB_COMMIT_SIZE]; // both "": no file of the download is whole yet
    uint64_t num_bytes;
    time_t changed_at; // of the snapshot
    bool is_whole; // all files are there
};

struct hub_models {
    struct hub_model *items; // [count], by name
    size_t count, capacity;
};

// A cache that is not there has no models.
MUST_USE enum status hub_models_list(struct hub_models *models, const struct hub_settings *settings,
                                     struct err *err);
void hub_models_fini(struct hub_models *models);

// Removes a model from the cache: all of it; with `revision` (NULL: none) that snapshot; with a
// quant in the name that GGUF file, of all snapshots. Bytes that another snapshot uses stay.
// *num_bytes: how many are free now. ERR_IO: the cache has no such model, or it is being
// downloaded. ERR_INVALID: the text is no name.
MUST_USE enum status hub_models_remove(uint64_t *num_bytes, const struct hub_settings *settings,
                                       const char *text, const char *revision, struct err *err);

#endif
