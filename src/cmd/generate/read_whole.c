#include "cmd/generate/read_whole.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

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
