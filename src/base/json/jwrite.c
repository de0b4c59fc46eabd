#include "base/json/jwrite.h"

#include <string.h>

#include "base/text/c_locale.h"

// json_dumpb writes into the caller's memory: the first call measures, the second writes.
static enum status dump(struct buf *out, const json_t *value, size_t flags, const char *what,
                        struct err *err) {
    size_t len = json_dumpb(value, NULL, 0, flags);
    if (!len) return err_nomem(err, what); // no JSON text is empty
    enum status status = buf_reserve(out, len, err);
    if (status) return status;
    if (json_dumpb(value, out->data + out->len, len, flags) != len) {
        out->data[out->len] = '\0';
        return err_nomem(err, what);
    }
    out->len += len;
    return OK;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n';
}

// jansson writes an integer beyond 64 bits as {"\u0000integer": "123"} (jread_big_integer).
// Replaces that by its digits. A string cannot contain the key's text: its quotes would have
// backslashes.
static void unwrap_bigs(struct buf *out, size_t start) {
    static const char key[] = "\"\\u0000integer\":";
    char *to = out->data + start, *from = to, *end = out->data + out->len, *found;
    while ((found = memmem(from, (size_t)(end - from), key, sizeof key - 1))) {
        char *open = found - 1, *digits = found + sizeof key - 1;
        while (is_space(*open)) open--; // to the brace
        memmove(to, from, (size_t)(open - from));
        to += open - from;
        while (is_space(*digits)) digits++;
        digits++; // the quote
        size_t len = strcspn(digits, "\"");
        memmove(to, digits, len);
        to += len;
        from = digits + len + 1;
        while (is_space(*from)) from++;
        from++; // the other brace
    }
    memmove(to, from, (size_t)(end - from));
    out->len = (size_t)(to - out->data) + (size_t)(end - from);
}

enum status jwrite(struct buf *out, const json_t *value, size_t flags, const char *what,
                   struct err *err) {
    size_t start = out->len;
    locale_t before = c_locale_enter();
    enum status status = dump(out, value, flags, what, err);
    c_locale_leave(before);
    if (status) return status;
    unwrap_bigs(out, start);
    out->data[out->len] = '\0';
    return OK;
}
