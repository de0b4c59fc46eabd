/* The server's life: start, drain, end; and its counts. */
#include "server/http/http_server.h"

#include <stdlib.h>

#include "server/http/http_conn.h"
#include "server/http/http_internal.h"

static void on_reap(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    http_conn_free_dead(arg);
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
    server->reaper = event_new(base, -1, 0, on_reap, server);
    server->fd = -1;
    enum status status = server->reaper ? OK : err_nomem(err, "server");
    if (!status) status = http_send_init(server, err);
    if (!status) status = http_accept_init(server, fd, err);
    if (status) {
        http_server_destroy(server);
        return status;
    }
    *out = server;
    return OK;
}

void http_server_start(struct http_server *server) {
    http_accept_start(server);
}

void http_server_drain(struct http_server *server) {
    server->is_draining = true;
    struct http_conn *conn, *next;
    for (conn = TAILQ_FIRST(&server->idle); conn; conn = next) {
        next = TAILQ_NEXT(conn, idle_link);
        if (http_conn_num_unsent(conn)) {
            http_conn_disarm(conn);
            http_conn_set_state(conn, HTTP_FLUSHING);
        } else {
            http_conn_close(conn);
        }
    }
}

void http_server_destroy(struct http_server *server) {
    if (!server) return;
    server->is_draining = true;
    struct http_conn *conn;
    while ((conn = TAILQ_FIRST(&server->all))) http_conn_close(conn);
    http_conn_free_dead(server);
    http_accept_fini(server);
    if (server->reaper) event_free(server->reaper);
    http_send_fini(server);
    free(server);
}

uint32_t http_server_num_connections(const struct http_server *server) {
    return server->num_connections;
}

uint32_t http_server_num_unanswered(const struct http_server *server) {
    return server->num_unanswered;
}

size_t http_server_bodies_bytes(const struct http_server *server) {
    return server->bodies_bytes;
}

void http_server_body_freed(struct http_server *server, size_t len) {
    server->bodies_bytes -= http_counted_bytes(len);
}
