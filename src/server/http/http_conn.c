/* A connection's life, request by request: its states, its deadlines, what its client sends, and
 * its end. */
#include "server/http/http_conn.h"

#include <event2/buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "server/http/http_internal.h"
#include "server/http/tls.h"

enum { READ_BYTES_MAX = 64 << 10 }; // taken off the socket before the request asks for them

// ---- states and deadlines ----

void http_conn_arm(struct http_conn *conn, double seconds) {
    const struct timeval time = clock_timeval(seconds);
    event_add(conn->timer, &time);
}

void http_conn_disarm(struct http_conn *conn) {
    event_del(conn->timer);
}

void http_conn_set_state(struct http_conn *conn, enum http_state state) {
    struct http_server *server = conn->server;
    if (conn->state == HTTP_IDLE) TAILQ_REMOVE(&server->idle, conn, idle_link);
    if (conn->state == HTTP_ANSWERING) server->num_unanswered--;
    conn->state = state;
    if (state == HTTP_IDLE) {
        conn->idle_since = clock_seconds();
        TAILQ_INSERT_TAIL(&server->idle, conn, idle_link);
    }
    if (state == HTTP_ANSWERING) server->num_unanswered++;
}

// ---- bodies, which count together ----

// After the reader's body has grown, or is somebody else's.
static void count_body(struct http_conn *conn) {
    size_t now = conn->reader ? http_counted_bytes(http_reader_request(conn->reader)->body.len) : 0;
    conn->server->bodies_bytes += now - conn->counted_bytes; // modulo 2^64, as it may shrink
    conn->counted_bytes = now;
}

static void drop_reader(struct http_conn *conn) {
    http_reader_destroy(conn->reader);
    conn->reader = NULL;
    count_body(conn);
}

// ---- the end ----

void http_conn_close(struct http_conn *conn) {
    struct http_server *server = conn->server;
    if (!conn->bev) return;
    bool is_answering = conn->state == HTTP_ANSWERING;
    http_conn_set_state(conn, HTTP_LINGERING);
    http_send_drop(conn);
    bufferevent_free(conn->bev);
    conn->bev = NULL;
    event_free(conn->timer);
    conn->timer = NULL;
    TAILQ_REMOVE(&server->all, conn, link);
    TAILQ_INSERT_TAIL(&server->dead, conn, link);
    server->num_connections--;
    event_active(server->reaper, 0, 0);
    http_accept_waiting(server);
    if (is_answering) server->handler.on_gone(conn, server->handler.user_data);
}

void http_conn_free_dead(struct http_server *server) {
    struct http_conn *conn;
    while ((conn = TAILQ_FIRST(&server->dead))) {
        TAILQ_REMOVE(&server->dead, conn, link);
        drop_reader(conn);
        free(conn);
    }
}

// Our side is over; the client may read what it has not read yet.
static void linger(struct http_conn *conn) {
    http_conn_set_state(conn, HTTP_LINGERING);
    if (conn->server->tls) tls_end(conn->bev);
    shutdown(conn->fd, SHUT_WR);
    http_conn_arm(conn, HTTP_LINGER_SECONDS);
}

// ---- requests ----

// The answer is an error, and the connection's last: what is left of the request is not read.
static void begin_refusal(struct http_conn *conn) {
    conn->close_after = true;
    if (conn->state != HTTP_ANSWERING) http_conn_set_state(conn, HTTP_ANSWERING);
}

static void refuse(struct http_conn *conn, int status, const char *sentence) {
    begin_refusal(conn);
    conn->server->handler.on_fault(conn, status, sentence, conn->server->handler.user_data);
}

// Whether a body of so many bytes more has room beside those that are here.
static bool has_capacity(const struct http_server *server, size_t more) {
    return server->bodies_bytes + http_counted_bytes(more) <= server->limits.bodies_bytes_max;
}

static void refuse_full(struct http_conn *conn) {
    begin_refusal(conn);
    conn->server->handler.on_full(conn, conn->server->handler.user_data);
}

static void arm_body(struct http_conn *conn) {
    double left = conn->body_begin + HTTP_BODY_SECONDS_MAX - clock_seconds();
    http_conn_arm(conn, left < 0 ? 0 : left < HTTP_BODY_SECONDS ? left : HTTP_BODY_SECONDS);
}

static bool begin_request(struct http_conn *conn) {
    if (!evbuffer_get_length(bufferevent_get_input(conn->bev))) return false;
    conn->reader = http_reader_create(conn->server->limits.body_bytes_max);
    if (!conn->reader) {
        http_conn_close(conn);
        return false;
    }
    http_conn_set_state(conn, HTTP_READING);
    conn->body_bytes = 0;
    http_conn_arm(conn, HTTP_HEAD_SECONDS);
    return true;
}

static void take_head(struct http_conn *conn) {
    static const char please_send[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct http_request *request = http_reader_request(conn->reader);
    conn->body_begin = clock_seconds();
    // Until it is replied to, the request may end the connection: only a whole one keeps it.
    bool close_before = conn->close_after;
    conn->close_after = close_before || request->has_body;
    http_conn_set_state(conn, HTTP_ANSWERING);
    conn->server->handler.on_head(conn, conn->server->handler.user_data);
    if (conn->state != HTTP_ANSWERING) return;
    http_conn_set_state(conn, HTTP_READING);
    conn->close_after = close_before;
    if (!request->has_body) return;
    if (!has_capacity(conn->server, http_reader_length(conn->reader))) {
        refuse_full(conn);
        return;
    }
    arm_body(conn);
    if (http_request_field(request, "expect") && !request->is_1_0) {
        http_send_text(conn, please_send);
        if (conn->is_out_of_memory) http_conn_close(conn);
    }
}

static bool continue_request(struct http_conn *conn) {
    const char *sentence;
    enum http_reading reading = http_reader_feed(conn->reader, bufferevent_get_input(conn->bev));
    count_body(conn);
    if (conn->counted_bytes && !has_capacity(conn->server, 0)) {
        refuse_full(conn);
        return true;
    }
    switch (reading) {
    case HTTP_READ_MORE:
        if (http_reader_has_head(conn->reader)) arm_body(conn);
        return false;
    case HTTP_READ_HEAD:
        take_head(conn);
        return true;
    case HTTP_READ_ALL:
        http_conn_disarm(conn);
        http_conn_set_state(conn, HTTP_ANSWERING);
        conn->server->handler.on_request(conn, conn->server->handler.user_data);
        return true;
    case HTTP_READ_FAULT:
        break;
    }
    int status = http_reader_fault(conn->reader, &sentence);
    refuse(conn, status, sentence);
    return true;
}

// Takes what has come one step further. False: nothing more can be done with it now.
static bool process_some(struct http_conn *conn) {
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    switch (conn->state) {
    case HTTP_NEW:
    case HTTP_IDLE: // http_conn_go_on comes back to it
        if (http_conn_num_unsent(conn) > HTTP_OUTPUT_BYTES_MAX) return false;
        return begin_request(conn);
    case HTTP_READING:
        return continue_request(conn);
    case HTTP_ANSWERING: // what comes is the next request
        return false;
    case HTTP_FLUSHING:
    case HTTP_LINGERING:
        evbuffer_drain(input, evbuffer_get_length(input));
        return false;
    }
    return false;
}

// Reads what has come, request by request.
static void process(struct http_conn *conn) {
    if (conn->is_processing) return;
    conn->is_processing = true;
    while (conn->bev && process_some(conn)) {
    }
    conn->is_processing = false;
}

void http_conn_go_on(struct http_conn *conn) {
    if (http_conn_num_unsent(conn)) return;
    if (conn->state == HTTP_FLUSHING) linger(conn);
    if (conn->state == HTTP_IDLE) process(conn);
}

void http_conn_end_answer(struct http_conn *conn) {
    bool close_after = conn->close_after || conn->server->is_draining;
    drop_reader(conn);
    conn->data = NULL;
    conn->is_streaming = false;
    if (!close_after) {
        http_conn_set_state(conn, HTTP_IDLE);
        http_conn_arm(conn, HTTP_IDLE_SECONDS);
        process(conn);
        return;
    }
    http_conn_disarm(conn);
    http_conn_set_state(conn, HTTP_FLUSHING);
    if (!http_conn_num_unsent(conn)) linger(conn);
}

// ---- what libevent calls ----

static void on_read(struct bufferevent *bev, void *arg) {
    (void)bev;
    process(arg);
}

static void on_written(struct bufferevent *bev, void *arg) {
    (void)bev;
    // With TLS this may come late, when there is more to send again.
    http_conn_go_on(arg);
}

// An end of the client's side, a fault of the connection, or a reader that takes nothing.
static void on_event(struct bufferevent *bev, short what, void *arg) {
    (void)bev;
    struct http_conn *conn = arg;
    if (what & BEV_EVENT_CONNECTED) return; // TLS has shaken hands
    bool has_answer = conn->state == HTTP_IDLE || conn->state == HTTP_FLUSHING;
    bool only_end = (what & BEV_EVENT_EOF) && !(what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT));
    if (only_end && has_answer && http_conn_num_unsent(conn)) {
        // The client has shut down its sending side only, and still reads the answer.
        http_conn_disarm(conn);
        if (conn->state != HTTP_FLUSHING) http_conn_set_state(conn, HTTP_FLUSHING);
        return;
    }
    http_conn_close(conn);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct http_conn *conn = arg;
    if (conn->state == HTTP_ANSWERING) {
        http_answer_ping(conn);
    } else if (conn->state == HTTP_READING) {
        bool in_body = http_reader_has_head(conn->reader);
        refuse(conn, 408, in_body ? "the body came too slowly" : "the header came too slowly");
    } else if (conn->state == HTTP_IDLE && http_conn_num_unsent(conn)) {
        http_conn_arm(conn, HTTP_IDLE_SECONDS); // its last answer is still being read
    } else {
        http_conn_close(conn);
    }
}

// ---- the beginning ----

static struct bufferevent *make_buffers(struct http_server *server, evutil_socket_t fd) {
    if (server->tls) return tls_accept(server->tls, server->base, fd);
    return bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
}

// NULL: no memory, and `fd` is closed.
static struct http_conn *make_conn(struct http_server *server, int fd) {
    struct http_conn *conn = calloc(1, sizeof *conn);
    struct bufferevent *bev = conn ? make_buffers(server, fd) : NULL;
    struct event *timer = bev ? evtimer_new(server->base, on_deadline, conn) : NULL;
    if (timer) {
        conn->server = server;
        conn->bev = bev;
        conn->timer = timer;
        conn->fd = fd;
        conn->state = HTTP_NEW;
        return conn;
    }
    if (bev) {
        bufferevent_free(bev); // closes `fd` too
    } else {
        close(fd);
    }
    free(conn);
    return NULL;
}

void http_conn_begin(struct http_server *server, int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // fails for a socket that has no TCP
    struct http_conn *conn = make_conn(server, fd);
    if (!conn) return;
    TAILQ_INSERT_TAIL(&server->all, conn, link);
    server->num_connections++;
    const struct timeval write_time = {.tv_sec = HTTP_WRITE_SECONDS};
    bufferevent_setcb(conn->bev, on_read, on_written, on_event, conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, READ_BYTES_MAX);
    bufferevent_set_max_single_write(conn->bev, HTTP_OUTPUT_BYTES_MAX);
    bufferevent_set_timeouts(conn->bev, NULL, &write_time);
    bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
    http_conn_arm(conn, HTTP_HEAD_SECONDS); // a new connection has something to ask
}

// ---- what the handler asks ----

const struct http_request *http_conn_request(struct http_conn *conn) {
    return http_reader_request(conn->reader);
}

struct buf http_conn_take_body(struct http_conn *conn) {
    struct http_request *request = http_reader_request(conn->reader);
    struct buf body = request->body;
    request->body = (struct buf){0};
    conn->counted_bytes = 0; // the caller tells when they are gone
    return body;
}

void *http_conn_data(const struct http_conn *conn) {
    return conn->data;
}

void http_conn_set_data(struct http_conn *conn, void *data) {
    conn->data = data;
}

uint64_t http_conn_body_bytes(const struct http_conn *conn) {
    return conn->body_bytes;
}
