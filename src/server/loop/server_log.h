/* The lines of a server's log: one for each request (request_info.c), and a sentence for what else
 * happens. All begin with the time in UTC. With SERVER_LOG_JSON every line is an object. */
#ifndef SERVER_SERVER_LOG_H
#define SERVER_SERVER_LOG_H

#include <stdint.h>

#include "base/json/json_out.h"
#include "server/server.h"

enum { SERVER_LOG_TIME_BYTES = 32 };

// "2026-11-24T05:32:30.123Z"; milliseconds since 1970.
void server_log_format_time(char out[SERVER_LOG_TIME_BYTES], uint64_t unix_ms);
// Begins a request's line: the time and a blank, or {"time":"...".
void server_log_begin(struct json_out *out, enum server_log log);
// Writes "TIME nanovllm: sentence" or {"time": "...", "message": "sentence"}, whatever
// options->log is. Any thread.
void server_log_say(const struct server_options *options, const char *format, ...)
    PRINTF_LIKE(2, 3);

#endif
