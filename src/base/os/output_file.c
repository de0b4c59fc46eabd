/* write(2) without stdio: an error belongs to the write that caused it, and written results are not
 * lost in a buffer when the process is killed. */
#include "base/os/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/write_whole.h"
#include "base/text/c_locale.h"

static enum status write_fault(struct output_file *file, struct err *err) {
    file->failed = true;
    return err_set(err, ERR_IO, "cannot write %s: %s", file->name, c_locale_strerror(errno));
}

enum status output_file_open(struct output_file *file, const char *path, struct err *err) {
    bool is_stdout = strcmp(path, "-") == 0;
    *file = (struct output_file){
        .fd = -1, .name = is_stdout ? "standard output" : path, .is_stdout = is_stdout};
    int fd = is_stdout ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return err_set(err, ERR_IO, "cannot open %s: %s", path, c_locale_strerror(errno));
    file->fd = fd;
    return OK;
}

// Standard output is the caller's file, perhaps opened to append: its content stays.
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
    return write_whole(file->fd, bytes, len) ? OK : write_fault(file, err);
}

enum status output_file_close(struct output_file *file, struct err *err) {
    if (file->fd < 0) return OK;
    enum status status = file->failed ? OK : empty_once(file, err);
    // Others write to standard output too: closing a duplicate reports the same faults.
    int fd = file->is_stdout ? dup(file->fd) : file->fd;
    file->fd = -1;
    if (close(fd) != 0 && !status && !file->failed) status = write_fault(file, err);
    return status;
}

void output_file_abandon(struct output_file *file) {
    if (file->fd >= 0 && !file->is_stdout) close(file->fd);
    file->fd = -1;
}
