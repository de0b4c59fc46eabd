/* Files for reading, and paths. Files are read, never mapped: other programs may shrink or replace
 * one at any time, and a mapping of a file that shrank ends the process with SIGBUS. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/text/buf.h"

enum {
    FILE_PATH_MAX = 4096,
    FILE_READ_MAX = 256 << 20, // bytes of a file that is read whole
};

// An open regular file. Reading does not change the struct, so threads may share one.
struct file {
    int fd; // -1: closed
    uint64_t size; // bytes, when it was opened
    struct timespec modified; // time of its last change, when it was opened
    const char *path; // borrowed
};

// A folder, a missing or unreadable file is ERR_IO naming the path and reason.
MUST_USE enum status file_open(struct file *file, const char *path, struct err *err);
void file_close(struct file *file); // a closed one is fine
// Reads all `len` bytes at `offset`. ERR_IO names the file; a file that became too short is ERR_IO.
MUST_USE enum status file_read_at(const struct file *file, uint64_t offset, void *out, size_t len,
                                  struct err *err);
// ERR_IO where the file was written to since it was opened: the bytes read may mix old and new. A
// file that was replaced or removed is OK: the open one keeps its content.
MUST_USE enum status file_check_unchanged(const struct file *file, struct err *err);
// Appends a whole file of at most FILE_READ_MAX bytes. A file that changes meanwhile is ERR_IO.
// After OK out->data is not NULL, also for an empty file.
MUST_USE enum status file_read(struct buf *out, const char *path, struct err *err);

// Whether the name of a file or a tensor ends in `suffix`.
bool file_name_ends(const char *name, const char *suffix);
bool file_exists(const char *path); // a regular file (or a link to one)
// Sets *present to false only where nothing has that name. A folder, a device, a dangling link or a
// path that cannot be looked up is ERR_IO with the reason, never taken for a file left out.
MUST_USE enum status file_is_present(const char *path, bool *present, struct err *err);
// ERR_FORMAT where the text is a Git LFS pointer, the placeholder of a file that was not fetched.
MUST_USE enum status file_check_lfs(const char *data, size_t len, const char *path,
                                    struct err *err);
bool file_is_folder(const char *path);
// "<folder>/<name>" into `out`; ERR_INVALID when it does not fit.
MUST_USE enum status file_join(char *out, size_t out_size, const char *folder, const char *name,
                               struct err *err);
// Makes every missing folder above the last '/', accessible to this user alone.
MUST_USE enum status file_make_folders(const char *path, struct err *err);

#endif
