/* A client's connection, as the server's handler sees it: its request, and the answer to it.
 *
 * Each connection has one deadline at a time: for the head, for the next bytes of the body, for the
 * next request. While a request is answered none runs, but a reader that takes nothing for
 * HTTP_WRITE_SECONDS, or lets HTTP_OUTPUT_BYTES_MAX of a stream pile up, loses the connection. With
 * as much of earlier answers unread, no further request of the connection is begun. A client that
 * closes only its sending side of the connection counts as gone too. */
#ifndef SERVER_HTTP_CONN_H
#define SERVER_HTTP_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"
#include "server/http/http_reader.h"
#include "server/http/http_server.h"

const struct http_request *http_conn_request(struct http_conn *conn);
// The body, which is the caller's from now on. It counts among all bodies until the caller says
// that its bytes are not in memory any more (http_server_body_freed).
struct buf http_conn_take_body(struct http_conn *conn);
// What the handler knows the request by; NULL at first.
void *http_conn_data(const struct http_conn *conn);
void http_conn_set_data(struct http_conn *conn, void *data);

// Sends the whole answer. `head` has further fields, each with its CRLF; NULL: none.
// Content-Length, Connection and Date are added.
void http_conn_reply(struct http_conn *conn, int status, const char *content_type, const char *head,
                     const void *body, size_t len);
// A stream of server-sent events: begin, any number of writes, end. False: the connection is gone,
// and on_gone was called.
bool http_conn_stream_begin(struct http_conn *conn, const char *head);
bool http_conn_stream_write(struct http_conn *conn, const void *bytes, size_t len);
void http_conn_stream_end(struct http_conn *conn);
// The connection ends at once. In the middle of an answer on_gone is called.
void http_conn_close(struct http_conn *conn);
size_t http_conn_num_unsent(struct http_conn *conn); // bytes that the kernel has not taken
// Bytes sent of the answer so far, its head not counted.
uint64_t http_conn_body_bytes(const struct http_conn *conn);

#endif
