/* write(2) without stdio: an error belongs to the write that caused it, and what was written is not
 * lost in a buffer when the process is killed. */
#include "cmd/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status write_fault(struct output_file *file, struct err *err) {
    file->failed = true;
    return err_set(err, ERR_IO, "cannot write %s: %s", file->name, strerror(errno));
}

enum status output_file_open(struct output_file *file, const char *path, int input_fd,
                             struct err *err) {
    bool is_stdout = strcmp(path, "-") == 0;
    *file = (struct output_file){
        .fd = -1, .name = is_stdout ? "standard output" : path, .is_stdout = is_stdout};
    int fd = is_stdout ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return err_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat out, in;
    bool same = input_fd >= 0 && fstat(fd, &out) == 0 && fstat(input_fd, &in) == 0 &&
                S_ISREG(out.st_mode) && out.st_dev == in.st_dev && out.st_ino == in.st_ino;
    file->fd = fd;
    if (!same) return OK;
    output_file_abandon(file);
    return err_set(err, ERR_INVALID, "%s is both input and output", file->name);
}

static bool ends_with(const char *name, const char *end) {
    size_t len = strlen(name), end_len = strlen(end);
    return len >= end_len && strcmp(name + len - end_len, end) == 0;
}

enum status output_file_spare_model(const char *path, const char *model, struct err *err) {
    struct stat out;
    bool exists = strcmp(path, "-") != 0 && stat(path, &out) == 0 && S_ISREG(out.st_mode);
    DIR *folder = exists ? opendir(model) : NULL; // a bad folder is the loader's to report
    if (!folder) return OK;
    const struct dirent *entry;
    bool same = false;
    while (!same && (entry = readdir(folder))) {
        struct stat info;
        // Checkpoints are often links into a cache: files are compared, not names.
        same = (ends_with(entry->d_name, ".json") || ends_with(entry->d_name, ".jinja") ||
                ends_with(entry->d_name, ".safetensors")) &&
               fstatat(dirfd(folder), entry->d_name, &info, 0) == 0 && info.st_dev == out.st_dev &&
               info.st_ino == out.st_ino;
    }
    closedir(folder);
    if (!same) return OK;
    return err_set(err, ERR_INVALID, "%s is a file of the model: results would replace it", path);
}

// Standard output is the caller's file, perhaps opened to append: it is never cut.
static enum status empty_once(struct output_file *file, struct err *err) {
    if (file->emptied || file->is_stdout) return OK;
    file->emptied = true;
    struct stat info;
    if (fstat(file->fd, &info) != 0) return write_fault(file, err);
    if (!S_ISREG(info.st_mode)) return OK; // a pipe or device has nothing to drop
    return ftruncate(file->fd, 0) != 0 ? write_fault(file, err) : OK;
}

enum status output_file_write(struct output_file *file, const void *bytes, size_t len,
                              struct err *err) {
    if (file->failed) return err_set(err, ERR_IO, "cannot write %s any more", file->name);
    enum status status = empty_once(file, err);
    if (status) return status;
    const char *at = bytes;
    while (len) {
        ssize_t n = write(file->fd, at, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return write_fault(file, err);
        at += n;
        len -= (size_t)n;
    }
    return OK;
}

enum status output_file_close(struct output_file *file, struct err *err) {
    if (file->fd < 0) return OK;
    enum status status = file->failed ? OK : empty_once(file, err);
    // Others write to standard output too: a copy is closed, which tells the same faults.
    int fd = file->is_stdout ? dup(file->fd) : file->fd;
    file->fd = -1;
    if (close(fd) != 0 && !status && !file->failed) status = write_fault(file, err);
    return status;
}

void output_file_abandon(struct output_file *file) {
    if (file->fd >= 0 && !file->is_stdout) close(file->fd);
    file->fd = -1;
}
