#include "base/text/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"

void buf_fini(struct buf *buf) {
    if (!buf) return;
    free(buf->data);
    *buf = (struct buf){0};
}

void buf_clear(struct buf *buf) {
    buf->len = 0;
    if (buf->data) buf->data[0] = '\0';
}

enum status buf_reserve(struct buf *buf, size_t extra, struct err *err) {
    if (extra >= SIZE_MAX / 2 - buf->len) return err_nomem(err, "buffer");
    size_t needed = buf->len + extra + 1;
    if (needed <= buf->capacity) return OK;
    size_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity < needed) capacity *= 2;
    char *data = realloc(buf->data, capacity);
    if (!data) return err_nomem(err, "buffer");
    if (!buf->data) data[0] = '\0';
    buf->data = data;
    buf->capacity = capacity;
    return OK;
}

enum status buf_append(struct buf *buf, const void *bytes, size_t len, struct err *err) {
    enum status status = buf_reserve(buf, len, err);
    if (status) return status;
    if (len) memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return OK;
}

enum status buf_append_str(struct buf *buf, const char *str, struct err *err) {
    return buf_append(buf, str, strlen(str), err);
}

enum status buf_appendf(struct buf *buf, struct err *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = c_locale_vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) return err_set(err, ERR_INVALID, "text cannot be formatted");
    enum status status = buf_reserve(buf, (size_t)n, err);
    if (status) return status;
    va_start(args, format);
    c_locale_vsnprintf(buf->data + buf->len, (size_t)n + 1, format, args);
    va_end(args);
    buf->len += (size_t)n;
    return OK;
}
