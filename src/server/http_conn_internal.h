/* What http_conn.c (connections) and http_reply.c (answers) share. */
#ifndef SERVER_HTTP_CONN_INTERNAL_H
#define SERVER_HTTP_CONN_INTERNAL_H

#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <sys/queue.h>

#include "server/http_conn.h"

enum http_state {
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
    bool has_asked; // a request has begun on it
    bool is_processing; // http_conn_process is on the stack
    bool is_streaming, is_chunked;
    bool has_no_memory; // for a part of the answer: what was written of it is of no use
    bool close_after; // the answer is the connection's last
    double body_begin, last_write; // clock_seconds
    uint64_t body_bytes;
    size_t large_bytes; // of large writes that the reader may not have taken
};

TAILQ_HEAD(http_conn_list, http_conn);

struct http_server {
    struct event_base *base;
    struct evconnlistener *listener;
    struct tls *tls; // NULL: none
    struct event *retry; // accepting again after the process ran out of descriptors
    struct event *reaper; // frees the dead
    struct http_conn_list all, idle, dead;
    uint32_t num_connections, num_unanswered;
    bool is_draining;
    struct http_limits limits;
    struct http_handler handler;
};

void http_conn_arm(struct http_conn *conn, double seconds); // its deadline
void http_conn_disarm(struct http_conn *conn);
// The connection's end, at once.
void http_conn_close(struct http_conn *conn);
// Reads what has come, request by request.
void http_conn_process(struct http_conn *conn);
// After the last byte of an answer.
void http_conn_answered(struct http_conn *conn);
// After the deadline of a stream passed: says that the stream lives.
void http_conn_ping(struct http_conn *conn);

#endif
