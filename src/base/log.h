/* One line to stderr, "nanovllm: <level>: <text>", for facts that the user should know unasked.
 * The level is the program's only mutable global. A library never logs errors: it returns them. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/compiler.h"

enum log_level { LOG_QUIET, LOG_WARNING, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); // default LOG_WARNING
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
