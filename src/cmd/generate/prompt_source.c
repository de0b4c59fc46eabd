/* A bad line does not end the run: the caller writes a result for it and asks for the next. Blank
 * lines are skipped, so that files may end with them or group their lines. */
#include "cmd/generate/prompt_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/blank.h"
#include "cmd/terminal/line_reader.h"

enum { LINE_BYTES_MAX = 64 << 20 };

void prompt_source_from_args(struct prompt_source *source, char *const *prompts,
                             size_t num_prompts) {
    *source = (struct prompt_source){
        .prompts = prompts, .num_prompts = num_prompts, .fd = -1, .total = num_prompts};
}

enum status prompt_source_from_stdin(struct prompt_source *source, struct err *err) {
    *source = (struct prompt_source){.fd = -1, .total = 1, .has_text = true};
    return read_whole(&source->text, STDIN_FILENO, "standard input", LINE_BYTES_MAX, err);
}

static bool is_blank_line(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (!is_blank(text[i])) return false;
    }
    return true;
}

// Counts the requests of a regular file for the progress line. A pipe cannot be read twice.
static enum status count_requests(struct prompt_source *source, struct err *err) {
    struct stat info;
    if (fstat(source->fd, &info) != 0 || !S_ISREG(info.st_mode)) return OK;
    off_t start = lseek(source->fd, 0, SEEK_CUR);
    if (start < 0) return OK;
    struct line_reader reader;
    line_reader_init(&reader, source->fd, source->reader.name, LINE_BYTES_MAX);
    enum line_state state = LINE_READY;
    enum status status;
    while (!(status = line_reader_next(&reader, true, &state, err)) && state != LINE_END) {
        if (state == LINE_WAIT) continue;
        if (state == LINE_TOO_LONG || !is_blank_line(reader.text, reader.len)) source->total++;
    }
    line_reader_fini(&reader);
    if (!status && lseek(source->fd, start, SEEK_SET) < 0) {
        return err_set(err, ERR_IO, "cannot read %s again: %s", reader.name, strerror(errno));
    }
    return status;
}

enum status prompt_source_from_file(struct prompt_source *source, const char *path, bool count,
                                    struct err *err) {
    *source = (struct prompt_source){.fd = -1};
    bool is_stdin = strcmp(path, "-") == 0;
    source->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) return err_set(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat info;
    if (fstat(source->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        return err_set(err, ERR_IO, "%s is a folder", path);
    }
    line_reader_init(&source->reader, source->fd, is_stdin ? "standard input" : path,
                     LINE_BYTES_MAX);
    return count ? count_requests(source, err) : OK;
}

static enum status next_prompt(struct prompt_source *source, enum source_state *state,
                               struct request_line *line, struct err *err) {
    size_t num_prompts = source->has_text ? 1 : source->num_prompts;
    *state = SOURCE_END;
    if (source->next_prompt == num_prompts) return OK;
    *state = SOURCE_REQUEST;
    const char *prompt = source->has_text ? NULL : source->prompts[source->next_prompt];
    source->next_prompt++;
    if (prompt) return request_line_from_text(line, prompt, strlen(prompt), source->defaults, err);
    return request_line_from_text(line, source->text.data, source->text.len, source->defaults, err);
}

static enum status parse_line(struct prompt_source *source, enum source_state *state,
                              struct request_line *line, struct err *err) {
    const struct line_reader *reader = &source->reader;
    const char *text = reader->text;
    size_t len = reader->len;
    if (reader->line_number == 1 && len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3; // the byte order mark that some editors write
        len -= 3;
    }
    enum status status = request_line_parse(line, text, len, source->defaults, err);
    *state = SOURCE_REQUEST;
    line->line_number = reader->line_number;
    if (!status) return OK;
    *state = SOURCE_REFUSED;
    status = err_prefix(err, status, "line %llu", (unsigned long long)reader->line_number);
    return status == ERR_NOMEM ? status : OK;
}

enum status prompt_source_next(struct prompt_source *source, bool may_wait,
                               enum source_state *state, struct request_line *line,
                               struct err *err) {
    if (source->fd < 0) return next_prompt(source, state, line, err);
    struct line_reader *reader = &source->reader;
    for (;;) {
        enum line_state line_state = LINE_END;
        enum status status = line_reader_next(reader, may_wait, &line_state, err);
        if (status) return status;
        switch (line_state) {
        case LINE_END:
            *state = SOURCE_END;
            return OK;
        case LINE_WAIT:
            *state = SOURCE_WAIT;
            return OK;
        case LINE_TOO_LONG:
            err_set(err, ERR_INVALID, "line %llu: longer than %d MiB",
                    (unsigned long long)reader->line_number, LINE_BYTES_MAX >> 20);
            *state = SOURCE_REFUSED;
            return OK;
        case LINE_READY:
            if (is_blank_line(reader->text, reader->len)) continue;
            return parse_line(source, state, line, err);
        }
    }
}

void prompt_source_close(struct prompt_source *source) {
    line_reader_fini(&source->reader);
    buf_fini(&source->text);
    if (source->fd > STDERR_FILENO) close(source->fd);
    source->fd = -1;
}
