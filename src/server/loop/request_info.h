/* What the log and the response headers need of one HTTP request: its id, the browser's origin,
 * when it came. All replies go through here, so each has its id, its CORS fields and its line in
 * the log. */
#ifndef SERVER_REQUEST_INFO_H
#define SERVER_REQUEST_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json/json_out.h"
#include "server/loop/api.h"
#include "server/loop/api_error.h"
#include "server/loop/server_options.h"

enum { REQUEST_INFO_IGNORED_BYTES = 512 };

struct request_info {
    char request_id[72]; // the client's X-Request-Id, or one of ours
    char origin[128]; // a loopback origin; "": none
    char method[24], path[64]; // safe to print, cut where they are long
    double arrival; // clock_seconds
    char ignored[REQUEST_INFO_IGNORED_BYTES]; // members of the request: "a, b"; "": none
    // Of a generation, for the log.
    bool has_counts;
    uint32_t num_prompt_tokens, num_generated_tokens, num_cached_tokens;
    struct nvllm_times times;
    const char *finish; // why it ended; NULL: other
};

void request_info_begin(struct request_info *info, struct http_conn *conn);
// A reply ends the request. `head` as http_conn_reply's.
void request_info_reply(struct api *api, const struct request_info *info, struct http_conn *conn,
                        int status, const char *content_type, const char *head, const void *body,
                        size_t len);
void request_info_reply_json(struct api *api, const struct request_info *info,
                             struct http_conn *conn, int status, const struct json_out *body);
void request_info_reply_error(struct api *api, const struct request_info *info,
                              struct http_conn *conn, const struct api_error *error);
// The same with another body than OpenAI's.
void request_info_reply_refusal(struct api *api, const struct request_info *info,
                                struct http_conn *conn, const struct api_error *error,
                                const struct json_out *body);
bool request_info_stream_begin(const struct request_info *info, struct http_conn *conn);
// The line of a request that has no reply above: a stream, or a client that went away (status 499).
void request_info_log(struct api *api, const struct request_info *info, int status);

// What is answered at once, with GET. `name` is the rest of the path where the route has one.
typedef void page_fn(struct api *api, const struct request_info *info, struct http_conn *conn,
                     const char *name);

// ---- lines of the log that are no request's ----

enum { SERVER_LOG_TIME_BYTES = 32 };

// "2026-11-24T05:32:30.123Z"; milliseconds since 1970.
void server_log_format_time(char out[SERVER_LOG_TIME_BYTES], uint64_t unix_ms);
// Begins a request's line: the time and a blank, or {"time":"...".
void server_log_begin(struct json_out *out, enum server_log log);
// Writes "TIME nanovllm: sentence" or {"time": "...", "message": "sentence"}, whatever
// options->log is. Any thread.
void server_log_say(const struct server_options *options, const char *format, ...)
    PRINTF_LIKE(2, 3);

// ---- names of this machine, in the fields Origin and Host: no page of another site has one ----

// "http://localhost:3000": whether it is this machine's.
bool origin_is_loopback(const char *origin);
// The name in a Host field, without its port. Returns its length; *name points into `host`.
size_t host_name(const char *host, const char **name);
// localhost, 127.x.y.z, ::1 (with or without brackets).
bool host_is_loopback(const char *name, size_t len);

#endif
