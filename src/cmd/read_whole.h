/* All of a file or pipe, with a bound on its size. */
#ifndef CMD_READ_WHOLE_H
#define CMD_READ_WHOLE_H

#include "base/buf.h"

// Appends what `fd` still has, exactly as it is. ERR_INVALID: more than `bytes_max`. `name` is for
// messages.
MUST_USE enum status read_whole(struct buf *out, int fd, const char *name, size_t bytes_max,
                                struct err *err);
// The same for a path: any file that can be read, a pipe too; "-" is standard input.
MUST_USE enum status read_whole_file(struct buf *out, const char *path, size_t bytes_max,
                                     struct err *err);

#endif
