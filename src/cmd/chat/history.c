#include "cmd/chat/history.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/os/file.h"
#include "base/os/write_whole.h"
#include "cmd/chat/file.h"
#include "text/unicode/unicode.h"

enum status chat_history_path(char *path, size_t size, const char *state_home, const char *home,
                              struct err *err) {
    static const char name[] = "nanovllm/chat_history";
    path[0] = '\0';
    enum status status = OK;
    if (state_home && state_home[0] == '/') {
        status = file_join(path, size, state_home, name, err);
    } else if (home && home[0] == '/') {
        char folder[FILE_PATH_MAX];
        status = file_join(folder, sizeof folder, home, ".local/state", err);
        if (!status) status = file_join(path, size, folder, name, err);
    }
    if (status || !path[0]) return status;
    return file_make_folders(path, err);
}

static enum status unescape(struct buf *out, const char *line, size_t len, struct err *err) {
    buf_clear(out);
    enum status status = buf_reserve(out, len, err);
    for (size_t i = 0; i < len && !status; i++) {
        char c = line[i];
        if (c == '\\' && i + 1 < len) c = line[++i] == 'n' ? '\n' : line[i];
        if (c) status = buf_append(out, &c, 1, err);
    }
    return status;
}

static enum status hand_out(const char *line, size_t len, struct buf *scratch,
                            chat_history_fn entry, void *user_data, struct err *err) {
    enum status status = unescape(scratch, line, len, err);
    if (status || !scratch->len) return status;
    // Leaves out an entry that is not valid UTF-8, because the terminal gets only text.
    size_t valid = utf8_valid_prefix(scratch->data, scratch->len);
    return valid == scratch->len ? entry(user_data, scratch->data, scratch->len, err) : OK;
}

// Returns the start of the last CHAT_HISTORY_ENTRIES_MAX lines.
static size_t newest_lines(const struct buf *text) {
    size_t start = text->len, num_lines = 0;
    while (start > 0) {
        bool newline = text->data[start - 1] == '\n' && start < text->len;
        if (newline && ++num_lines == CHAT_HISTORY_ENTRIES_MAX) break;
        start--;
    }
    return start;
}

static enum status load_lines(const struct buf *text, size_t start, chat_history_fn entry,
                              void *user_data, struct err *err) {
    struct buf scratch = {0};
    enum status status = OK;
    while (start < text->len && !status) {
        const char *line = text->data + start;
        const char *newline = memchr(line, '\n', text->len - start);
        size_t len = newline ? (size_t)(newline - line) : text->len - start;
        status = hand_out(line, len, &scratch, entry, user_data, err);
        start += len + 1;
    }
    buf_fini(&scratch);
    return status;
}

enum status chat_history_load(const char *path, chat_history_fn entry, void *user_data,
                              struct err *err) {
    bool present;
    enum status status = file_is_present(path, &present, err);
    if (status || !present) return status;
    struct buf text = {0};
    status = file_read(&text, path, err);
    size_t start = newest_lines(&text);
    if (!status) status = load_lines(&text, start, entry, user_data, err);
    if (!status && start) {
        status = chat_file_write(path, text.data + start, text.len - start, true, err);
    }
    buf_fini(&text);
    return status;
}

enum status chat_history_append(const char *path, const char *entry, size_t len, struct err *err) {
    if (len > CHAT_HISTORY_ENTRY_BYTES_MAX) return OK;
    struct buf line = {0};
    enum status status = OK;
    for (size_t i = 0; i < len && !status; i++) {
        if (entry[i] == '\n') {
            status = buf_append(&line, "\\n", 2, err);
        } else {
            if (entry[i] == '\\') status = buf_append(&line, "\\", 1, err);
            if (!status) status = buf_append(&line, entry + i, 1, err);
        }
    }
    if (!status) status = buf_append(&line, "\n", 1, err);
    // Appends in one write, so that lines of several chats do not mix.
    int fd = status ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (!status && (fd < 0 || !write_whole(fd, line.data, line.len))) {
        status = err_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    if (fd >= 0) close(fd);
    buf_fini(&line);
    return status;
}
