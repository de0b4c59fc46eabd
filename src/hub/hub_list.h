/* The hub's list of a model's files: the answer to /api/models/<name>/revision/<revision>. */
#ifndef HUB_HUB_LIST_H
#define HUB_HUB_LIST_H

#include "hub/hub_files.h"
#include "hub/hub_name.h"

// Reads the commit and the names, and sorts them. ERR_FORMAT: the text is no such list, or has a
// name that leaves the model's folder, as a hostile hub may send.
MUST_USE enum status hub_list_read(struct hub_files *files, char commit[HUB_COMMIT_SIZE],
                                   const char *json, size_t len, struct err *err);

#endif
