/* TLS by OpenSSL under libevent's buffers. Builds without OpenSSL use tls_none.c, which refuses. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include <event2/bufferevent.h>

#include "base/err.h"

struct tls;

// Reads a certificate with its chain, and its key, both PEM. `key_path` NULL: the key is in the
// certificate's file.
MUST_USE enum status tls_create(struct tls **out, const char *cert_path, const char *key_path,
                                struct err *err);
void tls_destroy(struct tls *tls); // NULL is fine
// A server's side of a connection, which owns `fd`. NULL: no memory, and `fd` is the caller's.
struct bufferevent *tls_accept(struct tls *tls, struct event_base *base, evutil_socket_t fd);
// Says that nothing more is sent.
void tls_end(struct bufferevent *bev);

#endif
