/* One line to stderr, "nanovllm: <level>: <text>", for facts that the user should know unasked.
 * Level and writer are the program's only mutable globals. A library never logs errors: it returns
 * them. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum log_level { LOG_QUIET, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); // default LOG_NOTICE
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

// Says what takes long: "nanovllm: <text>", once, at LOG_NOTICE. On a terminal the line also shows
// how far it is, and is drawn again at most ten times a second.
struct log_progress {
    bool is_shown;
    double drawn_at; // clock_seconds
};
// `done` >= 1 of `total` parts are done. *progress is all-zero at first.
void log_progress(struct log_progress *progress, uint32_t done, uint32_t total, const char *format,
                  ...) PRINTF_LIKE(4, 5);
void log_progress_end(struct log_progress *progress); // ends the line, where there is one

// Gets the lines in place of stderr: "warning: <text>", without a newline; what log_progress says
// once, without how far it is. Any thread.
struct log_writer {
    void (*write)(const char *sentence, void *user_data);
    void *user_data;
};
void log_set_writer(const struct log_writer *writer); // borrowed; NULL: stderr, the default

#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
