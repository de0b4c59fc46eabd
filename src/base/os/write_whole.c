#include "base/os/write_whole.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

static void cut_back(int fd, size_t written) {
    int saved_errno = errno;
    struct stat info;
    off_t end = lseek(fd, 0, SEEK_CUR), start = end - (off_t)written;
    // If the file goes on after these bytes, others write to it too.
    bool can_cut =
        fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && end == info.st_size && start >= 0;
    if (can_cut && ftruncate(fd, start) == 0) lseek(fd, start, SEEK_SET);
    errno = saved_errno;
}

bool write_whole(int fd, const void *bytes, size_t len) {
    size_t written = 0;
    while (written < len) {
        ssize_t n = write(fd, (const char *)bytes + written, len - written);
        if (n >= 0) {
            written += (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
            poll(&poll_fd, 1, -1); // the next write reports an error
        } else if (errno != EINTR) {
            if (written) cut_back(fd, written);
            return false;
        }
    }
    return true;
}
