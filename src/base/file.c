#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dangling_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) != 0 &&
           errno == ENOENT;
}

enum status file_map_open(struct file_map *map, const char *path, struct err *err) {
    *map = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int reason = errno;
        if (is_dangling_link(path)) return err_set(err, ERR_IO, "%s is a dangling link", path);
        return err_set(err, ERR_IO, "cannot open %s: %s", path, strerror(reason));
    }
    struct stat info;
    enum status status = OK;
    if (fstat(fd, &info) != 0) {
        status = err_set(err, ERR_IO, "cannot stat %s: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        status = err_set(err, ERR_IO, "%s is not a regular file", path);
    } else if (info.st_size == 0) {
        map->data = ""; // mmap refuses length 0
    } else {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = err_set(err, errno == ENOMEM ? ERR_NOMEM : ERR_IO, "cannot map %s: %s", path,
                             strerror(errno));
        } else {
            *map = (struct file_map){.data = data, .size = (size_t)info.st_size};
        }
    }
    close(fd);
    return status;
}

void file_map_close(struct file_map *map) {
    if (map->size) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct file_map){0};
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
        return err_set(err, ERR_IO, "cannot stat %s: %s", path, strerror(errno));
    }
    if (is_dangling_link(path)) return err_set(err, ERR_IO, "%s is a dangling link", path);
    if (stat(path, &info) != 0) {
        return err_set(err, ERR_IO, "cannot stat %s: %s", path, strerror(errno));
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
        return err_set(err, ERR_INVALID, "a path of %zu bytes", len);
    }
    memcpy(folder, path, len + 1);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) && errno != EEXIST) {
            return err_set(err, ERR_IO, "cannot make %s: %s", folder, strerror(errno));
        }
        *slash = '/';
    }
    return OK;
}
