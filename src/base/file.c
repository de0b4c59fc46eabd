#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_map_open(struct file_map *map, const char *path, struct err *err) {
    *map = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
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
