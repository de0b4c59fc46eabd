#include "server/loop/server_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/text/sentence.h"

void server_log_format_time(char out[SERVER_LOG_TIME_BYTES], uint64_t unix_ms) {
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    snprintf(out, SERVER_LOG_TIME_BYTES, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
             (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
             (unsigned)tm.tm_sec % 100, (unsigned)(unix_ms % 1000));
}

void server_log_begin(struct json_out *out, enum server_log log) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char time[SERVER_LOG_TIME_BYTES];
    server_log_format_time(time, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
    json_out_rawf(out, log == SERVER_LOG_JSON ? "{\"time\":\"%s\"" : "%s ", time);
}

void server_log_say(const struct server_options *options, const char *format, ...) {
    char sentence[SENTENCE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    sentence_format(sentence, sizeof sentence, format, args);
    va_end(args);
    struct json_out out = {0};
    server_log_begin(&out, options->log);
    if (options->log == SERVER_LOG_JSON) {
        json_out_raw(&out, ",\"message\":");
        json_out_cstring(&out, sentence);
        json_out_raw(&out, "}\n");
    } else {
        json_out_raw(&out, "nanovllm: ");
        json_out_raw(&out, sentence);
        json_out_raw(&out, "\n");
    }
    if (!out.status) options->write_log(out.buf.data, out.buf.len, options->user_data);
    json_out_fini(&out);
}
