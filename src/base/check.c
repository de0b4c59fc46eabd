#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *file, int line, const char *condition, const char *format, ...) {
    fprintf(stderr, "nanovllm: internal error at %s:%d: %s does not hold (", file, line, condition);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(")\n", stderr);
    abort();
}
