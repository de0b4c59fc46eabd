#include "base/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/c_locale.h"

static bool is_dangling_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) != 0 &&
           errno == ENOENT;
}

bool file_name_ends(const char *name, const char *suffix) {
    size_t len = strlen(name), suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

enum status file_open(struct file *file, const char *path, struct err *err) {
    *file = (struct file){.fd = -1, .path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int reason = errno;
        if (is_dangling_link(path)) return err_set(err, ERR_IO, "%s is a dangling link", path);
        return err_set(err, ERR_IO, "cannot open %s: %s", path, c_locale_strerror(reason));
    }
    struct stat info;
    enum status status = OK;
    if (fstat(fd, &info) != 0) {
        status = err_set(err, ERR_IO, "cannot stat %s: %s", path, c_locale_strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = err_set(err, ERR_IO, "%s is not a regular file", path);
    }
    if (status) {
        close(fd);
        return status;
    }
    file->fd = fd;
    file->size = (uint64_t)info.st_size;
    file->modified = info.st_mtim;
    return OK;
}

void file_close(struct file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

enum status file_read_at(const struct file *file, uint64_t offset, void *out, size_t len,
                         struct err *err) {
    size_t done = 0;
    while (done < len) {
        ssize_t n = pread(file->fd, (char *)out + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            return err_set(err, ERR_IO, "cannot read %s: %s", file->path, c_locale_strerror(errno));
        }
        if (n == 0) {
            return err_set(err, ERR_IO, "%s became shorter while it was read", file->path);
        }
        done += (size_t)n;
    }
    return OK;
}

enum status file_check_unchanged(const struct file *file, struct err *err) {
    struct stat info;
    if (fstat(file->fd, &info) != 0) {
        return err_set(err, ERR_IO, "cannot stat %s: %s", file->path, c_locale_strerror(errno));
    }
    bool same = (uint64_t)info.st_size == file->size &&
                info.st_mtim.tv_sec == file->modified.tv_sec &&
                info.st_mtim.tv_nsec == file->modified.tv_nsec;
    if (same) return OK;
    return err_set(err, ERR_IO, "%s was changed while it was read", file->path);
}

enum status file_read(struct buf *out, const char *path, struct err *err) {
    struct file file;
    enum status status = file_open(&file, path, err);
    if (!status && file.size > FILE_READ_MAX) {
        status = err_set(err, ERR_INVALID, "%s has %llu bytes, want at most %d MiB", path,
                         (unsigned long long)file.size, FILE_READ_MAX >> 20);
    }
    if (!status) status = buf_reserve(out, (size_t)file.size, err);
    if (!status) status = file_read_at(&file, 0, out->data + out->len, (size_t)file.size, err);
    if (!status) status = file_check_unchanged(&file, err);
    if (!status) out->len += (size_t)file.size;
    if (out->data) out->data[out->len] = '\0';
    file_close(&file);
    return status;
}

bool file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

enum status file_is_present(const char *path, bool *present, struct err *err) {
    struct stat info;
    *present = lstat(path, &info) == 0;
    if (!*present) {
        if (errno == ENOENT) return OK;
        return err_set(err, ERR_IO, "cannot stat %s: %s", path, c_locale_strerror(errno));
    }
    if (is_dangling_link(path)) return err_set(err, ERR_IO, "%s is a dangling link", path);
    if (stat(path, &info) != 0) {
        return err_set(err, ERR_IO, "cannot stat %s: %s", path, c_locale_strerror(errno));
    }
    if (S_ISREG(info.st_mode)) return OK;
    return err_set(err, ERR_IO, "%s is not a regular file%s", path,
                   S_ISDIR(info.st_mode) ? " but a folder" : "");
}

enum status file_check_lfs(const char *data, size_t len, const char *path, struct err *err) {
    static const char start[] = "version https://git-lfs.github.com/spec/";
    if (len < sizeof start - 1 || memcmp(data, start, sizeof start - 1) != 0) return OK;
    return err_set(err, ERR_FORMAT,
                   "%s is a Git LFS pointer, not the file itself (git lfs pull fetches it)", path);
}

bool file_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum status file_join(char *out, size_t out_size, const char *folder, const char *name,
                      struct err *err) {
    int n = snprintf(out, out_size, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= out_size) {
        return err_set(err, ERR_INVALID, "path too long: %.64s.../%.64s", folder, name);
    }
    return OK;
}

enum status file_make_folders(const char *path, struct err *err) {
    char folder[FILE_PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof folder) {
        return err_set(err, ERR_INVALID, "the path has %zu bytes, want 1 to %d", len,
                       FILE_PATH_MAX - 1);
    }
    memcpy(folder, path, len + 1);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) && errno != EEXIST) {
            return err_set(err, ERR_IO, "cannot make %s: %s", folder, c_locale_strerror(errno));
        }
        *slash = '/';
    }
    return OK;
}
