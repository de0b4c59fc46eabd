/* What http_accept.c (new connections), http_conn.c (connections) and http_reply.c (answers)
 * share. */
#ifndef SERVER_HTTP_CONN_INTERNAL_H
#define SERVER_HTTP_CONN_INTERNAL_H

#include <event2/bufferevent.h>
#include <sys/queue.h>

#include "server/http/http_conn.h"

enum http_state {
    HTTP_NEW, // nothing has come yet: its request may be on its way
    HTTP_IDLE, // between requests
    HTTP_READING, // a request has begun
    HTTP_ANSWERING, // it is whole, or refused, and its answer is not
    HTTP_FLUSHING, // the last answer is on its way; then our side is closed
    HTTP_LINGERING, // our side is closed; what still comes is dropped
};

struct http_conn {
    TAILQ_ENTRY(http_conn) link; // in all, or in dead
    TAILQ_ENTRY(http_conn) idle_link; // in HTTP_IDLE
    struct http_server *server;
    struct bufferevent *bev; // NULL: dead
    struct event *timer;
    struct http_reader *reader; // of the request; NULL in HTTP_IDLE and after the last one
    void *data;
    enum http_state state;
    bool is_processing; // http_conn_process is on the stack
    bool is_streaming, is_chunked;
    bool has_no_memory; // for a part of the answer: what was written of it is of no use
    bool close_after; // the answer is the connection's last
    double body_begin, last_write, idle_since; // clock_seconds
    uint64_t body_bytes; // of the answer
    size_t counted_bytes; // of the request's body, in the server's bodies_bytes
    size_t large_bytes; // of large writes that the reader may not have taken
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
    struct http_conn_list all, idle, dead;
    uint32_t num_connections, num_unanswered;
    size_t bodies_bytes;
    bool is_draining;
    struct http_limits limits;
    struct http_handler handler;
};

void http_conn_arm(struct http_conn *conn, double seconds); // its deadline
void http_conn_disarm(struct http_conn *conn);
// The connection's end, at once.
void http_conn_close(struct http_conn *conn);
// A new connection of `fd`, which is closed where there is no memory for one.
void http_conn_begin(struct http_server *server, int fd);
// Reads what has come, request by request.
void http_conn_process(struct http_conn *conn);
// After the last byte of an answer.
void http_conn_answered(struct http_conn *conn);
// After the deadline of a stream passed: says that the stream lives.
void http_conn_ping(struct http_conn *conn);

// After the reader's body has grown, or is somebody else's.
void http_conn_count_body(struct http_conn *conn);

// ---- http_accept.c ----

bool http_accept_init(struct http_server *server, int fd); // true: fd is the server's
void http_accept_start(struct http_server *server);
// A connection has closed: who waits has room.
void http_accept_room(struct http_server *server);
void http_accept_fini(struct http_server *server);

#endif
