// Builds without OpenSSL.
#include "server/http/tls.h"

enum status tls_create(struct tls **out, const char *cert_path, const char *key_path,
                       struct err *err) {
    (void)cert_path;
    (void)key_path;
    *out = NULL;
    return err_set(
        err, ERR_UNSUPPORTED,
        "this program was built without OpenSSL, so it has no TLS: put a proxy in front");
}

void tls_destroy(struct tls *tls) {
    (void)tls;
}

struct bufferevent *tls_accept(struct tls *tls, struct event_base *base, evutil_socket_t fd) {
    (void)tls;
    (void)base;
    (void)fd;
    return NULL;
}

void tls_end(struct bufferevent *bev) {
    (void)bev;
}
