#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text/sentence.h"

void check_failed(const char *file, int line, const char *condition, const char *format, ...) {
    char values[SENTENCE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    sentence_format(values, sizeof values, format, args);
    va_end(args);
    fprintf(stderr, "nanovllm: internal error at %s:%d: %s does not hold (%s)\n", file, line,
            condition, values);
    abort();
}
