#include "server/http/http_conn.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "base/text/c_locale.h"
#include "base/thread/thread_pool.h"
#include "server/http/tls.h"

enum http_state {
    HTTP_NEW, // nothing has come yet: its request may be on its way
    HTTP_IDLE, // between requests
    HTTP_READING, // a request has begun
    HTTP_ANSWERING, // it is whole, or refused, and its answer is not
    HTTP_FLUSHING, // the last answer is on its way; then our side is closed
    HTTP_LINGERING, // our side is closed; what still comes is dropped
};

// What each token of a stream needs stands first, in few cache lines: with many streams the caches
// hold little else from step to step.
struct http_conn {
    struct http_server *server;
    struct bufferevent *bev; // NULL: dead
    void *data;
    int fd; // bev's
    enum http_state state;
    bool is_streaming, is_chunked;
    bool is_out_of_memory; // an append failed: the response is corrupt, so close the connection
    bool has_left; // bytes to libevent, which it may not have sent yet
    bool is_processing; // process is on the stack
    bool close_after; // the answer is the connection's last
    struct buf written; // since the loop woke
    size_t num_sent; // of them, for on_send alone
    TAILQ_ENTRY(http_conn) written_link; // in written
    double last_write; // clock_seconds, as all times
    uint64_t body_bytes; // of the answer
    size_t large_bytes; // of large writes that the reader may not have taken

    TAILQ_ENTRY(http_conn) link; // in all, or in dead
    TAILQ_ENTRY(http_conn) idle_link; // in HTTP_IDLE
    struct event *timer;
    struct http_reader *reader; // of the request; NULL in HTTP_IDLE and after the last one
    double body_begin, idle_since;
    size_t counted_bytes; // of the request's body, in the server's bodies_bytes
};

TAILQ_HEAD(http_conn_list, http_conn);

struct http_server {
    struct event_base *base;
    int fd; // the listening socket; -1: not ours yet
    struct event *acceptor; // somebody waits in the socket's queue
    struct event *retry; // ends a pause of the acceptor
    bool others_wait; // at the last try there was no room for who waits
    struct tls *tls; // NULL: none
    struct event *reaper; // frees the dead
    struct event *sender; // sends what was written
    struct http_conn_list all, idle, dead;
    struct http_conn_list written; // those that have written
    struct thread_pool *senders; // the loop's thread and others, which send for it
    struct http_conn **sending; // [num_sending], at most connections_max: those of on_send
    uint32_t num_sending;
    uint32_t num_connections, num_unanswered;
    size_t bodies_bytes;
    bool is_draining;
    struct http_limits limits;
    struct http_handler handler;
};

enum {
    READ_BYTES_MAX = 64 << 10, // taken off the socket before the request asks for them
    ACCEPTS_AT_ONCE_MAX = 64,
    ACCEPT_PAUSE_MS = 100,
    WRITTEN_BYTES_KEPT = 16 << 10, // of a stream's buffer, for its next write
    SHARED_SENDS_MIN = 64, // connections; for fewer, it does not pay to wake other threads
    SENDS_AT_ONCE = 16, // by a thread, before it takes the next ones
};

// Reads what has come, request by request.
static void process(struct http_conn *conn);
// After the deadline of a stream passed: says that the stream lives.
static void ping(struct http_conn *conn);
// A connection has closed: who waits has room.
static void accept_waiting(struct http_server *server);
// Nothing is written any more: it is sent, or never will be.
static void clear_written(struct http_conn *conn);
// Our side is over; the client may read what it has not read yet.
static void linger(struct http_conn *conn);

// ---- deadlines and ends ----

static void arm(struct http_conn *conn, double seconds) {
    struct timeval time = {.tv_sec = (time_t)seconds,
                           .tv_usec = (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
    event_add(conn->timer, &time);
}

static void disarm(struct http_conn *conn) {
    event_del(conn->timer);
}

static void set_state(struct http_conn *conn, enum http_state state) {
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

// The connection's end, at once.
static void close_conn(struct http_conn *conn) {
    struct http_server *server = conn->server;
    if (!conn->bev) return;
    bool is_answering = conn->state == HTTP_ANSWERING;
    set_state(conn, HTTP_LINGERING);
    clear_written(conn);
    bufferevent_free(conn->bev);
    conn->bev = NULL;
    event_free(conn->timer);
    conn->timer = NULL;
    TAILQ_REMOVE(&server->all, conn, link);
    TAILQ_INSERT_TAIL(&server->dead, conn, link);
    server->num_connections--;
    event_active(server->reaper, 0, 0);
    accept_waiting(server);
    if (is_answering) server->handler.on_gone(conn, server->handler.user_data);
}

static size_t counted_bytes(size_t len) {
    return len > HTTP_SMALL_BODY_BYTES ? len : 0;
}

// After the reader's body has grown, or is somebody else's.
static void count_body(struct http_conn *conn) {
    size_t now = conn->reader ? counted_bytes(http_reader_request(conn->reader)->body.len) : 0;
    conn->server->bodies_bytes += now - conn->counted_bytes; // modulo 2^64, as it may shrink
    conn->counted_bytes = now;
}

static void drop_reader(struct http_conn *conn) {
    http_reader_destroy(conn->reader);
    conn->reader = NULL;
    count_body(conn);
}

static void free_dead(struct http_server *server) {
    struct http_conn *conn;
    while ((conn = TAILQ_FIRST(&server->dead))) {
        TAILQ_REMOVE(&server->dead, conn, link);
        drop_reader(conn);
        free(conn);
    }
}

static void on_reap(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    free_dead(arg);
}

// ---- writing ----

/* Answers gather in conn->written. `sender` is activated with the first of their bytes, so it runs
 * behind all events that the loop woke for: one system call a connection and wake-up, however many
 * tokens came. It tries the socket at once, because nearly every one has room; libevent would ask
 * epoll first, and twice. What the kernel does not take is left to libevent, which waits for it.
 *
 * These calls are nearly all that a streamed token costs. Where a step wrote to many connections,
 * other threads make some of them, and the loop waits for all: nothing else changes meanwhile. */
static void clear_written(struct http_conn *conn) {
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

static void write_bytes(struct http_conn *conn, const void *bytes, size_t len) {
    struct http_server *server = conn->server;
    if (!len) return;
    if (len > HTTP_LARGE_BYTES_MIN) { // is not copied twice
        leave_rest(conn, conn->written.data, conn->written.len);
        clear_written(conn);
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

static void write_text(struct http_conn *conn, const char *text) {
    write_bytes(conn, text, strlen(text));
}

PRINTF_LIKE(2, 3)
static void write_format(struct http_conn *conn, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int len = c_locale_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    CHECK(len >= 0 && (size_t)len < sizeof text, "len=%d", len);
    write_text(conn, text);
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

// How much the kernel takes now. A fault is libevent's to find when it writes the rest.
static size_t send_now(struct http_conn *conn) {
    if (conn->server->tls || num_left(conn)) return 0;
    ssize_t sent = send(conn->fd, conn->written.data, conn->written.len, MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

// The client may have taken all.
static void go_on(struct http_conn *conn) {
    if (http_conn_num_unsent(conn)) return;
    if (conn->state == HTTP_FLUSHING) linger(conn);
    if (conn->state == HTTP_IDLE) process(conn);
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
        clear_written(conn);
    }
    for (uint32_t i = 0; i < server->num_sending; i++) {
        struct http_conn *conn = server->sending[i];
        if (!conn->bev) continue; // one before it has closed it; it is freed later
        if (conn->is_out_of_memory) {
            close_conn(conn);
        } else {
            go_on(conn);
        }
    }
}

// ---- requests ----

static void refuse(struct http_conn *conn, int status, const char *sentence) {
    conn->close_after = true;
    if (conn->state != HTTP_ANSWERING) set_state(conn, HTTP_ANSWERING);
    conn->server->handler.on_fault(conn, status, sentence, conn->server->handler.user_data);
}

// Whether a body of so many bytes more has room beside those that are here.
static bool has_capacity(const struct http_server *server, size_t more) {
    return server->bodies_bytes + counted_bytes(more) <= server->limits.bodies_bytes_max;
}

static void refuse_full(struct http_conn *conn) {
    conn->close_after = true;
    if (conn->state != HTTP_ANSWERING) set_state(conn, HTTP_ANSWERING);
    conn->server->handler.on_full(conn, conn->server->handler.user_data);
}

static void arm_body(struct http_conn *conn) {
    double left = conn->body_begin + HTTP_BODY_SECONDS_MAX - clock_seconds();
    arm(conn, left < 0 ? 0 : left < HTTP_BODY_SECONDS ? left : HTTP_BODY_SECONDS);
}

static bool begin_request(struct http_conn *conn) {
    if (!evbuffer_get_length(bufferevent_get_input(conn->bev))) return false;
    conn->reader = http_reader_create(conn->server->limits.body_bytes_max);
    if (!conn->reader) {
        close_conn(conn);
        return false;
    }
    set_state(conn, HTTP_READING);
    conn->body_bytes = 0;
    arm(conn, HTTP_HEAD_SECONDS);
    return true;
}

static void take_head(struct http_conn *conn) {
    static const char please_send[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct http_request *request = http_reader_request(conn->reader);
    conn->body_begin = clock_seconds();
    // Until it is replied to, the request may end the connection: only a whole one keeps it.
    bool close_before = conn->close_after;
    conn->close_after = close_before || request->has_body;
    set_state(conn, HTTP_ANSWERING);
    conn->server->handler.on_head(conn, conn->server->handler.user_data);
    if (conn->state != HTTP_ANSWERING) return;
    set_state(conn, HTTP_READING);
    conn->close_after = close_before;
    if (!request->has_body) return;
    if (!has_capacity(conn->server, http_reader_length(conn->reader))) {
        refuse_full(conn);
        return;
    }
    arm_body(conn);
    if (http_request_field(request, "expect") && !request->is_1_0) {
        write_text(conn, please_send);
        if (conn->is_out_of_memory) close_conn(conn);
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
        disarm(conn);
        set_state(conn, HTTP_ANSWERING);
        conn->server->handler.on_request(conn, conn->server->handler.user_data);
        return true;
    case HTTP_READ_FAULT:
        break;
    }
    int status = http_reader_fault(conn->reader, &sentence);
    refuse(conn, status, sentence);
    return true;
}

static bool process_some(struct http_conn *conn) {
    struct evbuffer *input = bufferevent_get_input(conn->bev);
    switch (conn->state) {
    case HTTP_NEW:
    case HTTP_IDLE: // go_on comes back to it
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

static void process(struct http_conn *conn) {
    if (conn->is_processing) return;
    conn->is_processing = true;
    while (conn->bev && process_some(conn)) {
    }
    conn->is_processing = false;
}

// ---- the end of an answer ----

static void linger(struct http_conn *conn) {
    set_state(conn, HTTP_LINGERING);
    if (conn->server->tls) tls_end(conn->bev);
    shutdown(conn->fd, SHUT_WR);
    arm(conn, HTTP_LINGER_SECONDS);
}

// After the last byte of an answer.
static void end_answer(struct http_conn *conn) {
    bool close_after = conn->close_after || conn->server->is_draining;
    drop_reader(conn);
    conn->data = NULL;
    conn->is_streaming = false;
    if (!close_after) {
        set_state(conn, HTTP_IDLE);
        arm(conn, HTTP_IDLE_SECONDS);
        process(conn);
        return;
    }
    disarm(conn);
    set_state(conn, HTTP_FLUSHING);
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
    go_on(arg);
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
        disarm(conn);
        if (conn->state != HTTP_FLUSHING) set_state(conn, HTTP_FLUSHING);
        return;
    }
    close_conn(conn);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct http_conn *conn = arg;
    if (conn->state == HTTP_ANSWERING) {
        ping(conn);
    } else if (conn->state == HTTP_READING) {
        bool in_body = http_reader_has_head(conn->reader);
        refuse(conn, 408, in_body ? "the body came too slowly" : "the header came too slowly");
    } else if (conn->state == HTTP_IDLE && http_conn_num_unsent(conn)) {
        arm(conn, HTTP_IDLE_SECONDS); // its last answer is still being read
    } else {
        close_conn(conn);
    }
}

static struct bufferevent *make_buffers(struct http_server *server, evutil_socket_t fd) {
    if (server->tls) return tls_accept(server->tls, server->base, fd);
    return bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
}

// A new connection of `fd`, which is closed where there is no memory for one.
static void begin_conn(struct http_server *server, int fd) {
    struct http_conn *conn = calloc(1, sizeof *conn);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // fails for a socket that has no TCP
    if (conn) {
        conn->bev = make_buffers(server, fd);
        conn->timer = evtimer_new(server->base, on_deadline, conn);
    }
    if (!conn || !conn->bev || !conn->timer) {
        if (conn && conn->bev) bufferevent_free(conn->bev);
        if (!conn || !conn->bev) close(fd);
        if (conn && conn->timer) event_free(conn->timer);
        free(conn);
        return;
    }
    conn->server = server;
    conn->fd = fd;
    conn->state = HTTP_NEW;
    TAILQ_INSERT_TAIL(&server->all, conn, link);
    server->num_connections++;
    const struct timeval write_time = {.tv_sec = HTTP_WRITE_SECONDS};
    bufferevent_setcb(conn->bev, on_read, on_written, on_event, conn);
    bufferevent_setwatermark(conn->bev, EV_READ, 0, READ_BYTES_MAX);
    bufferevent_set_max_single_write(conn->bev, HTTP_OUTPUT_BYTES_MAX);
    bufferevent_set_timeouts(conn->bev, NULL, &write_time);
    bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
    arm(conn, HTTP_HEAD_SECONDS); // a new connection has something to ask
}

// ---- new connections ----

/* New connections. Room is made before one is accepted, so that nobody who was let in is sent away:
 * at the limit the connection goes that has been idle for longest, and where none is idle, or the
 * process has no descriptors left, new clients wait in the socket's queue. While some wait, answers
 * end their connections. */
// Whether something came that the loop has not read yet.
static bool has_unread(const struct http_conn *conn) {
    int num_bytes = 0;
    return evbuffer_get_length(bufferevent_get_input(conn->bev)) ||
           ioctl(conn->fd, FIONREAD, &num_bytes) || num_bytes;
}

// The one to close for another: its last answer is out, and it has waited for longest for the next
// request. NULL: none.
static struct http_conn *oldest_idle(struct http_server *server) {
    double latest = clock_seconds() - HTTP_IDLE_MS_MIN * 1e-3;
    struct http_conn *conn;
    TAILQ_FOREACH(conn, &server->idle, idle_link) {
        if (conn->idle_since > latest) break; // as are all that follow
        if (!http_conn_num_unsent(conn) && !has_unread(conn)) return conn;
    }
    return NULL;
}

static bool close_oldest_idle(struct http_server *server) {
    struct http_conn *conn = oldest_idle(server);
    if (conn) close_conn(conn);
    return conn != NULL;
}

static bool somebody_waits(const struct http_server *server) {
    struct pollfd queue = {.fd = server->fd, .events = POLLIN};
    return poll(&queue, 1, 0) == 1;
}

// The acceptor would report who waits without end.
static void pause_accepting(struct http_server *server) {
    const struct timeval time = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
    server->others_wait = true;
    event_del(server->acceptor);
    event_add(server->retry, &time);
}

static void accept_some(struct http_server *server) {
    for (int i = 0; i < ACCEPTS_AT_ONCE_MAX; i++) {
        bool is_full = server->num_connections >= server->limits.connections_max;
        if (is_full && !somebody_waits(server)) break;
        if (is_full && !close_oldest_idle(server)) {
            pause_accepting(server);
            return;
        }
        int fd = accept4(server->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            begin_conn(server, fd);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            close_oldest_idle(server); // mostly the process has no more descriptors
            pause_accepting(server);
            return;
        }
    }
    server->others_wait = false;
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    accept_some(arg);
}

static void on_retry(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct http_server *server = arg;
    event_add(server->acceptor, NULL);
    accept_some(server);
}

static void accept_waiting(struct http_server *server) {
    // Not now: the caller may be in the middle of a request of another connection.
    if (server->others_wait) event_active(server->retry, 0, 0);
}

static enum status init_accepting(struct http_server *server, int fd, struct err *err) {
    server->acceptor = event_new(server->base, fd, EV_READ | EV_PERSIST, on_acceptable, server);
    server->retry = evtimer_new(server->base, on_retry, server);
    if (!server->acceptor || !server->retry) return err_nomem(err, "server");
    server->fd = fd;
    return OK;
}

static void start_accepting(struct http_server *server) {
    event_add(server->acceptor, NULL);
}

static void fini_accepting(struct http_server *server) {
    if (server->acceptor) event_free(server->acceptor);
    if (server->retry) event_free(server->retry);
    if (server->fd >= 0) close(server->fd);
}

// ---- the server ----

static enum status init_senders(struct http_server *server, struct err *err) {
    const struct http_limits *limits = &server->limits;
    uint32_t num_threads = server->tls ? 1 : limits->num_senders; // libevent writes TLS
    server->sending = calloc(limits->connections_max, sizeof(struct http_conn *));
    if (!server->sending) return err_nomem(err, "server");
    return thread_pool_create(&server->senders, num_threads, err);
}

enum status http_server_create(struct http_server **out, struct event_base *base, int fd,
                               struct tls *tls, const struct http_limits *limits,
                               const struct http_handler *handler, struct err *err) {
    struct http_server *server = calloc(1, sizeof *server);
    if (!server) return err_nomem(err, "server");
    server->base = base;
    server->tls = tls;
    server->limits = *limits;
    server->handler = *handler;
    TAILQ_INIT(&server->all);
    TAILQ_INIT(&server->idle);
    TAILQ_INIT(&server->dead);
    TAILQ_INIT(&server->written);
    server->reaper = event_new(base, -1, 0, on_reap, server);
    server->sender = event_new(base, -1, 0, on_send, server);
    server->fd = -1;
    bool has_events = server->reaper && server->sender;
    enum status status = has_events ? init_senders(server, err) : err_nomem(err, "server");
    if (!status) status = init_accepting(server, fd, err);
    if (status) {
        http_server_destroy(server);
        return status;
    }
    *out = server;
    return OK;
}

void http_server_start(struct http_server *server) {
    start_accepting(server);
}

void http_server_drain(struct http_server *server) {
    server->is_draining = true;
    struct http_conn *conn, *next;
    for (conn = TAILQ_FIRST(&server->idle); conn; conn = next) {
        next = TAILQ_NEXT(conn, idle_link);
        if (http_conn_num_unsent(conn)) {
            disarm(conn);
            set_state(conn, HTTP_FLUSHING);
        } else {
            close_conn(conn);
        }
    }
}

void http_server_destroy(struct http_server *server) {
    if (!server) return;
    server->is_draining = true;
    struct http_conn *conn;
    while ((conn = TAILQ_FIRST(&server->all))) close_conn(conn);
    free_dead(server);
    fini_accepting(server);
    if (server->reaper) event_free(server->reaper);
    if (server->sender) event_free(server->sender);
    thread_pool_destroy(server->senders);
    free(server->sending);
    free(server);
}

uint32_t http_server_num_connections(const struct http_server *server) {
    return server->num_connections;
}

void http_server_body_freed(struct http_server *server, size_t len) {
    server->bodies_bytes -= counted_bytes(len);
}

size_t http_server_bodies_bytes(const struct http_server *server) {
    return server->bodies_bytes;
}

uint32_t http_server_num_unanswered(const struct http_server *server) {
    return server->num_unanswered;
}

// ---- answers ----

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
    write_format(conn, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: nanovllm\r\n", status,
                 reason_of(status), date);
    if (content_type) write_format(conn, "Content-Type: %s\r\n", content_type);
    if (head) write_text(conn, head);
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
        write_text(conn, "Connection: close\r\n");
    } else if (request->is_1_0) {
        write_text(conn, "Connection: keep-alive\r\n");
    }
}

static bool is_head_request(const struct http_conn *conn) {
    const struct http_request *request = conn->reader ? http_reader_request(conn->reader) : NULL;
    return request && request->method && strcmp(request->method, "HEAD") == 0;
}

void http_conn_reply(struct http_conn *conn, int status, const char *content_type, const char *head,
                     const void *body, size_t len) {
    CHECK(conn->state == HTTP_ANSWERING && !conn->is_streaming, "state=%d", conn->state);
    write_head(conn, status, content_type, head);
    write_connection(conn);
    if (status != 204 && status != 304) write_format(conn, "Content-Length: %zu\r\n", len);
    write_text(conn, "\r\n");
    if (len && !is_head_request(conn)) write_bytes(conn, body, len);
    conn->body_bytes += len;
    if (conn->is_out_of_memory) {
        close_conn(conn);
    } else {
        end_answer(conn);
    }
}

bool http_conn_stream_begin(struct http_conn *conn, const char *head) {
    CHECK(conn->state == HTTP_ANSWERING && !conn->is_streaming, "state=%d", conn->state);
    conn->is_streaming = true;
    conn->is_chunked = !http_reader_request(conn->reader)->is_1_0;
    if (!conn->is_chunked) conn->close_after = true; // the end of the body is the connection's
    write_head(conn, 200, "text/event-stream; charset=utf-8", head);
    write_connection(conn);
    // What stands between must pass each event on at once.
    write_format(conn, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
                 conn->is_chunked ? "Transfer-Encoding: chunked\r\n" : "");
    conn->last_write = clock_seconds();
    arm(conn, conn->server->limits.ping_seconds);
    if (!conn->is_out_of_memory) return true;
    close_conn(conn);
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
    write_bytes(conn, at, (size_t)(text + sizeof text - at));
}

bool http_conn_stream_write(struct http_conn *conn, const void *bytes, size_t len) {
    if (!len) return true; // a chunk of no bytes would be the last one
    if (!keeps_up(conn, len)) {
        close_conn(conn);
        return false;
    }
    if (conn->is_chunked) write_chunk_size(conn, len);
    write_bytes(conn, bytes, len);
    if (conn->is_chunked) write_text(conn, "\r\n");
    conn->body_bytes += len;
    conn->last_write = clock_seconds();
    if (!conn->is_out_of_memory) return true;
    close_conn(conn);
    return false;
}

void http_conn_stream_end(struct http_conn *conn) {
    if (conn->is_chunked) write_text(conn, "0\r\n\r\n");
    if (conn->is_out_of_memory) {
        close_conn(conn);
    } else {
        end_answer(conn);
    }
}

void http_conn_abort(struct http_conn *conn) {
    close_conn(conn);
}

static void ping(struct http_conn *conn) {
    static const char ping[] = ": ping\n\n";
    if (!conn->is_streaming) return;
    double silent = clock_seconds() - conn->last_write;
    double period = conn->server->limits.ping_seconds;
    if (silent + 0.01 < period) {
        arm(conn, period - silent);
        return;
    }
    if (http_conn_stream_write(conn, ping, sizeof ping - 1)) arm(conn, period);
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
