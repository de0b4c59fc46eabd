#include "server/http/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text/c_locale.h"

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

static enum status write_url(int fd, const char *scheme, struct buf *url, struct err *err) {
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&address, &len) ||
        getnameinfo((struct sockaddr *)&address, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        return err_set(err, ERR_IO, "cannot tell the address of the socket");
    }
    return buf_appendf(url, err, strchr(host, ':') ? "%s://[%s]:%s" : "%s://%s:%s", scheme, host,
                       port);
}

enum status listen_open(int *fd, const char *host, uint16_t port, const char *scheme,
                        struct buf *url, struct err *err) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses = NULL;
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    int fault = getaddrinfo(host, service, &hints, &addresses);
    if (fault) {
        return err_set(err, ERR_IO, "cannot listen on %s: %s", *host ? host : "an empty host",
                       gai_strerror(fault));
    }
    *fd = -1;
    for (const struct addrinfo *a = addresses; a && *fd < 0; a = a->ai_next) *fd = bind_one(a);
    int reason = errno;
    freeaddrinfo(addresses);
    if (*fd < 0) {
        return err_set(err, ERR_IO, "cannot listen on %s port %u: %s", host, port,
                       c_locale_strerror(reason));
    }
    enum status status = write_url(*fd, scheme, url, err);
    if (status) close(*fd);
    return status;
}

// Whether somebody listens on a socket that is there already.
static bool is_alive(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    bool refused =
        connect(fd, (const struct sockaddr *)address, sizeof *address) && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

// Removes what a server left that was killed.
static enum status remove_stale(const struct sockaddr_un *address, struct err *err) {
    struct stat info;
    if (lstat(address->sun_path, &info)) return OK;
    if (!S_ISSOCK(info.st_mode)) {
        return err_set(err, ERR_IO, "cannot listen on %s: it is there and is no socket",
                       address->sun_path);
    }
    if (is_alive(address)) {
        return err_set(err, ERR_IO, "cannot listen on %s: another program does", address->sun_path);
    }
    unlink(address->sun_path);
    return OK;
}

enum status listen_open_unix(int *fd, const char *path, struct buf *url, struct err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    *fd = -1;
    if (!len || len >= sizeof address.sun_path) {
        return err_set(err, ERR_INVALID, "the path of a socket has %zu bytes, want 1 to %zu", len,
                       sizeof address.sun_path - 1);
    }
    memcpy(address.sun_path, path, len);
    enum status status = remove_stale(&address, err);
    if (!status) status = buf_appendf(url, err, "unix:%s", path);
    if (status) return status;
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 && bind(*fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        if (listen(*fd, BACKLOG) == 0) return OK;
        unlink(path);
    }
    status = err_set(err, ERR_IO, "cannot listen on %s: %s", path, c_locale_strerror(errno));
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return status;
}
