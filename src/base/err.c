#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/sentence.h"

enum status err_set(struct err *err, enum status status, const char *format, ...) {
    if (!err) return status;
    char message[sizeof err->message]; // an argument may be err's own message
    va_list args;
    va_start(args, format);
    size_t len = sentence_format(message, sizeof message, format, args);
    va_end(args);
    memcpy(err->message, message, len + 1);
    err->status = status;
    return status;
}

enum status err_prefix(struct err *err, enum status status, const char *format, ...) {
    if (!err) return status;
    char message[2 * sizeof err->message];
    va_list args;
    va_start(args, format);
    size_t len = sentence_format(message, sizeof err->message, format, args);
    va_end(args);
    int more = snprintf(message + len, sizeof message - len, ": %s", err->message);
    sentence_copy(err->message, sizeof err->message, message, len + (size_t)more);
    err->status = status;
    return status;
}

enum status err_nomem(struct err *err, const char *what) {
    return err_set(err, ERR_NOMEM, "out of memory: %s", what);
}

const char *status_name(enum status status) {
    switch (status) {
    case OK:
        return "ok";
    case ERR_INVALID:
        return "invalid";
    case ERR_FORMAT:
        return "format";
    case ERR_IO:
        return "io";
    case ERR_NOMEM:
        return "nomem";
    case ERR_CAPACITY:
        return "capacity";
    case ERR_UNSUPPORTED:
        return "unsupported";
    case ERR_DEVICE:
        return "device";
    case ERR_INTERRUPTED:
        return "interrupted";
    }
    return "unknown";
}
