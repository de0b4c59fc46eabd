/* Downloads a model into the cache, in huggingface_hub's layout. Needs libcurl; a build without it
 * says so (hub_download_none.c). */
#ifndef HUB_HUB_DOWNLOAD_H
#define HUB_HUB_DOWNLOAD_H

#include <stdint.h>

#include "base/thread/interrupt.h"
#include "hub/hub_cache.h"

// As struct nvllm_download.
struct hub_progress {
    uint64_t num_bytes, total_bytes;
    uint32_t num_files, total_files;
};

struct hub_watch {
    const struct interrupt *interrupt; // NULL: it cannot be interrupted
    void (*on_progress)(const struct hub_progress *progress,
                        void *user_data); // NULL: nobody is told
    void *user_data;
};

bool hub_download_is_built(void);
// Brings the wished files of the newest commit of the revision, and then the ref. What is in the
// cache already is not fetched again. An error or an interrupt leaves what was fetched so far; the
// next call goes on from there.
MUST_USE enum status hub_download(struct hub_settings *settings, const struct hub_wish *wish,
                                  const struct hub_watch *watch, struct err *err);

#endif
