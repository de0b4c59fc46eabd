/* Files for reading, and paths. Files are read, never mapped: other programs may shrink or replace
 * one at any time, and a mapping of a file that shrank ends the process with SIGBUS. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    FILE_PATH_MAX = 4096,
    FILE_READ_MAX = 256 << 20, // bytes of a file that is read whole
};

// A regular file, open. Reading does not change it: threads may share one.
struct file {
    int fd; // -1: closed
    uint64_t size; // bytes, when it was opened
    struct timespec modified; // likewise
    const char *path; // borrowed
};

// A folder, a missing or unreadable file is ERR_IO naming the path and reason.
MUST_USE enum status file_open(struct file *file, const char *path, struct err *err);
void file_close(struct file *file); // a closed one is fine
// All `len` bytes at `offset`. ERR_IO names the file, also where it has become shorter than that.
MUST_USE enum status file_read_at(const struct file *file, uint64_t offset, void *out, size_t len,
                                  struct err *err);
// ERR_IO where the file was written to since it was opened: what was read may be old in one part
// and new in another. One that was replaced or removed is still read as it was.
MUST_USE enum status file_check_unchanged(const struct file *file, struct err *err);
// Appends the whole of a file of at most FILE_READ_MAX bytes, as it is at one time. out->data is
// not NULL then, also for an empty file.
MUST_USE enum status file_read(struct buf *out, const char *path, struct err *err);

// Whether the name of a file or a tensor ends in `suffix`.
bool file_name_ends(const char *name, const char *suffix);
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

#endif
