#include "server/loop/exchange.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/os/clock.h"
#include "base/os/secret.h"
#include "base/text/sentence.h"
#include "server/http/origin.h"
#include "server/loop/server_log.h"

uint64_t api_unix_time(void) {
    return (uint64_t)time(NULL);
}

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

void exchange_begin(struct exchange *exchange, struct http_conn *conn) {
    *exchange = (struct exchange){.arrival = clock_seconds()};
    const struct http_request *request = http_conn_request(conn);
    bool has_head = request->method != NULL;
    const char *id = has_head ? http_request_field(request, "x-request-id") : NULL;
    if (id && is_good_id(id)) {
        snprintf(exchange->request_id, sizeof exchange->request_id, "%s", id);
    } else {
        snprintf(exchange->request_id, sizeof exchange->request_id, "%016llx",
                 (unsigned long long)secret_make());
    }
    if (!has_head) return;
    const char *origin = http_request_field(request, "origin");
    if (origin && origin_is_loopback(origin) && strlen(origin) < sizeof exchange->origin) {
        snprintf(exchange->origin, sizeof exchange->origin, "%s", origin);
    }
    const char *path = request->text.data + request->target;
    sentence_copy(exchange->method, sizeof exchange->method, request->method,
                  strlen(request->method));
    // What stands behind ? may be anybody's secret.
    sentence_copy(exchange->path, sizeof exchange->path, path, strcspn(path, "?"));
}

static void format_head(const struct exchange *exchange, char *out, size_t size, const char *more) {
    const char *ignored = exchange->ignored;
    int len = snprintf(out, size, "X-Request-Id: %s\r\n%s%s%s%s", exchange->request_id,
                       *ignored ? "X-Ignored-Members: " : "", ignored, *ignored ? "\r\n" : "",
                       more ? more : "");
    if (!exchange->origin[0] || len < 0 || (size_t)len >= size) return;
    snprintf(out + len, size - (size_t)len,
             "Access-Control-Allow-Origin: %s\r\n"
             "Access-Control-Expose-Headers: X-Request-Id, X-Ignored-Members\r\nVary: Origin\r\n",
             exchange->origin);
}

void exchange_reply(struct api *api, const struct exchange *exchange, struct http_conn *conn,
                    int status, const char *content_type, const char *head, const void *body,
                    size_t len) {
    char fields[2048];
    format_head(exchange, fields, sizeof fields, head);
    exchange_log(api, exchange, status);
    http_conn_reply(conn, status, content_type, fields, body, len);
}

void exchange_reply_json(struct api *api, const struct exchange *exchange, struct http_conn *conn,
                         int status, const struct json_out *body) {
    exchange_reply(api, exchange, conn, status, "application/json", NULL, body->buf.data,
                   body->buf.len);
}

void exchange_reply_refusal(struct api *api, const struct exchange *exchange,
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
    exchange_reply(api, exchange, conn, error->status, "application/json", head,
                   is_whole ? body->buf.data : instead,
                   is_whole ? body->buf.len : sizeof instead - 1);
}

void exchange_reply_error(struct api *api, const struct exchange *exchange, struct http_conn *conn,
                          const struct api_error *error) {
    struct json_out *out = &api->scratch;
    json_out_clear(out);
    api_error_write(out, error);
    exchange_reply_refusal(api, exchange, conn, error, out);
}

bool exchange_stream_begin(const struct exchange *exchange, struct http_conn *conn) {
    char fields[1024];
    format_head(exchange, fields, sizeof fields, NULL);
    return http_conn_stream_begin(conn, fields);
}

// ---- the log ----

static double milliseconds(double from, double to) {
    return to > from && from > 0 ? (to - from) * 1e3 : 0;
}

static void write_text(struct json_out *out, const struct exchange *exchange, int status,
                       double now) {
    server_log_begin(out, SERVER_LOG_TEXT);
    json_out_rawf(out, "%s %s %s %d", exchange->request_id,
                  exchange->method[0] ? exchange->method : "-",
                  exchange->path[0] ? exchange->path : "-", status);
    if (exchange->has_counts) {
        const struct nvllm_times *times = &exchange->times;
        json_out_rawf(out, " in=%u out=%u cached=%u finish=%s queue=%.1fms first=%.1fms",
                      exchange->num_prompt_tokens, exchange->num_generated_tokens,
                      exchange->num_cached_tokens, exchange->finish ? exchange->finish : "-",
                      milliseconds(times->arrival, times->first_scheduled),
                      milliseconds(times->arrival, times->first_token));
    }
    json_out_rawf(out, " total=%.1fms", milliseconds(exchange->arrival, now));
    if (exchange->ignored[0]) json_out_rawf(out, " warning: ignored %s", exchange->ignored);
    json_out_raw(out, "\n");
}

static void write_json(struct json_out *out, const struct exchange *exchange, int status,
                       double now) {
    server_log_begin(out, SERVER_LOG_JSON);
    json_out_raw(out, ",\"id\":");
    json_out_cstring(out, exchange->request_id);
    json_out_raw(out, ",\"method\":");
    json_out_cstring(out, exchange->method);
    json_out_raw(out, ",\"path\":");
    json_out_cstring(out, exchange->path);
    json_out_rawf(out, ",\"status\":%d", status);
    if (exchange->has_counts) {
        const struct nvllm_times *times = &exchange->times;
        json_out_rawf(out, ",\"prompt_tokens\":%u,\"completion_tokens\":%u,\"cached_tokens\":%u",
                      exchange->num_prompt_tokens, exchange->num_generated_tokens,
                      exchange->num_cached_tokens);
        json_out_raw(out, ",\"finish\":");
        json_out_cstring(out, exchange->finish);
        json_out_rawf(out, ",\"queue_ms\":%.1f,\"first_ms\":%.1f",
                      milliseconds(times->arrival, times->first_scheduled),
                      milliseconds(times->arrival, times->first_token));
    }
    json_out_rawf(out, ",\"total_ms\":%.1f", milliseconds(exchange->arrival, now));
    if (exchange->ignored[0]) {
        json_out_raw(out, ",\"ignored\":");
        json_out_cstring(out, exchange->ignored);
    }
    json_out_raw(out, "}\n");
}

void exchange_log(struct api *api, const struct exchange *exchange, int status) {
    metrics_answered(api->metrics, status);
    if (api->options->log == SERVER_LOG_NONE) return;
    struct json_out *out = &api->log_line;
    json_out_clear(out);
    if (api->options->log == SERVER_LOG_JSON) {
        write_json(out, exchange, status, clock_seconds());
    } else {
        write_text(out, exchange, status, clock_seconds());
    }
    if (!out->status) api->options->write_log(out->buf.data, out->buf.len, api->options->user_data);
}
