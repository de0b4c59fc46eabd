/* From an answer's bytes to the socket.
 *
 * Answers gather in conn->written. `sender` is activated with the first of their bytes, so it runs
 * behind all events that the loop woke for: one system call a connection and wake-up, however many
 * tokens came. It tries the socket at once, because nearly every one has room; libevent would ask
 * epoll first, and twice. What the kernel does not take is left to libevent, which waits for it.
 *
 * These calls are nearly all that a streamed token costs. Where a step wrote to many connections,
 * other threads make some of them, and the loop waits for all: nothing else changes meanwhile. */
#include <event2/buffer.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/text/c_locale.h"
#include "base/thread/thread_pool.h"
#include "server/http/http_conn.h"
#include "server/http/http_internal.h"

enum {
    WRITTEN_BYTES_KEPT = 16 << 10, // of a stream's buffer, for its next write
    SHARED_SENDS_MIN = 64, // connections; for fewer, it does not pay to wake other threads
    SENDS_AT_ONCE = 16, // by a thread, before it takes the next ones
};

// ---- gathering ----

void http_send_drop(struct http_conn *conn) {
    if (conn->written.len) TAILQ_REMOVE(&conn->server->written, conn, written_link);
    // A stream will write again.
    if (conn->state == HTTP_ANSWERING && conn->written.capacity <= WRITTEN_BYTES_KEPT) {
        buf_clear(&conn->written);
    } else {
        buf_fini(&conn->written);
    }
}

static void leave_rest(struct http_conn *conn, const void *bytes, size_t len) {
    if (!len) return;
    conn->has_left = true;
    if (bufferevent_write(conn->bev, bytes, len)) conn->is_out_of_memory = true;
}

void http_send_bytes(struct http_conn *conn, const void *bytes, size_t len) {
    struct http_server *server = conn->server;
    if (!len) return;
    if (len > HTTP_LARGE_BYTES_MIN) { // is not copied twice
        leave_rest(conn, conn->written.data, conn->written.len);
        http_send_drop(conn);
        leave_rest(conn, bytes, len);
        return;
    }
    bool was_empty = !conn->written.len;
    if (buf_append(&conn->written, bytes, len, NULL)) {
        conn->is_out_of_memory = true;
    } else if (was_empty) {
        TAILQ_INSERT_TAIL(&server->written, conn, written_link);
        event_active(server->sender, 0, 0);
    }
}

void http_send_text(struct http_conn *conn, const char *text) {
    http_send_bytes(conn, text, strlen(text));
}

void http_send_format(struct http_conn *conn, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int len = c_locale_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    CHECK(len >= 0 && (size_t)len < sizeof text, "len=%d", len);
    http_send_text(conn, text);
}

// What libevent has to send; it comes before conn->written.
static size_t num_left(struct http_conn *conn) {
    if (!conn->has_left) return 0;
    size_t len = evbuffer_get_length(bufferevent_get_output(conn->bev));
    conn->has_left = len > 0;
    return len;
}

size_t http_conn_num_unsent(struct http_conn *conn) {
    return conn->written.len + num_left(conn);
}

// ---- sending ----

// How much the kernel takes now. A fault is libevent's to find when it writes the rest.
static size_t send_now(struct http_conn *conn) {
    if (conn->server->tls || num_left(conn)) return 0;
    ssize_t sent = send(conn->fd, conn->written.data, conn->written.len, MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

// On any of the senders.
static void send_some(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct http_server *server = arg;
    uint32_t begin = item * SENDS_AT_ONCE, end = begin + SENDS_AT_ONCE;
    for (uint32_t i = begin; i < end && i < server->num_sending; i++) {
        server->sending[i]->num_sent = send_now(server->sending[i]);
    }
}

static void send_all(struct http_server *server) {
    struct http_conn *conn;
    server->num_sending = 0;
    TAILQ_FOREACH(conn, &server->written, written_link) {
        server->sending[server->num_sending++] = conn;
    }
    uint32_t num_items = (server->num_sending + SENDS_AT_ONCE - 1) / SENDS_AT_ONCE;
    if (server->num_sending >= SHARED_SENDS_MIN) {
        thread_pool_for(server->senders, num_items, send_some, server);
    } else {
        for (uint32_t i = 0; i < num_items; i++) send_some(server, i, 0);
    }
}

static void on_send(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    send_all(server);
    for (uint32_t i = 0; i < server->num_sending; i++) {
        struct http_conn *conn = server->sending[i];
        leave_rest(conn, conn->written.data + conn->num_sent, conn->written.len - conn->num_sent);
        http_send_drop(conn);
    }
    for (uint32_t i = 0; i < server->num_sending; i++) {
        struct http_conn *conn = server->sending[i];
        if (!conn->bev) continue; // one before it has closed it; it is freed later
        if (conn->is_out_of_memory) {
            http_conn_close(conn);
        } else {
            http_conn_go_on(conn);
        }
    }
}

enum status http_send_init(struct http_server *server, struct err *err) {
    const struct http_limits *limits = &server->limits;
    uint32_t num_threads = server->tls ? 1 : limits->num_senders; // libevent writes TLS
    TAILQ_INIT(&server->written);
    server->sender = event_new(server->base, -1, 0, on_send, server);
    server->sending = calloc(limits->connections_max, sizeof(struct http_conn *));
    if (!server->sender || !server->sending) return err_nomem(err, "server");
    return thread_pool_create(&server->senders, num_threads, err);
}

void http_send_fini(struct http_server *server) {
    if (server->sender) event_free(server->sender);
    thread_pool_destroy(server->senders);
    free(server->sending);
}
