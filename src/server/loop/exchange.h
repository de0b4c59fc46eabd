/* One HTTP request and its answer as the log and the head of the answer know it: the id, the
 * browser's origin, when it came. Replies go through here, so that each has its id, its CORS fields
 * and its line in the log. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include "server/loop/api.h"
#include "server/loop/api_error.h"

enum { EXCHANGE_IGNORED_BYTES = 400 };

struct exchange {
    char request_id[72]; // the client's X-Request-Id, or one of ours
    char origin[128]; // a loopback origin; "": none
    char method[24], path[64]; // safe to print, cut where they are long
    double arrival; // clock_seconds
    char ignored[EXCHANGE_IGNORED_BYTES]; // members of the request: "a, b"; "": none
    // Of a generation, for the log.
    bool has_counts;
    uint32_t num_prompt_tokens, num_generated_tokens, num_cached_tokens;
    struct nvllm_times times;
    const char *finish; // why it ended; NULL: other
};

void exchange_begin(struct exchange *exchange, struct http_conn *conn);
// Replies end the exchange. `head` as http_conn_reply's.
void exchange_reply(struct api *api, const struct exchange *exchange, struct http_conn *conn,
                    int status, const char *content_type, const char *head, const void *body,
                    size_t len);
void exchange_reply_json(struct api *api, const struct exchange *exchange, struct http_conn *conn,
                         int status, const struct json_out *body);
void exchange_reply_error(struct api *api, const struct exchange *exchange, struct http_conn *conn,
                          const struct api_error *error);
// The same with another body than OpenAI's.
void exchange_reply_refusal(struct api *api, const struct exchange *exchange,
                            struct http_conn *conn, const struct api_error *error,
                            const struct json_out *body);
bool exchange_stream_begin(const struct exchange *exchange, struct http_conn *conn);
// The line of a request that has no reply above: a stream, or a client that went away (status 499).
void exchange_log(struct api *api, const struct exchange *exchange, int status);

#endif
