#include "base/json/json_span.h"

#include <string.h>

#include "base/text/blank.h"
#include "base/text/buf.h"
#include "base/text/utf8.h"

bool json_span_is(struct json_span span, const char *text) {
    return span.len == strlen(text) && memcmp(span.text, text, span.len) == 0;
}

const char *json_skip_spaces(const char *p, const char *end) {
    while (p < end && is_blank(*p)) p++;
    return p;
}

const char *json_skip_string(const char *p, const char *end) {
    for (p++; p < end; p++) {
        if (*p == '"') return p + 1;
        if (*p == '\\') p++;
    }
    return NULL;
}

const char *json_skip_value(const char *p, const char *end) {
    size_t depth = 0;
    while (p < end) {
        if (*p == '"') {
            p = json_skip_string(p, end);
            if (!p) return NULL;
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            if (depth == 0) return p;
            depth--;
            p++;
        } else if (depth == 0 && (*p == ',' || is_blank(*p))) {
            return p;
        } else {
            p++;
            continue; // inside a number or word, or between values
        }
        if (depth == 0) return p;
    }
    return depth ? NULL : p;
}

bool json_next_key(const char **p, const char *end, struct json_span *key) {
    const char *q = json_skip_spaces(*p, end);
    if (q < end && (*q == ',' || *q == '{')) q = json_skip_spaces(q + 1, end);
    if (q == end || *q != '"') return false;
    key->text = q + 1;
    q = json_skip_string(q, end);
    if (!q) return false;
    key->len = (size_t)(q - key->text) - 1;
    q = json_skip_spaces(q, end);
    if (q == end || *q != ':') return false;
    *p = json_skip_spaces(q + 1, end);
    return *p < end;
}

// The span that begins first at or after `from`; NULL when there is none.
static const struct json_span *next_span(const struct json_span *spans, size_t num_spans,
                                         const char *from) {
    const struct json_span *next = NULL;
    for (size_t i = 0; i < num_spans; i++) {
        const struct json_span *span = &spans[i];
        if (!span->text || span->text < from) continue;
        if (!next || span->text < next->text) next = span;
    }
    return next;
}

enum status json_span_read_rest(json_t **root, struct json_span text, const struct json_span *spans,
                                size_t num_spans, json_read_fn *read, const char *what,
                                struct err *err) {
    size_t valid = utf8_valid_prefix(text.text, text.len);
    if (valid != text.len) {
        return err_set(err, ERR_FORMAT, "%s is not UTF-8 at byte %zu", what, valid);
    }
    struct buf rest = {0};
    enum status status = OK;
    const char *p = text.text;
    const struct json_span *span;
    while (!status && (span = next_span(spans, num_spans, p))) {
        status = buf_append(&rest, p, (size_t)(span->text - p), err);
        if (!status) status = buf_append_str(&rest, *span->text == '{' ? "{}" : "[]", err);
        p = span->text + span->len;
    }
    bool is_whole = p == text.text;
    if (!status) status = buf_append(&rest, p, text.len - (size_t)(p - text.text), err);
    if (!status) status = read(root, rest.data ? rest.data : "", rest.len, what, err);
    buf_fini(&rest);
    if (status == ERR_FORMAT && !is_whole) {
        // A position in the shortened text would mislead: parse the whole text for the message.
        json_t *whole = NULL;
        enum status other = read(&whole, text.text, text.len, what, err);
        json_decref(whole);
        if (other) status = other;
    }
    return status;
}
