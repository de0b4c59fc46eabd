/* Reads a whole file or pipe up to a size limit. */
#ifndef CMD_READ_WHOLE_H
#define CMD_READ_WHOLE_H

#include "base/text/buf.h"

// Appends the unread rest of `fd` byte for byte. ERR_INVALID: more than `bytes_max`. `name` is for
// messages.
MUST_USE enum status read_whole(struct buf *out, int fd, const char *name, size_t bytes_max,
                                struct err *err);
// The same for a path, of a file or a pipe; "-" is standard input.
MUST_USE enum status read_whole_file(struct buf *out, const char *path, size_t bytes_max,
                                     struct err *err);

#endif
