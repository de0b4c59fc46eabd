/* Reads lines of a file or pipe with bounded memory. A line longer than the limit is skipped and
 * reported, never stored. Lines are numbered from 1, so that messages can name them. */
#ifndef CMD_LINE_READER_H
#define CMD_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text/buf.h"

enum line_state {
    LINE_READY, // `text` [`len`] without its newline, valid until the next call
    LINE_TOO_LONG, // a line over the limit was skipped
    LINE_END, // no more
    LINE_WAIT, // no line yet: may_wait is false, a line is too long so far, or a signal arrived
};

struct line_reader {
    int fd;
    const char *name; // for messages
    size_t len_max; // bytes of a line
    struct buf buf;
    size_t start; // where the next line begins in buf
    size_t scanned; // bytes after start known to hold no newline
    bool at_end, skipping;
    uint64_t line_number; // of the last line returned, from 1
    const char *text;
    size_t len;
};

void line_reader_init(struct line_reader *reader, int fd, const char *name, size_t len_max);
// With may_wait false it returns LINE_WAIT instead of blocking on an empty pipe.
MUST_USE enum status line_reader_next(struct line_reader *reader, bool may_wait,
                                      enum line_state *state, struct err *err);
void line_reader_fini(struct line_reader *reader); // does not close fd

/* Reads a whole file or pipe up to a size limit. */

// Appends the unread rest of `fd` byte for byte. ERR_INVALID: more than `bytes_max`. `name` is for
// messages.
MUST_USE enum status read_whole(struct buf *out, int fd, const char *name, size_t bytes_max,
                                struct err *err);
// The same for a path, of a file or a pipe; "-" is standard input.
MUST_USE enum status read_whole_file(struct buf *out, const char *path, size_t bytes_max,
                                     struct err *err);

#endif
