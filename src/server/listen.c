#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/c_locale.h"

enum { BACKLOG = 1024 };

static int bind_one(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static enum status write_url(int fd, struct buf *url, struct err *err) {
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&address, &len) ||
        getnameinfo((struct sockaddr *)&address, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        return err_set(err, ERR_IO, "cannot tell the address of the socket");
    }
    return buf_appendf(url, err, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

enum status listen_open(int *fd, const char *host, uint16_t port, struct buf *url,
                        struct err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int fault = getaddrinfo(host, service, &hints, &addresses);
    if (fault) {
        return err_set(err, ERR_IO, "cannot listen on %s: %s", host, gai_strerror(fault));
    }
    *fd = -1;
    for (const struct addrinfo *a = addresses; a && *fd < 0; a = a->ai_next) *fd = bind_one(a);
    int reason = errno;
    freeaddrinfo(addresses);
    if (*fd < 0) {
        return err_set(err, ERR_IO, "cannot listen on %s port %u: %s", host, port,
                       c_locale_strerror(reason));
    }
    enum status status = write_url(*fd, url, err);
    if (status) close(*fd);
    return status;
}
