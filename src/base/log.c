#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/sentence.h"

static atomic_int level_max = LOG_WARNING;

void log_set_level(enum log_level level) {
    atomic_store_explicit(&level_max, (int)level, memory_order_relaxed);
}

void log_write(enum log_level level, const char *format, ...) {
    static const char *const names[] = {"", "warning", "info", "debug"};
    if ((int)level > atomic_load_explicit(&level_max, memory_order_relaxed)) return;
    char text[SENTENCE_BYTES_MAX]; // one write, so that lines of several threads do not mix
    va_list args;
    va_start(args, format);
    sentence_format(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "nanovllm: %s: %s\n", names[level], text);
}
