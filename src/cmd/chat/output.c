#include "cmd/chat/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char dim[] = "\033[2m", plain[] = "\033[0m";

enum status chat_output_init(struct chat_output *output, struct err *err) {
    output->terminal = isatty(STDOUT_FILENO);
    return output_file_open(&output->file, "-", err);
}

void chat_output_fini(struct chat_output *output) {
    output_file_abandon(&output->file);
    buf_fini(&output->text);
}

void chat_output_begin(struct chat_output *output) {
    output->dimmed = output->past_blanks = false;
    buf_clear(&output->text);
}

static enum status set_dimmed(struct chat_output *output, bool dimmed, struct err *err) {
    if (!output->color || output->dimmed == dimmed) return OK;
    output->dimmed = dimmed;
    return buf_append_str(&output->text, dimmed ? dim : plain, err);
}

// The length in bytes of a control character at `text`; 0: none. U+0080 to U+009F count too,
// because some terminals obey them.
static size_t control_len(const unsigned char *text, size_t len) {
    if (text[0] < 0x20) return text[0] != '\n' && text[0] != '\t';
    if (text[0] == 0x7f) return 1;
    return text[0] == 0xc2 && len > 1 && text[1] < 0xa0 ? 2 : 0;
}

static enum status append_safe(struct buf *out, const char *text, size_t len, struct err *err) {
    enum status status = OK;
    size_t start = 0; // bytes [start, i) are not printed yet
    for (size_t i = 0; i < len && !status;) {
        size_t control = control_len((const unsigned char *)text + i, len - i);
        if (!control) {
            i++;
            continue;
        }
        status = buf_append(out, text + start, i - start, err);
        if (!status) status = buf_append_str(out, "\xef\xbf\xbd", err);
        start = i += control;
    }
    return status ? status : buf_append(out, text + start, len - start, err);
}

enum status chat_output_piece(void *user_data, const char *text, size_t len, enum think_part part,
                              struct err *err) {
    struct chat_output *output = user_data;
    bool thinking = part != THINK_ANSWER; // the tags belong to it
    if (output->hide_thinking && thinking) return OK;
    // Drops the blank lines between hidden thinking and the rest of the answer.
    while (output->hide_thinking && !output->past_blanks && len) {
        if (*text != '\n' && *text != ' ') {
            output->past_blanks = true;
        } else {
            text++;
            len--;
        }
    }
    if (!len) return OK;
    enum status status = set_dimmed(output, thinking, err);
    if (status) return status;
    return output->terminal ? append_safe(&output->text, text, len, err)
                            : buf_append(&output->text, text, len, err);
}

enum status chat_output_flush(struct chat_output *output, struct err *err) {
    enum status status = OK;
    if (output->text.len) {
        status = output_file_write(&output->file, output->text.data, output->text.len, err);
    }
    buf_clear(&output->text);
    return status;
}

enum status chat_output_end(struct chat_output *output, struct err *err) {
    enum status status = set_dimmed(output, false, err);
    if (!status) status = buf_append_str(&output->text, "\n", err);
    return status ? status : chat_output_flush(output, err);
}

PRINTF_LIKE(3, 0)
static enum status print(struct chat_output *output, bool note, const char *format, va_list args,
                         struct err *err) {
    char *text = NULL;
    int len = vasprintf(&text, format, args);
    if (len < 0) return err_nomem(err, "output");
    bool dimmed = note && output->color;
    enum status status = dimmed ? buf_append_str(&output->text, dim, err) : OK;
    if (!status) {
        status = output->terminal ? append_safe(&output->text, text, (size_t)len, err)
                                  : buf_append(&output->text, text, (size_t)len, err);
    }
    free(text);
    if (!status && dimmed) status = buf_append_str(&output->text, plain, err);
    if (!status) status = buf_append_str(&output->text, "\n", err);
    return status ? status : chat_output_flush(output, err);
}

enum status chat_output_print(struct chat_output *output, struct err *err, const char *format,
                              ...) {
    va_list args;
    va_start(args, format);
    enum status status = print(output, false, format, args, err);
    va_end(args);
    return status;
}

enum status chat_output_note(struct chat_output *output, struct err *err, const char *format, ...) {
    if (!output->talks) return OK;
    va_list args;
    va_start(args, format);
    enum status status = print(output, true, format, args, err);
    va_end(args);
    return status;
}
