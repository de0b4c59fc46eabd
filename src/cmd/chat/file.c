#include "cmd/chat/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/file.h"
#include "base/os/write_whole.h"

static enum status write_fault(const char *path, struct err *err) {
    return err_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

// Writes all bytes to the disk. Always closes `fd`.
static enum status write_and_close(int fd, const char *path, const char *bytes, size_t len,
                                   struct err *err) {
    enum status status = write_whole(fd, bytes, len) ? OK : write_fault(path, err);
    if (!status && fsync(fd) != 0) status = write_fault(path, err);
    if (close(fd) != 0 && !status) status = write_fault(path, err);
    return status;
}

static enum status write_beside(const char *path, mode_t mode, const void *bytes, size_t len,
                                struct err *err) {
    char name[FILE_PATH_MAX];
    if ((size_t)snprintf(name, sizeof name, "%s.XXXXXX", path) >= sizeof name) {
        return err_set(err, ERR_INVALID, "%s: the path is too long", path);
    }
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) return write_fault(path, err);
    enum status status = fchmod(fd, mode & 07777) != 0 ? write_fault(path, err) : OK;
    if (status) {
        close(fd);
    } else {
        status = write_and_close(fd, path, bytes, len, err);
    }
    if (!status && rename(name, path) != 0) status = write_fault(path, err);
    if (status) unlink(name);
    return status;
}

enum status chat_file_write(const char *path, const void *bytes, size_t len, bool replace,
                            struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        enum status status = write_and_close(fd, path, bytes, len, err);
        if (status) unlink(path);
        return status;
    }
    if (errno != EEXIST) return write_fault(path, err);
    if (!replace) return err_set(err, ERR_INVALID, "%s exists", path);
    char *target = realpath(path, NULL);
    if (!target && errno == ENOMEM) return err_nomem(err, "path");
    if (!target) return write_fault(path, err);
    struct stat info;
    enum status status = stat(target, &info) != 0 ? write_fault(path, err) : OK;
    if (!status && !S_ISREG(info.st_mode)) {
        status = err_set(err, ERR_INVALID, "%s is not a regular file", path);
    }
    if (!status) status = write_beside(target, info.st_mode, bytes, len, err);
    free(target);
    return status;
}
