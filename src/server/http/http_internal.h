/* The structs of a connection and of the server, and what the files of this folder do for each
 * other: http_accept.c lets clients in, http_conn.c reads their requests, http_answer.c writes the
 * answers, http_send.c brings them to the sockets, http_server.c holds it together. */
#ifndef SERVER_HTTP_INTERNAL_H
#define SERVER_HTTP_INTERNAL_H

#include <event2/bufferevent.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/compiler.h"
#include "base/text/buf.h"
#include "server/http/http_reader.h"
#include "server/http/http_server.h"

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

// ---- http_conn.c ----

// Begins a connection of `fd`, which is closed where there is no memory for one.
void http_conn_begin(struct http_server *server, int fd);
// The deadline, in so many seconds from now; none.
void http_conn_arm(struct http_conn *conn, double seconds);
void http_conn_disarm(struct http_conn *conn);
void http_conn_set_state(struct http_conn *conn, enum http_state state);
// Call it after the last byte of an answer was written.
void http_conn_end_answer(struct http_conn *conn);
// Call it when the client may have taken all that was written.
void http_conn_go_on(struct http_conn *conn);
// Frees the connections that are closed. None of their functions may be on the stack.
void http_conn_free_dead(struct http_server *server);
// What a body of so many bytes counts among all bodies.
static inline size_t http_counted_bytes(size_t len) {
    return len > HTTP_SMALL_BODY_BYTES ? len : 0;
}

// ---- http_answer.c ----

// After the deadline of a stream passed: says that the stream lives.
void http_answer_ping(struct http_conn *conn);

// ---- http_send.c ----

MUST_USE enum status http_send_init(struct http_server *server, struct err *err);
void http_send_fini(struct http_server *server); // all-zero is fine
// Writes behind what was written before. Without memory conn->is_out_of_memory is set.
void http_send_bytes(struct http_conn *conn, const void *bytes, size_t len);
void http_send_text(struct http_conn *conn, const char *text);
PRINTF_LIKE(2, 3) // at most 255 bytes
void http_send_format(struct http_conn *conn, const char *format, ...);
// Drops what was written: it is sent, or never will be.
void http_send_drop(struct http_conn *conn);

// ---- http_accept.c ----

// `fd` is the server's from now on, unless there is an error.
MUST_USE enum status http_accept_init(struct http_server *server, int fd, struct err *err);
void http_accept_start(struct http_server *server);
void http_accept_fini(struct http_server *server); // closes the socket; half-initialised is fine
// Call it when a connection has closed: there is room for a client that waits.
void http_accept_waiting(struct http_server *server);

#endif
