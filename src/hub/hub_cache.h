/* The cache of models that huggingface_hub keeps and this program shares:
 *
 *     models--Qwen--Qwen3-0.6B/
 *         refs/main                       the commit that "main" is
 *         snapshots/<commit>/config.json  -> ../../blobs/<etag>
 *         blobs/<etag>                    the bytes, named by their hash
 *         .unfinished/<commit>            ours: the texts of a download that has not ended
 *     .locks/models--Qwen--Qwen3-0.6B/<etag>.lock
 *
 * A file is read only where it lies in the cache: a link that leads out of it is refused. Nothing
 * is written here. */
#ifndef HUB_HUB_CACHE_H
#define HUB_HUB_CACHE_H

#include "base/os/file.h"
#include "hub/hub_files.h"
#include "hub/hub_name.h"
#include "hub/hub_settings.h"

struct hub_wish {
    const struct hub_name *name;
    const char *revision; // NULL: main
    const char *quant; // "": none
    enum hub_want want;
};

#define HUB_UNFINISHED_FOLDER ".unfinished"

// Finds the model: *is_found, and the folder of its snapshot or its GGUF file in `path`. Not found:
// err->message says what is missing (`err` may not be NULL), and the status is OK. ERR_INVALID: a
// file leads out of the cache.
MUST_USE enum status hub_cache_find(char path[FILE_PATH_MAX], bool *is_found,
                                    const struct hub_settings *settings,
                                    const struct hub_wish *wish, struct err *err);
// Lists the files below a folder, as "name" and "folder/name", in the order of their names.
MUST_USE enum status hub_cache_list_files(struct hub_files *files, const char *folder,
                                          struct err *err);
// Reads the commit in refs/<revision>. False: there is none.
bool hub_cache_read_ref(char commit[HUB_COMMIT_SIZE], const char *folder, const char *revision);

#endif
