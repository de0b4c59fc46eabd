// Work on strings: parts, padding, stripping, searching, replacing, lines.
#include "jinja/src/value/str_ops.h"

#include <inttypes.h>
#include <string.h>

#include "jinja/src/library/library.h"
#include "jinja/src/value/chars.h"

uint32_t jinja_str_previous(const struct jinja_string *string, size_t *at) {
    size_t start = *at - 1;
    while (start && ((unsigned char)string->data[start] & 0xc0) == 0x80) start--;
    *at = start;
    size_t size;
    return utf8_decode((const unsigned char *)string->data + start, &size);
}

enum status jinja_str_pay_bytes(struct jinja_run *run, size_t num_bytes) {
    return jinja_run_pay(run, 1 + num_bytes / 64);
}

enum status jinja_str_pay_chars(struct jinja_run *run, size_t num_bytes) {
    return jinja_run_pay(run, 1 + num_bytes / 16);
}

static struct jinja_value mark(struct jinja_run *run, struct jinja_value value, bool is_markup,
                               enum status *status) {
    if (!is_markup) return value;
    struct jinja_string *marked = jinja_run_alloc(run, sizeof *marked);
    if (!marked) {
        *status = jinja_run_status(run);
        return value;
    }
    *marked = *value.string;
    marked->is_markup = true;
    return jinja_value_of_string(marked);
}

enum status jinja_str_borrow(struct jinja_run *run, const char *data, size_t len, bool is_markup,
                             struct jinja_value *out) {
    struct jinja_value value;
    enum status status = jinja_value_string_borrow(run, data, len, &value);
    if (status) return status;
    *out = mark(run, value, is_markup, &status);
    return status;
}

enum status jinja_str_part(struct jinja_run *run, const struct jinja_string *string, size_t start,
                           size_t end, struct jinja_value *out) {
    if (start == 0 && end == string->len) {
        *out = jinja_value_of_string(string);
        return OK;
    }
    enum status status = jinja_str_pay_bytes(run, end - start);
    if (status) return status;
    return jinja_str_borrow(run, string->data + start, end - start, string->is_markup, out);
}

enum status jinja_str_finish(struct jinja_run *run, struct jinja_text *text, bool is_markup,
                             struct jinja_value *out) {
    struct jinja_value value;
    enum status status = jinja_text_finish(run, text, &value);
    if (status) return status;
    *out = mark(run, value, is_markup, &status);
    return status;
}

enum status jinja_str_plain(struct jinja_run *run, struct jinja_value value,
                            const struct jinja_string **out) {
    enum status status = jinja_value_to_string(run, value, out);
    if (status || !(*out)->is_markup) return status;
    struct jinja_string *plain = jinja_run_alloc(run, sizeof *plain);
    if (!plain) return jinja_run_status(run);
    *plain = **out;
    plain->is_markup = false;
    *out = plain;
    return OK;
}

enum status jinja_str_append_char(struct jinja_run *run, struct jinja_text *text, uint32_t c) {
    char bytes[4];
    size_t size = utf8_write(c, bytes);
    return jinja_text_append(run, text, bytes, size);
}

enum status jinja_str_append_repeated(struct jinja_run *run, struct jinja_text *text,
                                      const struct jinja_string *unit, int64_t count) {
    if (count <= 0 || unit->len == 0) return OK;
    size_t total;
    if (__builtin_mul_overflow((size_t)count, (size_t)unit->len, &total) || total > UINT32_MAX)
        return jinja_run_fail(run, "a string of %" PRId64 " characters is too long", count);
    enum status status = jinja_str_pay_bytes(run, total);
    // Pieces of 64 bytes and more, so that the appends are few.
    char block[256];
    size_t per_block = unit->len < sizeof block ? sizeof block / unit->len : 0;
    for (size_t i = 0; i < per_block; i++) memcpy(block + i * unit->len, unit->data, unit->len);
    for (size_t left = (size_t)count; left && !status;) {
        if (per_block == 0) {
            status = jinja_text_append_string(run, text, unit);
            left--;
        } else {
            size_t now = left < per_block ? left : per_block;
            status = jinja_text_append(run, text, block, now * unit->len);
            left -= now;
        }
    }
    return status;
}

enum status jinja_str_escape(struct jinja_run *run, struct jinja_text *text,
                             const struct jinja_string *string) {
    enum status status = jinja_str_pay_chars(run, string->len);
    size_t start = 0;
    for (size_t i = 0; i < string->len && !status; i++) {
        const char *escaped;
        switch (string->data[i]) {
        case '&':
            escaped = "&amp;";
            break;
        case '<':
            escaped = "&lt;";
            break;
        case '>':
            escaped = "&gt;";
            break;
        case '\'':
            escaped = "&#39;";
            break;
        case '"':
            escaped = "&#34;";
            break;
        default:
            continue;
        }
        status = jinja_text_append(run, text, string->data + start, i - start);
        if (!status) status = jinja_text_append_str(run, text, escaped);
        start = i + 1;
    }
    if (status) return status;
    return jinja_text_append(run, text, string->data + start, string->len - start);
}

static bool strips(const struct jinja_string *chars, uint32_t c) {
    if (!chars) return jinja_char_is_space(c);
    for (size_t at = 0; at < chars->len;) {
        if (jinja_str_next(chars, &at) == c) return true;
    }
    return false;
}

enum status jinja_str_strip(struct jinja_run *run, const struct jinja_string *string,
                            const struct jinja_string *chars, int sides, struct jinja_value *out) {
    size_t start = 0, end = string->len, looked = 0;
    // With a long set, looking at a character costs more.
    uint64_t price = chars ? chars->num_chars / 16 : 0;
    enum status status = OK;
    while ((sides & JINJA_STR_LEFT) && start < end && !status) {
        size_t next = start;
        if (!strips(chars, jinja_str_next(string, &next))) break;
        start = next;
        looked++;
        if (price) status = jinja_run_pay(run, price);
    }
    while ((sides & JINJA_STR_RIGHT) && end > start && !status) {
        size_t previous = end;
        if (!strips(chars, jinja_str_previous(string, &previous))) break;
        end = previous;
        looked++;
        if (price) status = jinja_run_pay(run, price);
    }
    if (!status) status = jinja_str_pay_chars(run, looked);
    if (status) return status;
    return jinja_str_part(run, string, start, end, out);
}

enum status jinja_str_pad(struct jinja_run *run, const struct jinja_string *string, int64_t width,
                          const struct jinja_string *fill, enum jinja_str_align align,
                          struct jinja_value *out) {
    if (fill->num_chars != 1)
        return jinja_run_fail(run, "the fill character must be exactly one character long");
    if (width <= (int64_t)string->num_chars) {
        *out = jinja_value_of_string(string);
        return OK;
    }
    int64_t pad = width - (int64_t)string->num_chars;
    // An odd rest goes to the left when the width is odd, as CPython does it.
    int64_t left = 0;
    if (align == JINJA_STR_ALIGN_RIGHT) left = pad;
    if (align == JINJA_STR_ALIGN_CENTER) left = pad / 2 + (pad & width & 1);
    struct jinja_text text = {0};
    enum status status = jinja_str_append_repeated(run, &text, fill, left);
    if (!status) status = jinja_str_pay_bytes(run, string->len);
    if (!status) status = jinja_text_append_string(run, &text, string);
    if (!status) status = jinja_str_append_repeated(run, &text, fill, pad - left);
    if (status) return status;
    return jinja_str_finish(run, &text, string->is_markup, out);
}

enum status jinja_str_find(struct jinja_run *run, const struct jinja_string *string, size_t start,
                           size_t end, const struct jinja_string *needle, size_t *out) {
    enum status status = jinja_str_pay_bytes(run, needle->len);
    return status ? status : jinja_string_find(run, string, start, end, needle, out);
}

enum status jinja_str_rfind(struct jinja_run *run, const struct jinja_string *string, size_t start,
                            size_t end, const struct jinja_string *needle, size_t *out) {
    *out = SIZE_MAX;
    if (start > end || needle->len > end - start) return jinja_str_pay_bytes(run, 0);
    enum status status = jinja_str_pay_bytes(run, end - start);
    for (size_t at = end - needle->len; !status; at--) {
        // Only a place whose first byte matches is compared.
        if (needle->len == 0 || string->data[at] == needle->data[0]) {
            status = jinja_str_pay_bytes(run, needle->len);
            if (!status && memcmp(string->data + at, needle->data, needle->len) == 0) {
                *out = at;
                return OK;
            }
        }
        if (at == start) break;
    }
    return status;
}

// Before each character and at the end, as "abc".replace("", "-") does.
static enum status replace_empty(struct jinja_run *run, const struct jinja_string *string,
                                 const struct jinja_string *new, int64_t count,
                                 struct jinja_text *text) {
    enum status status = OK;
    size_t at = 0;
    for (int64_t done = 0; !status && (count < 0 || done < count); done++) {
        status = jinja_str_pay_bytes(run, new->len);
        if (!status) status = jinja_text_append_string(run, text, new);
        if (status || at >= string->len) break;
        size_t start = at;
        jinja_str_next(string, &at);
        status = jinja_text_append(run, text, string->data + start, at - start);
    }
    if (status) return status;
    return jinja_text_append(run, text, string->data + at, string->len - at);
}

enum status jinja_str_replace(struct jinja_run *run, const struct jinja_string *string,
                              const struct jinja_string *old, const struct jinja_string *new,
                              int64_t count, bool is_markup, struct jinja_value *out) {
    struct jinja_text text = {0};
    enum status status = jinja_str_pay_bytes(run, string->len);
    if (!status && old->len == 0) {
        status = replace_empty(run, string, new, count, &text);
        if (status) return status;
        return jinja_str_finish(run, &text, is_markup, out);
    }
    size_t at = 0;
    for (int64_t done = 0; !status && (count < 0 || done < count); done++) {
        size_t found;
        status = jinja_str_find(run, string, at, string->len, old, &found);
        if (status || found == SIZE_MAX) break;
        status = jinja_text_append(run, &text, string->data + at, found - at);
        if (!status) status = jinja_str_pay_bytes(run, new->len);
        if (!status) status = jinja_text_append_string(run, &text, new);
        at = found + old->len;
    }
    if (status) return status;
    if (at == 0) { // nothing replaced: the string itself serves
        if (string->is_markup == is_markup) {
            *out = jinja_value_of_string(string);
            return OK;
        }
        return jinja_str_borrow(run, string->data, string->len, is_markup, out);
    }
    status = jinja_text_append(run, &text, string->data + at, string->len - at);
    if (status) return status;
    return jinja_str_finish(run, &text, is_markup, out);
}

enum status jinja_str_lines(struct jinja_run *run, const struct jinja_string *string,
                            bool keep_ends, struct jinja_list **out) {
    enum status status = jinja_str_pay_chars(run, string->len);
    if (!status) status = jinja_list_create(run, 4, out);
    size_t start = 0, at = 0;
    while (at < string->len && !status) {
        size_t end = at;
        if (!jinja_char_is_line_end(jinja_str_next(string, &at))) {
            if (at < string->len) continue;
            end = at; // the last line, unended
        } else if (string->data[end] == '\r' && at < string->len && string->data[at] == '\n') {
            at++;
        }
        struct jinja_value line;
        status = jinja_str_part(run, string, start, keep_ends ? at : end, &line);
        if (!status) status = jinja_list_append(run, *out, line);
        start = at;
    }
    return status;
}

enum status jinja_str_join(struct jinja_run *run, const struct jinja_string *separator,
                           const struct jinja_list *items, struct jinja_value *out) {
    struct jinja_text text = {0};
    enum status status = OK;
    for (size_t i = 0; i < items->len && !status; i++) {
        status = jinja_run_pay(run, 1);
        if (i && !status) status = jinja_text_append_string(run, &text, separator);
        const struct jinja_string *item;
        if (!status) status = jinja_value_to_string(run, items->items[i], &item);
        if (status) break;
        status = jinja_str_pay_bytes(run, item->len + separator->len);
        if (status) break;
        if (separator->is_markup && !item->is_markup)
            status = jinja_str_escape(run, &text, item);
        else
            status = jinja_text_append_string(run, &text, item);
    }
    if (status) return status;
    return jinja_str_finish(run, &text, separator->is_markup, out);
}
