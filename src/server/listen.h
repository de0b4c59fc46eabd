/* The listening socket. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

// Binds `host`:`port` (0: any free one) and listens. Appends "http://127.0.0.1:8000" to `url`.
MUST_USE enum status listen_open(int *fd, const char *host, uint16_t port, struct buf *url,
                                 struct err *err);

#endif
