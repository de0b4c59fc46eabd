/* The next line begins at `start` of the buffer. Each read first moves unread bytes to the front,
 * so the buffer never outgrows the longest allowed line plus one read. A line that is too long is
 * dropped while it is read (`skipping`), up to its newline. */
#include "cmd/terminal/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024 };

void line_reader_init(struct line_reader *reader, int fd, const char *name, size_t len_max) {
    *reader = (struct line_reader){.fd = fd, .name = name, .len_max = len_max};
}

void line_reader_fini(struct line_reader *reader) {
    buf_fini(&reader->buf);
}

// Moves the unread bytes to the front.
static void compact(struct line_reader *reader) {
    size_t left = reader->buf.len - reader->start;
    if (left && reader->start) memmove(reader->buf.data, reader->buf.data + reader->start, left);
    reader->buf.len = left;
    reader->start = 0;
}

// Reads once. *got: it got bytes or the end of the file.
static enum status fill(struct line_reader *reader, bool may_wait, bool *got, struct err *err) {
    *got = false;
    compact(reader);
    enum status status = buf_reserve(&reader->buf, READ_BYTES, err);
    if (status) return status;
    // Another process may have made the pipe non-blocking, so wait here too.
    struct pollfd poll_fd = {.fd = reader->fd, .events = POLLIN};
    if (poll(&poll_fd, 1, may_wait ? -1 : 0) <= 0) return OK;
    ssize_t n = read(reader->fd, reader->buf.data + reader->buf.len, READ_BYTES);
    if (n < 0) {
        if (errno == EINTR || errno == EAGAIN) return OK;
        return err_set(err, ERR_IO, "cannot read %s: %s", reader->name, strerror(errno));
    }
    reader->buf.len += (size_t)n;
    reader->at_end = n == 0;
    *got = true;
    return OK;
}

// Returns the line [start, end) and moves past its newline.
static enum line_state take(struct line_reader *reader, size_t end) {
    bool too_long = reader->skipping || end - reader->start > reader->len_max;
    reader->text = reader->buf.data + reader->start;
    reader->len = end - reader->start;
    reader->start = end < reader->buf.len ? end + 1 : end;
    reader->scanned = 0;
    reader->skipping = false;
    reader->line_number++;
    return too_long ? LINE_TOO_LONG : LINE_READY;
}

enum status line_reader_next(struct line_reader *reader, bool may_wait, enum line_state *state,
                             struct err *err) {
    for (;;) {
        size_t from = reader->start + reader->scanned;
        const char *newline = from < reader->buf.len
                                  ? memchr(reader->buf.data + from, '\n', reader->buf.len - from)
                                  : NULL;
        if (newline) {
            *state = take(reader, (size_t)(newline - reader->buf.data));
            return OK;
        }
        reader->scanned = reader->buf.len - reader->start;
        if (reader->at_end) {
            bool rest = reader->scanned > 0 || reader->skipping;
            *state = rest ? take(reader, reader->buf.len) : LINE_END;
            return OK;
        }
        // Of a line that is too long only the newline is searched for.
        if (reader->scanned > reader->len_max) {
            reader->skipping = true; // drop the bytes read so far
            reader->start = reader->buf.len;
            reader->scanned = 0;
        }
        bool got = false;
        enum status status = fill(reader, may_wait, &got, err);
        if (status) return status;
        // A line without an end is left too: the caller may have been asked to stop.
        if (!got || reader->skipping) {
            *state = LINE_WAIT;
            return OK;
        }
    }
}

// ---- whole files ----

enum { READ_CHUNK = 64 * 1024 };

enum status read_whole(struct buf *out, int fd, const char *name, size_t bytes_max,
                       struct err *err) {
    size_t start = out->len;
    for (;;) {
        enum status status = buf_reserve(out, READ_CHUNK, err);
        if (status) return status;
        ssize_t n = read(fd, out->data + out->len, READ_CHUNK);
        if (n < 0 && errno == EAGAIN) { // another process made the pipe non-blocking
            struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
            poll(&poll_fd, 1, -1);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, ERR_IO, "cannot read %s: %s", name, strerror(errno));
        if (n == 0) return OK;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len - start > bytes_max) {
            return err_set(err, ERR_INVALID, "%s is longer than %zu MiB", name, bytes_max >> 20);
        }
    }
}

enum status read_whole_file(struct buf *out, const char *path, size_t bytes_max, struct err *err) {
    if (strcmp(path, "-") == 0) {
        return read_whole(out, STDIN_FILENO, "standard input", bytes_max, err);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    enum status status = read_whole(out, fd, path, bytes_max, err);
    close(fd);
    return status;
}
