#include "base/json/json_out.h"

#include <stdarg.h>
#include <string.h>

#include "base/json/json_text.h"
#include "base/json/jwrite.h"
#include "base/text/c_locale.h"

void json_out_clear(struct json_out *out) {
    buf_clear(&out->buf);
    out->status = OK;
}

void json_out_fini(struct json_out *out) {
    buf_fini(&out->buf);
    out->status = OK;
}

void json_out_check(struct json_out *out, enum status status) {
    if (!out->status) out->status = status;
}

void json_out_take_list(struct json_out *out, struct json_out *list) {
    json_out_raw(out, "[");
    json_out_raw(out, list->buf.len ? list->buf.data : "");
    json_out_raw(out, "]");
    json_out_check(out, list->status);
    json_out_clear(list);
}

void json_out_raw(struct json_out *out, const char *text) {
    if (!out->status) out->status = buf_append_str(&out->buf, text, NULL);
}

void json_out_bytes(struct json_out *out, const char *bytes, size_t len) {
    if (!out->status) out->status = buf_append(&out->buf, bytes, len, NULL);
}

// A format would take ten times as long, which counts in what is written for each token.
void json_out_uint(struct json_out *out, uint64_t value) {
    char digits[20];
    char *at = digits + sizeof digits;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    json_out_bytes(out, at, (size_t)(digits + sizeof digits - at));
}

void json_out_rawf(struct json_out *out, const char *format, ...) {
    if (out->status) return;
    char text[512];
    va_list args;
    va_start(args, format);
    int len = c_locale_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    bool fits = len >= 0 && (size_t)len < sizeof text;
    out->status = fits ? buf_append(&out->buf, text, (size_t)len, NULL) : ERR_INVALID;
}

void json_out_string(struct json_out *out, const char *text, size_t len) {
    if (!out->status) out->status = json_text_string(&out->buf, text, len, NULL);
}

void json_out_cstring(struct json_out *out, const char *text) {
    if (text) {
        json_out_string(out, text, strlen(text));
    } else {
        json_out_raw(out, "null");
    }
}

void json_out_float(struct json_out *out, float value) {
    if (!out->status) out->status = json_text_float(&out->buf, value, NULL);
}

void json_out_floats(struct json_out *out, const float *values, size_t count) {
    json_out_raw(out, "[");
    for (size_t i = 0; i < count; i++) {
        if (i) json_out_raw(out, ",");
        json_out_float(out, values[i]);
    }
    json_out_raw(out, "]");
}

// 3 bytes become 4 characters of 6 bits.
void json_out_base64(struct json_out *out, const void *bytes, size_t len) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    json_out_raw(out, "\"");
    if (!out->status) out->status = buf_reserve(&out->buf, (len + 2) / 3 * 4, NULL);
    if (out->status) return;
    char *to = out->buf.data + out->buf.len;
    for (size_t i = 0; i < len; i += 3, to += 4) {
        size_t left = len - i;
        unsigned group = (unsigned)from[i] << 16;
        if (left > 1) group |= (unsigned)from[i + 1] << 8;
        if (left > 2) group |= from[i + 2];
        to[0] = digits[group >> 18];
        to[1] = digits[group >> 12 & 63];
        to[2] = left > 1 ? digits[group >> 6 & 63] : '=';
        to[3] = left > 2 ? digits[group & 63] : '=';
    }
    out->buf.len = (size_t)(to - out->buf.data);
    json_out_raw(out, "\"");
}

void json_out_ids(struct json_out *out, const int32_t *ids, size_t num_ids) {
    if (!out->status) out->status = json_text_ids(&out->buf, ids, num_ids, NULL);
}

void json_out_value(struct json_out *out, const json_t *value) {
    if (!out->status) {
        out->status = jwrite(&out->buf, value, JSON_ENCODE_ANY | JSON_COMPACT, "answer", NULL);
    }
}
