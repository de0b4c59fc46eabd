// strftime_now: Python's own directives replaced, then the C library's strftime.
#include "jinja/src/library/strftime.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text/c_locale.h"
#include "jinja/src/library/library.h"
#include "jinja/src/value/str_ops.h"

// %z as Python writes it, "+0200", or %Z; nothing for a time without a zone.
static enum status append_zone(struct jinja_run *run, char directive, struct jinja_text *text) {
    const struct tm *now = &run->options->now;
    if (!now->tm_zone) return OK;
    if (directive == 'Z') return jinja_text_append(run, text, now->tm_zone, strlen(now->tm_zone));
    long minutes = (now->tm_gmtoff < 0 ? -now->tm_gmtoff : now->tm_gmtoff) / 60;
    char offset[32];
    int len = snprintf(offset, sizeof offset, "%c%02ld%02ld", now->tm_gmtoff < 0 ? '-' : '+',
                       minutes / 60, minutes % 60);
    return jinja_text_append(run, text, offset, (size_t)len);
}

// The format for the C library: %f, %z, %Z resolved. NUL-terminated in `text`.
static enum status resolve(struct jinja_run *run, const struct jinja_string *format,
                           struct jinja_text *text) {
    enum status status = jinja_str_pay_chars(run, format->len);
    for (size_t i = 0; i < format->len && !status; i++) {
        size_t size = 1;
        if (format->data[i] == '%') {
            char directive = i + 1 < format->len ? format->data[i + 1] : 0;
            size = directive ? 2 : 1;
            if (directive == 'f') {
                char digits[16];
                int len = snprintf(digits, sizeof digits, "%06d", (int)run->options->microsecond);
                status = jinja_text_append(run, text, digits, (size_t)len);
            }
            if (directive == 'z' || directive == 'Z') status = append_zone(run, directive, text);
            if (directive == 'f' || directive == 'z' || directive == 'Z') {
                i++;
                continue;
            }
        }
        status = jinja_text_append(run, text, format->data + i, size);
        i += size - 1;
    }
    if (status) return status;
    return jinja_text_append(run, text, "", 1);
}

enum status jinja_function_strftime_now(struct jinja_run *run, const struct jinja_call_args *args,
                                        struct jinja_value *out) {
    struct jinja_value value;
    const struct jinja_string *format;
    enum status status =
        jinja_args_bind(run, "strftime_now()", args, (const char *[]){"format"}, 1, 1, &value);
    if (!status) status = jinja_args_string(run, "strftime_now()", "format", value, &format);
    if (status) return status;
    struct jinja_text text = {0};
    status = resolve(run, format, &text);
    if (status) return status;
    struct tm now = run->options->now;
    now.tm_isdst = -1; // without a zone it is not known
    char short_line[256];
    size_t size = sizeof short_line;
    size_t len = strftime_l(short_line, size, text.data, &now, c_locale());
    char *line = short_line;
    // strftime returns 0 for an empty result and for a buffer that is too small. As in CPython the
    // buffer grows to 256 times the format; if it returns 0 then too, the result is empty.
    while (len == 0 && size < 256 * text.len && !status) {
        size = size < 1024 ? 1024 : 2 * size;
        line = jinja_run_alloc(run, size);
        if (line)
            len = strftime_l(line, size, text.data, &now, c_locale());
        else
            status = jinja_run_status(run);
    }
    if (!status) status = jinja_run_pay(run, 8 + len / 64);
    if (!status) status = jinja_value_string(run, line, len, out);
    return status;
}
