#include "cmd/model/file_uses.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/file.h"
#include "checkpoint/checkpoint.h"

enum { LINKS_MAX = 40 }; // as many as Linux follows

// A file's identity, independent of its names.
struct identity {
    dev_t device;
    ino_t inode;
    // For a file that does not exist yet: its name. Device and inode are then the folder's. Else
    // "".
    char name[FILE_PATH_MAX];
};

static bool take_regular(struct identity *out, const struct stat *info) {
    *out = (struct identity){.device = info->st_dev, .inode = info->st_ino};
    return S_ISREG(info->st_mode);
}

// Replaces the dangling link `path` by its target, the file that opening it to write would make.
// False: it is not a link, or the result is too long.
static bool follow_link(char path[FILE_PATH_MAX]) {
    char target[FILE_PATH_MAX];
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len <= 0) return false;
    target[len] = '\0';
    char *slash = strrchr(path, '/');
    size_t folder_len = target[0] == '/' || !slash ? 0 : (size_t)(slash + 1 - path);
    if (folder_len + (size_t)len >= FILE_PATH_MAX) return false;
    memcpy(path + folder_len, target, (size_t)len + 1);
    return true;
}

static bool identify_missing(struct identity *out, const char *path) {
    char place[FILE_PATH_MAX];
    if ((size_t)snprintf(place, sizeof place, "%s", path) >= sizeof place) return false;
    for (int i = 0; i < LINKS_MAX && follow_link(place); i++) continue;
    char *slash = strrchr(place, '/');
    const char *name = slash ? slash + 1 : place;
    *out = (struct identity){0};
    memcpy(out->name, name, strlen(name) + 1);
    if (slash) slash[1] = '\0';
    struct stat info;
    if (stat(slash ? place : ".", &info) != 0) return false;
    out->device = info.st_dev;
    out->inode = info.st_ino;
    return true;
}

// False: `path` is not a regular file, and opening it would not make one.
static bool identify(struct identity *out, const struct file_use *use) {
    struct stat info;
    if (!use->path) return false;
    if (strcmp(use->path, "-") == 0) {
        int fd = use->is_written ? STDOUT_FILENO : STDIN_FILENO;
        return fstat(fd, &info) == 0 && take_regular(out, &info);
    }
    if (stat(use->path, &info) == 0) return take_regular(out, &info);
    return errno == ENOENT && identify_missing(out, use->path);
}

static bool is_same(const struct identity *a, const struct identity *b) {
    return a->device == b->device && a->inode == b->inode && strcmp(a->name, b->name) == 0;
}

static const char *shown_path(const struct file_use *use) {
    if (strcmp(use->path, "-") != 0) return use->path;
    return use->is_written ? "(standard output)" : "(standard input)";
}

enum status file_uses_check(const struct file_use *uses, size_t num_uses, struct err *err) {
    for (size_t i = 0; i < num_uses; i++) {
        const struct file_use *first = &uses[i];
        struct identity first_file, file;
        if (!identify(&first_file, first)) continue;
        for (size_t j = i + 1; j < num_uses; j++) {
            const struct file_use *use = &uses[j];
            if (!first->is_written && !use->is_written) continue;
            if (!identify(&file, use) || !is_same(&first_file, &file)) continue;
            bool both_stdout = first->is_written && use->is_written &&
                               strcmp(first->path, "-") == 0 && strcmp(use->path, "-") == 0;
            if (both_stdout) continue;
            return err_set(err, ERR_INVALID, "%s %.150s and %s %.150s are the same file",
                           first->option, shown_path(first), use->option, shown_path(use));
        }
    }
    return OK;
}

enum status file_uses_spare_model(const char *path, const char *model, struct err *err) {
    const struct file_use use = {.path = path, .is_written = true};
    struct identity file;
    if (!identify(&file, &use) || file.name[0]) return OK;
    if (!checkpoint_has_file(model, file.device, file.inode)) return OK;
    return err_set(err, ERR_INVALID, "%.400s is a file of the model: results would replace it",
                   path);
}
