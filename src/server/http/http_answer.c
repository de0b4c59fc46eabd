/* Answers in HTTP's form: heads, whole bodies, and streams with the bounds on a slow reader. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "server/http/http_conn.h"
#include "server/http/http_internal.h"

// ---- heads ----

static const char *reason_of(int status) {
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status) return reasons[i].reason;
    }
    return "Unknown";
}

// "Sun, 06 Nov 1994 08:49:37 GMT"
static void format_date(char *out, size_t size) {
    static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    snprintf(out, size, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday], tm.tm_mday,
             months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static void write_head(struct http_conn *conn, int status, const char *content_type,
                       const char *head) {
    char date[64];
    format_date(date, sizeof date);
    http_send_format(conn, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: nanovllm\r\n", status,
                     reason_of(status), date);
    if (content_type) http_send_format(conn, "Content-Type: %s\r\n", content_type);
    if (head) http_send_text(conn, head);
}

static bool wants_close(const struct http_conn *conn) {
    // Where others wait for room, a connection serves one request more and no second one.
    const struct http_server *server = conn->server;
    if (conn->close_after || server->is_draining || server->others_wait || !conn->reader) {
        return true;
    }
    const struct http_request *request = http_reader_request(conn->reader);
    return !request->method || !request->keep_alive;
}

static void write_connection(struct http_conn *conn) {
    const struct http_request *request = conn->reader ? http_reader_request(conn->reader) : NULL;
    conn->close_after = wants_close(conn);
    if (conn->close_after) {
        http_send_text(conn, "Connection: close\r\n");
    } else if (request->is_1_0) {
        http_send_text(conn, "Connection: keep-alive\r\n");
    }
}

// ---- whole answers ----

static bool is_head_request(const struct http_conn *conn) {
    const struct http_request *request = conn->reader ? http_reader_request(conn->reader) : NULL;
    return request && request->method && strcmp(request->method, "HEAD") == 0;
}

void http_conn_reply(struct http_conn *conn, int status, const char *content_type, const char *head,
                     const void *body, size_t len) {
    CHECK(conn->state == HTTP_ANSWERING && !conn->is_streaming, "state=%d", conn->state);
    write_head(conn, status, content_type, head);
    write_connection(conn);
    if (status != 204 && status != 304) http_send_format(conn, "Content-Length: %zu\r\n", len);
    http_send_text(conn, "\r\n");
    if (len && !is_head_request(conn)) http_send_bytes(conn, body, len);
    conn->body_bytes += len;
    if (conn->is_out_of_memory) {
        http_conn_close(conn);
    } else {
        http_conn_end_answer(conn);
    }
}

// ---- streams ----

bool http_conn_stream_begin(struct http_conn *conn, const char *head) {
    CHECK(conn->state == HTTP_ANSWERING && !conn->is_streaming, "state=%d", conn->state);
    conn->is_streaming = true;
    conn->is_chunked = !http_reader_request(conn->reader)->is_1_0;
    if (!conn->is_chunked) conn->close_after = true; // the end of the body is the connection's
    write_head(conn, 200, "text/event-stream; charset=utf-8", head);
    write_connection(conn);
    // What stands between must pass each event on at once.
    http_send_format(conn, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
                     conn->is_chunked ? "Transfer-Encoding: chunked\r\n" : "");
    conn->last_write = clock_seconds();
    http_conn_arm(conn, conn->server->limits.ping_seconds);
    if (!conn->is_out_of_memory) return true;
    http_conn_close(conn);
    return false;
}

// Whether the reader keeps up. A large write, as a prompt's echo with its log-probabilities is,
// counts only once the reader has caught up with what was written before it.
static bool keeps_up(struct http_conn *conn, size_t len) {
    size_t unsent = http_conn_num_unsent(conn);
    if (unsent <= HTTP_OUTPUT_BYTES_MAX) conn->large_bytes = 0;
    if (unsent > HTTP_OUTPUT_BYTES_MAX + conn->large_bytes) return false;
    if (len > HTTP_LARGE_BYTES_MIN) conn->large_bytes += len;
    return true;
}

// In hexadecimal digits.
static void write_chunk_size(struct http_conn *conn, size_t len) {
    char text[2 * sizeof len + 2];
    char *at = text + sizeof text;
    *--at = '\n';
    *--at = '\r';
    for (; len; len >>= 4) *--at = "0123456789abcdef"[len & 15];
    http_send_bytes(conn, at, (size_t)(text + sizeof text - at));
}

bool http_conn_stream_write(struct http_conn *conn, const void *bytes, size_t len) {
    if (!len) return true; // a chunk of no bytes would be the last one
    if (!keeps_up(conn, len)) {
        http_conn_close(conn);
        return false;
    }
    if (conn->is_chunked) write_chunk_size(conn, len);
    http_send_bytes(conn, bytes, len);
    if (conn->is_chunked) http_send_text(conn, "\r\n");
    conn->body_bytes += len;
    conn->last_write = clock_seconds();
    if (!conn->is_out_of_memory) return true;
    http_conn_close(conn);
    return false;
}

void http_conn_stream_end(struct http_conn *conn) {
    if (conn->is_chunked) http_send_text(conn, "0\r\n\r\n");
    if (conn->is_out_of_memory) {
        http_conn_close(conn);
    } else {
        http_conn_end_answer(conn);
    }
}

void http_answer_ping(struct http_conn *conn) {
    static const char ping[] = ": ping\n\n";
    if (!conn->is_streaming) return;
    double silent = clock_seconds() - conn->last_write;
    double period = conn->server->limits.ping_seconds;
    if (silent + 0.01 < period) {
        http_conn_arm(conn, period - silent);
        return;
    }
    if (http_conn_stream_write(conn, ping, sizeof ping - 1)) http_conn_arm(conn, period);
}
