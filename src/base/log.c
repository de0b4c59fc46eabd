#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/text/sentence.h"

static atomic_int level_max = LOG_NOTICE;
static _Atomic(const struct log_writer *) the_writer;
static const double redraw_seconds = 0.1;

void log_set_level(enum log_level level) {
    atomic_store_explicit(&level_max, (int)level, memory_order_relaxed);
}

void log_set_writer(const struct log_writer *writer) {
    atomic_store(&the_writer, writer);
}

static bool is_silent(enum log_level level) {
    return (int)level > atomic_load_explicit(&level_max, memory_order_relaxed);
}

void log_write(enum log_level level, const char *format, ...) {
    static const char *const names[] = {"", "warning", "notice", "info", "debug"};
    if (is_silent(level)) return;
    char text[SENTENCE_BYTES_MAX]; // one write, so that lines of several threads do not mix
    va_list args;
    va_start(args, format);
    sentence_format(text, sizeof text, format, args);
    va_end(args);
    const struct log_writer *writer = atomic_load(&the_writer);
    if (!writer) {
        fprintf(stderr, "nanovllm: %s: %s\n", names[level], text);
        return;
    }
    char line[sizeof text + 16];
    snprintf(line, sizeof line, "%s: %s", names[level], text);
    writer->write(line, writer->user_data);
}

void log_progress(struct log_progress *progress, uint32_t done, uint32_t total, const char *format,
                  ...) {
    const struct log_writer *writer = atomic_load(&the_writer);
    bool is_terminal = !writer && isatty(STDERR_FILENO);
    double now = clock_seconds();
    if (is_silent(LOG_NOTICE) || (progress->is_shown && !is_terminal)) return;
    if (progress->is_shown && done < total && now - progress->drawn_at < redraw_seconds) return;
    progress->is_shown = true;
    progress->drawn_at = now;
    char text[SENTENCE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    sentence_format(text, sizeof text, format, args);
    va_end(args);
    if (is_terminal) {
        fprintf(stderr, "\rnanovllm: %s: %u %%\033[K", text,
                (unsigned)(100 * (uint64_t)done / total));
        fflush(stderr);
    } else if (writer) {
        writer->write(text, writer->user_data);
    } else {
        fprintf(stderr, "nanovllm: %s\n", text);
    }
}

void log_progress_end(struct log_progress *progress) {
    if (progress->is_shown && !atomic_load(&the_writer) && isatty(STDERR_FILENO))
        fputc('\n', stderr);
    *progress = (struct log_progress){0};
}
