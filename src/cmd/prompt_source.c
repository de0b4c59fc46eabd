/* A bad line is an event of its own, not a failure: the caller gives it a result and asks for the
 * next. Blank lines are nothing at all, so that files may end or be grouped with them. */
#include "cmd/prompt_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 64 << 20, READ_CHUNK = 64 * 1024 };

void prompt_source_from_args(struct prompt_source *source, char *const *prompts,
                             size_t num_prompts) {
    *source = (struct prompt_source){
        .prompts = prompts, .num_prompts = num_prompts, .fd = -1, .total = num_prompts};
}

enum status prompt_source_from_stdin(struct prompt_source *source, struct err *err) {
    *source = (struct prompt_source){.fd = -1, .total = 1, .has_text = true};
    for (;;) {
        enum status status = buf_reserve(&source->text, READ_CHUNK, err);
        if (status) return status;
        ssize_t n = read(STDIN_FILENO, source->text.data + source->text.len, READ_CHUNK);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(err, ERR_IO, "cannot read standard input: %s", strerror(errno));
        if (n == 0) return OK;
        source->text.len += (size_t)n;
        source->text.data[source->text.len] = '\0';
        if (source->text.len > LINE_BYTES_MAX) {
            return err_set(err, ERR_INVALID, "the prompt on standard input is longer than %d MiB",
                           LINE_BYTES_MAX >> 20);
        }
    }
}

static bool is_blank(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (!strchr(" \t\r\n", text[i]) || !text[i]) return false;
    }
    return true;
}

// The requests in a regular file, for the progress line; a pipe cannot be read twice.
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
        if (state == LINE_TOO_LONG || !is_blank(reader.text, reader.len)) source->total++;
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

static enum source_state next_prompt(struct prompt_source *source, struct request_line *line) {
    *line = (struct request_line){.sampling = *source->defaults};
    line->sampling.owned = NULL;
    if (source->has_text) {
        if (source->next_prompt++) return SOURCE_END;
        line->prompt = source->text.data;
        line->prompt_len = source->text.len;
        return SOURCE_REQUEST;
    }
    if (source->next_prompt == source->num_prompts) return SOURCE_END;
    line->prompt = source->prompts[source->next_prompt++];
    line->prompt_len = strlen(line->prompt);
    return SOURCE_REQUEST;
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
    if (source->fd < 0) {
        *state = next_prompt(source, line);
        return OK;
    }
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
            if (is_blank(reader->text, reader->len)) continue;
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
