/* Written by hand rather than with jansson. A result line grows piece by piece as tokens arrive, so
 * its log-probabilities never become a tree of a thousand objects. */
#include "base/json/json_text.h"

#include <math.h>
#include <stdio.h>

#include "base/text/c_locale.h"

#include "base/text/utf8.h"

// The escape of a byte that a JSON string cannot hold; NULL: the byte needs none.
static const char *escape(unsigned char c, char *scratch, size_t size) {
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        break;
    }
    if (c >= 0x20 && c != 0x7f) return NULL;
    snprintf(scratch, size, "\\u%04x", c);
    return scratch;
}

enum status json_text_string(struct buf *out, const char *text, size_t len, struct err *err) {
    const unsigned char *bytes = (const unsigned char *)text;
    enum status status = buf_append(out, "\"", 1, err);
    size_t run = 0; // bytes [run, i) need no escape and are not written yet
    size_t i = 0;
    while (i < len && !status) {
        char scratch[8];
        size_t char_len = utf8_char_bytes(text + i, len - i);
        const char *instead = char_len ? escape(bytes[i], scratch, sizeof scratch) : "\xef\xbf\xbd";
        if (!instead) {
            i += char_len;
            continue;
        }
        status = buf_append(out, text + run, i - run, err);
        if (!status) status = buf_append_str(out, instead, err);
        run = ++i;
    }
    if (!status && len > run) status = buf_append(out, text + run, len - run, err);
    return status ? status : buf_append(out, "\"", 1, err);
}

enum status json_text_ids(struct buf *out, const int32_t *ids, size_t num_ids, struct err *err) {
    enum status status = buf_reserve(out, num_ids * 12 + 2, err);
    if (!status) status = buf_append(out, "[", 1, err);
    for (size_t i = 0; i < num_ids && !status; i++) {
        status = buf_appendf(out, err, i ? ",%d" : "%d", ids[i]);
    }
    return status ? status : buf_append(out, "]", 1, err);
}

enum status json_text_float(struct buf *out, float value, struct err *err) {
    if (!isfinite(value)) return buf_append_str(out, "null", err);
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        c_locale_snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (c_locale_strtof(text, NULL) == value) break;
    }
    return buf_append_str(out, text, err);
}

enum status json_text_double(struct buf *out, double value, struct err *err) {
    if (!isfinite(value)) return buf_append_str(out, "null", err);
    return buf_appendf(out, err, "%.6f", value);
}
