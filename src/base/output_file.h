/* A file that results go to, or standard output. Opening fails early and touches nothing; the old
 * content is dropped only when the first result is there, so that a run that fails to start does
 * not destroy the last one's results. The first failed write is kept and every later one refused.
 */
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
// Everything, at once, unbuffered: a result that was written can be read. Where it does not get
// whole (a full disk, a limit), what is there of it is cut off again, in a file that can be cut.
MUST_USE enum status output_file_write(struct output_file *file, const void *bytes, size_t len,
                                       struct err *err);
// Empties a file that got no result, and closes; faults that show only now (quotas, network disks)
// are reported. A file that was never opened (fd -1) is fine; standard output stays open.
MUST_USE enum status output_file_close(struct output_file *file, struct err *err);
void output_file_abandon(struct output_file *file); // closes and keeps the old content

#endif
