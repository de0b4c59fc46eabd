#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status err_set(struct err *err, enum status status, const char *format, ...) {
    if (!err) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->status = status;
    return status;
}

enum status err_prefix(struct err *err, enum status status, const char *format, ...) {
    if (!err) return status;
    char tail[sizeof err->message];
    memcpy(tail, err->message, sizeof tail);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used + 3 < sizeof err->message) {
        size_t len = strlen(tail);
        size_t room = sizeof err->message - used - 3;
        if (len > room) len = room;
        memcpy(err->message + used, ": ", 2);
        memcpy(err->message + used + 2, tail, len);
        err->message[used + 2 + len] = '\0';
    }
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
    }
    return "unknown";
}
