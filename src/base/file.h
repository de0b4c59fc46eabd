/* Files: whole-file read-only mappings and path joining. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct file_map {
    const char *data; // [size]; never NULL after open, also for an empty file
    size_t size; // bytes
};

// Maps a regular file. A folder, a missing or unreadable file is ERR_IO naming the path and reason.
MUST_USE enum status file_map_open(struct file_map *map, const char *path, struct err *err);
void file_map_close(struct file_map *map); // a zeroed map is fine

bool file_exists(const char *path); // a regular file (or a link to one)
// *present is false only where nothing has that name. A folder, a device, a link to nothing or a
// path that cannot be looked at is ERR_IO saying so: never the same as an optional file left out.
MUST_USE enum status file_is_present(const char *path, bool *present, struct err *err);
// ERR_FORMAT where the text is what Git LFS leaves in place of a file that was not fetched.
MUST_USE enum status file_check_lfs(const char *data, size_t len, const char *path,
                                    struct err *err);
bool file_is_folder(const char *path);
// "<folder>/<name>" into `out`; ERR_INVALID when it does not fit.
MUST_USE enum status file_join(char *out, size_t out_size, const char *folder, const char *name,
                               struct err *err);
// Every folder above the last '/' that is not there, for this user alone.
MUST_USE enum status file_make_folders(const char *path, struct err *err);

enum { FILE_PATH_MAX = 4096 };

#endif
