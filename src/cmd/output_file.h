/* A file that results go to, or standard output. Opening fails early and touches nothing; the old
 * content is dropped only when the first result is there, so that a run that fails to start does
 * not destroy the last one's results. The first failed write is kept and every later one refused.
 */
#ifndef CMD_OUTPUT_FILE_H
#define CMD_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct output_file {
    int fd; // -1: closed
    const char *name; // for messages
    bool is_stdout, emptied, failed;
};

// ERR_INVALID where `path` is one of the *.json, *.jinja and *.safetensors files that the folder
// `model` has now, under this or another name. Opens nothing.
MUST_USE enum status output_file_spare_model(const char *path, const char *model, struct err *err);
// `path` "-": standard output. `input_fd` (-1: none) must not be the same file.
MUST_USE enum status output_file_open(struct output_file *file, const char *path, int input_fd,
                                      struct err *err);
// Everything, at once, unbuffered: a result that was written can be read.
MUST_USE enum status output_file_write(struct output_file *file, const void *bytes, size_t len,
                                       struct err *err);
// Empties a file that got no result, and closes; faults that show only now (quotas, network disks)
// are reported. A file that was never opened (fd -1) is fine; standard output stays open.
MUST_USE enum status output_file_close(struct output_file *file, struct err *err);
void output_file_abandon(struct output_file *file); // closes and keeps the old content

#endif
