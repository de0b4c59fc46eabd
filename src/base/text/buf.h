/* A growable byte buffer. All-zero is a valid empty buffer; `data` is NUL-terminated whenever it
 * is not NULL (the NUL is not counted in `len`). */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>

#include "base/err.h"

struct buf {
    char *data;
    size_t len;
    size_t capacity; // bytes allocated
};

void buf_fini(struct buf *buf); // frees and zeroes; NULL and empty are fine
void buf_clear(struct buf *buf); // len = 0, keeps the allocation
MUST_USE enum status buf_reserve(struct buf *buf, size_t extra,
                                 struct err *err); // capacity for `extra` more
MUST_USE enum status buf_append(struct buf *buf, const void *bytes, size_t len, struct err *err);
MUST_USE enum status buf_append_str(struct buf *buf, const char *str, struct err *err);
MUST_USE enum status buf_appendf(struct buf *buf, struct err *err, const char *format, ...)
    PRINTF_LIKE(3, 4);

#endif
