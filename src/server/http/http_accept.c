/* Lets clients in. Room is made before one is accepted, so that nobody who was let in is sent away:
 * at the limit the connection goes that has been idle for longest. Where none is idle, or the
 * process has no descriptors left, new clients wait in the socket's queue. While some wait, answers
 * end their connections. */
#include <errno.h>
#include <event2/buffer.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "server/http/http_conn.h"
#include "server/http/http_internal.h"

enum { ACCEPTS_AT_ONCE_MAX = 64, ACCEPT_PAUSE_MS = 100 };

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
    if (conn) http_conn_close(conn);
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
            http_conn_begin(server, fd);
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

void http_accept_waiting(struct http_server *server) {
    // Not now: the caller may be in the middle of a request of another connection.
    if (server->others_wait) event_active(server->retry, 0, 0);
}

enum status http_accept_init(struct http_server *server, int fd, struct err *err) {
    server->acceptor = event_new(server->base, fd, EV_READ | EV_PERSIST, on_acceptable, server);
    server->retry = evtimer_new(server->base, on_retry, server);
    if (!server->acceptor || !server->retry) return err_nomem(err, "server");
    server->fd = fd;
    return OK;
}

void http_accept_start(struct http_server *server) {
    event_add(server->acceptor, NULL);
}

void http_accept_fini(struct http_server *server) {
    if (server->acceptor) event_free(server->acceptor);
    if (server->retry) event_free(server->retry);
    if (server->fd >= 0) close(server->fd);
}
