/* The listening socket. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include <stdint.h>

#include "base/err.h"
#include "base/text/buf.h"

// Binds `host`:`port` (0: any free one) and listens. Appends "http://127.0.0.1:8000" to `url`, with
// the scheme that is given.
MUST_USE enum status listen_open(int *fd, const char *host, uint16_t port, const char *scheme,
                                 struct buf *url, struct err *err);
// The same for a Unix socket, whose file the caller removes. One that nobody listens on any more is
// replaced. Appends "unix:PATH".
MUST_USE enum status listen_open_unix(int *fd, const char *path, struct buf *url, struct err *err);

#endif
