/* The HTTP server: a listening socket, its clients' connections, and the bounds on all of them. It
 * knows HTTP, and nothing of what is served. Runs on the loop's thread and never blocks. Only
 * system calls to send may be made by other threads, while the loop's thread makes some and waits
 * for the others. */
#ifndef SERVER_HTTP_SERVER_H
#define SERVER_HTTP_SERVER_H

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    HTTP_HEAD_SECONDS = 10, // from its first byte to its end
    HTTP_BODY_SECONDS = 30, // without a byte of it
    HTTP_BODY_SECONDS_MAX = 300, // altogether
    HTTP_IDLE_SECONDS = 75, // between two requests
    HTTP_IDLE_MS_MIN = 500, // in which an idle one is not closed for others
    HTTP_WRITE_SECONDS = 30, // without the reader taking a byte
    HTTP_LINGER_SECONDS = 2, // for the client to read a refusal before it is cut off
    HTTP_OUTPUT_BYTES_MAX =
        1 << 20, // of a stream, not yet taken by the kernel, when more is written
    HTTP_LARGE_BYTES_MIN = 64 << 10, // a write beyond is large, and may exceed that
    HTTP_SMALL_BODY_BYTES = 64 << 10, // a request's body up to here has always room
};

struct http_conn; // http_conn.h

struct http_handler {
    // The head of a request has come; its body may be missing. Replying here refuses the body.
    void (*on_head)(struct http_conn *conn, void *user_data);
    // The request is whole. It is answered now or later.
    void (*on_request)(struct http_conn *conn, void *user_data);
    // The connection ends before the answer did. `conn` is not to be used any more.
    void (*on_gone)(struct http_conn *conn, void *user_data);
    // The body has no room beside those of others (bodies_bytes_max): the reply, as on_head's.
    void (*on_full)(struct http_conn *conn, void *user_data);
    // A request that is no HTTP: the reply, as on_head's.
    void (*on_fault)(struct http_conn *conn, int status, const char *sentence, void *user_data);
    void *user_data;
};

struct http_limits {
    uint32_t connections_max;
    size_t body_bytes_max;
    size_t bodies_bytes_max; // of all bodies together, without small ones
    double ping_seconds; // of silence in a stream
    uint32_t num_senders; // threads that send together, the loop's among them
};

struct http_server;
struct tls;

// `fd` is a listening socket, which the server closes; after an error it is the caller's. It is
// asked only after http_server_start. `tls` is borrowed; NULL: connections are plain.
MUST_USE enum status http_server_create(struct http_server **out, struct event_base *base, int fd,
                                        struct tls *tls, const struct http_limits *limits,
                                        const struct http_handler *handler, struct err *err);
void http_server_start(struct http_server *server);
// Each connection ends with its next answer. Idle ones are closed. New ones are not: the first
// request may be on its way.
void http_server_drain(struct http_server *server);
void http_server_destroy(struct http_server *server); // closes all connections; NULL is fine
uint32_t http_server_num_connections(const struct http_server *server);
uint32_t http_server_num_unanswered(const struct http_server *server);
size_t http_server_bodies_bytes(const struct http_server *server); // of all bodies but small ones
// A body that http_conn_take_body has handed out is not in memory any more.
void http_server_body_freed(struct http_server *server, size_t len);

#endif
