/* What the log and the response headers need of one HTTP request: its id, the browser's origin,
 * when it came. All replies go through here, so each has its id, its CORS fields and its line in
 * the log. */
#ifndef SERVER_REQUEST_INFO_H
#define SERVER_REQUEST_INFO_H

#include "server/loop/api.h"
#include "server/loop/api_error.h"

enum { REQUEST_INFO_IGNORED_BYTES = 400 };

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

#endif
