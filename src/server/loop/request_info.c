#include "server/loop/request_info.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/os/clock.h"
#include "base/os/secret.h"
#include "base/text/sentence.h"

// ---- names of this machine ----

bool host_is_loopback(const char *name, size_t len) {
    char text[64];
    if (len && name[0] == '[' && name[len - 1] == ']') {
        name++;
        len -= 2;
    }
    if (!len || len >= sizeof text) return false;
    memcpy(text, name, len);
    text[len] = '\0';
    for (char *c = text; *c; c++) {
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(text, "localhost") == 0) return true;
    if (inet_pton(AF_INET, text, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

size_t host_name(const char *host, const char **name) {
    *name = host;
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        return end ? (size_t)(end - host) + 1 : strlen(host);
    }
    return strcspn(host, ":");
}

bool origin_is_loopback(const char *origin) {
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t scheme_len = strlen(schemes[i]);
        if (strncmp(origin, schemes[i], scheme_len) != 0) continue;
        const char *name;
        size_t len = host_name(origin + scheme_len, &name);
        const char *rest = name + len;
        bool has_end =
            !*rest || (*rest == ':' && strspn(rest + 1, "0123456789") == strlen(rest + 1));
        return has_end && host_is_loopback(name, len);
    }
    return false;
}

// ---- lines of the log ----

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

// ---- replies ----

// An id of the client's is kept when it can stand in a log as it is.
static bool is_good_id(const char *id) {
    size_t len = strlen(id);
    if (!len || len > 64) return false;
    for (const char *c = id; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool digit = *c >= '0' && *c <= '9';
        if (!letter && !digit && !strchr("-_.:", *c)) return false;
    }
    return true;
}

void request_info_begin(struct request_info *info, struct http_conn *conn) {
    *info = (struct request_info){.arrival = clock_seconds()};
    const struct http_request *request = http_conn_request(conn);
    bool has_head = request->method != NULL;
    const char *id = has_head ? http_request_field(request, "x-request-id") : NULL;
    if (id && is_good_id(id)) {
        snprintf(info->request_id, sizeof info->request_id, "%s", id);
    } else {
        snprintf(info->request_id, sizeof info->request_id, "%016llx",
                 (unsigned long long)secret_make());
    }
    if (!has_head) return;
    const char *origin = http_request_field(request, "origin");
    if (origin && origin_is_loopback(origin) && strlen(origin) < sizeof info->origin) {
        snprintf(info->origin, sizeof info->origin, "%s", origin);
    }
    const char *path = request->text.data + request->target;
    sentence_copy(info->method, sizeof info->method, request->method, strlen(request->method));
    // What stands behind ? may be anybody's secret.
    sentence_copy(info->path, sizeof info->path, path, strcspn(path, "?"));
}

static void format_head(const struct request_info *info, char *out, size_t size, const char *more) {
    const char *ignored = info->ignored;
    int len = snprintf(out, size, "X-Request-Id: %s\r\n%s%s%s%s", info->request_id,
                       *ignored ? "X-Ignored-Members: " : "", ignored, *ignored ? "\r\n" : "",
                       more ? more : "");
    if (!info->origin[0] || len < 0 || (size_t)len >= size) return;
    snprintf(out + len, size - (size_t)len,
             "Access-Control-Allow-Origin: %s\r\n"
             "Access-Control-Expose-Headers: X-Request-Id, X-Ignored-Members\r\nVary: Origin\r\n",
             info->origin);
}

void request_info_reply(struct api *api, const struct request_info *info, struct http_conn *conn,
                        int status, const char *content_type, const char *head, const void *body,
                        size_t len) {
    char fields[2048];
    format_head(info, fields, sizeof fields, head);
    request_info_log(api, info, status);
    http_conn_reply(conn, status, content_type, fields, body, len);
}

void request_info_reply_json(struct api *api, const struct request_info *info,
                             struct http_conn *conn, int status, const struct json_out *body) {
    request_info_reply(api, info, conn, status, "application/json", NULL, body->buf.data,
                       body->buf.len);
}

void request_info_reply_refusal(struct api *api, const struct request_info *info,
                                struct http_conn *conn, const struct api_error *error,
                                const struct json_out *body) {
    char head[128] = "";
    if (error->status == 401) {
        snprintf(head, sizeof head, "WWW-Authenticate: Bearer\r\n");
    } else if (error->retry_after) {
        snprintf(head, sizeof head, "Retry-After: %d\r\n", error->retry_after);
    }
    // There may be no memory even for this.
    static const char instead[] =
        "{\"error\":{\"message\":\"the server has no memory for this\","
        "\"type\":\"unavailable_error\",\"param\":null,\"code\":\"out_of_memory\"}}";
    bool is_whole = !body->status;
    request_info_reply(api, info, conn, error->status, "application/json", head,
                       is_whole ? body->buf.data : instead,
                       is_whole ? body->buf.len : sizeof instead - 1);
}

void request_info_reply_error(struct api *api, const struct request_info *info,
                              struct http_conn *conn, const struct api_error *error) {
    struct json_out *out = &api->scratch;
    json_out_clear(out);
    api_error_write(out, error);
    request_info_reply_refusal(api, info, conn, error, out);
}

bool request_info_stream_begin(const struct request_info *info, struct http_conn *conn) {
    char fields[1024];
    format_head(info, fields, sizeof fields, NULL);
    return http_conn_stream_begin(conn, fields);
}

// ---- the log ----

static double milliseconds(double from, double to) {
    return to > from && from > 0 ? (to - from) * 1e3 : 0;
}

static void write_text(struct json_out *out, const struct request_info *info, int status,
                       double now) {
    server_log_begin(out, SERVER_LOG_TEXT);
    json_out_rawf(out, "%s %s %s %d", info->request_id, info->method[0] ? info->method : "-",
                  info->path[0] ? info->path : "-", status);
    if (info->has_counts) {
        const struct nvllm_times *times = &info->times;
        json_out_rawf(out, " in=%u out=%u cached=%u finish=%s queue=%.1fms first=%.1fms",
                      info->num_prompt_tokens, info->num_generated_tokens, info->num_cached_tokens,
                      info->finish ? info->finish : "-",
                      milliseconds(times->arrival, times->first_scheduled),
                      milliseconds(times->arrival, times->first_token));
    }
    json_out_rawf(out, " total=%.1fms", milliseconds(info->arrival, now));
    if (info->ignored[0]) json_out_rawf(out, " warning: ignored %s", info->ignored);
    json_out_raw(out, "\n");
}

static void write_json(struct json_out *out, const struct request_info *info, int status,
                       double now) {
    server_log_begin(out, SERVER_LOG_JSON);
    json_out_raw(out, ",\"id\":");
    json_out_cstring(out, info->request_id);
    json_out_raw(out, ",\"method\":");
    json_out_cstring(out, info->method);
    json_out_raw(out, ",\"path\":");
    json_out_cstring(out, info->path);
    json_out_rawf(out, ",\"status\":%d", status);
    if (info->has_counts) {
        const struct nvllm_times *times = &info->times;
        json_out_rawf(out, ",\"prompt_tokens\":%u,\"completion_tokens\":%u,\"cached_tokens\":%u",
                      info->num_prompt_tokens, info->num_generated_tokens, info->num_cached_tokens);
        json_out_raw(out, ",\"finish\":");
        json_out_cstring(out, info->finish);
        json_out_rawf(out, ",\"queue_ms\":%.1f,\"first_ms\":%.1f",
                      milliseconds(times->arrival, times->first_scheduled),
                      milliseconds(times->arrival, times->first_token));
    }
    json_out_rawf(out, ",\"total_ms\":%.1f", milliseconds(info->arrival, now));
    if (info->ignored[0]) {
        json_out_raw(out, ",\"ignored\":");
        json_out_cstring(out, info->ignored);
    }
    json_out_raw(out, "}\n");
}

void request_info_log(struct api *api, const struct request_info *info, int status) {
    metrics_answered(api->metrics, status);
    if (api->options->log == SERVER_LOG_NONE) return;
    struct json_out *out = &api->log_line;
    json_out_clear(out);
    if (api->options->log == SERVER_LOG_JSON) {
        write_json(out, info, status, clock_seconds());
    } else {
        write_text(out, info, status, clock_seconds());
    }
    if (!out->status) api->options->write_log(out->buf.data, out->buf.len, api->options->user_data);
}
