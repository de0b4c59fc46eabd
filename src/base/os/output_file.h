/* A file for results, or standard output. Opening fails early and changes nothing. The old content
 * is dropped only with the first result, so that a run that fails to start does not destroy the
 * results of the run before. After the first failed write every later one is refused. */
#ifndef BASE_OUTPUT_FILE_H
#define BASE_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct output_file {
    int fd; // -1: closed
    const char *name; // for messages
    bool is_stdout, emptied, failed;
};

// `path` "-": standard output.
MUST_USE enum status output_file_open(struct output_file *file, const char *path, struct err *err);
// Writes all bytes at once, unbuffered, so that a result can be read as soon as it is written.
// Where only a part gets through (a full disk, a limit), a regular file is cut back to its length
// before.
MUST_USE enum status output_file_write(struct output_file *file, const void *bytes, size_t len,
                                       struct err *err);
// Empties a file that got no result, and closes it. Reports faults that show only at the end
// (quotas, network disks). A file that was never opened (fd -1) is fine; standard output stays
// open.
MUST_USE enum status output_file_close(struct output_file *file, struct err *err);
void output_file_abandon(struct output_file *file); // closes and keeps the old content

#endif
