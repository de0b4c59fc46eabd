#include "server/http/tls.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"

struct tls {
    SSL_CTX *context;
};

// Reasons have numbers of their own in each library.
static bool is_error(unsigned long code, int library, int reason) {
    return ERR_GET_LIB(code) == library && ERR_GET_REASON(code) == reason;
}

// Whether the file has a block of PEM whose name ends in `kind`, well-formed inside or not.
static bool has_pem(const char *path, const char *kind) {
    BIO *file = BIO_new_file(path, "r");
    bool found = false;
    char line[256];
    while (file && !found && BIO_gets(file, line, sizeof line) > 0) {
        found = strncmp(line, "-----BEGIN ", 11) == 0 && strstr(line, kind);
    }
    BIO_free(file);
    return found;
}

// OpenSSL keeps what went wrong in a queue of the thread, the cause first.
static enum status refuse(struct err *err, const char *what, const char *path) {
    unsigned long code = ERR_peek_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    bool is_unread = is_error(code, ERR_LIB_OSSL_DECODER, ERR_R_UNSUPPORTED); // no decoder takes it
    if (is_unread && has_pem(path, "PRIVATE KEY-----")) {
        reason = "OpenSSL cannot read it: it is damaged or of an unknown kind";
    } else if (is_unread || is_error(code, ERR_LIB_PEM, PEM_R_NO_START_LINE)) {
        reason = "the file has none in PEM (-----BEGIN ...)";
    } else if (is_error(code, ERR_LIB_X509, X509_R_KEY_VALUES_MISMATCH)) {
        reason = "it belongs to another certificate";
    }
    enum status status = err_set(err, ERR_FORMAT, "%s %s cannot be used: %s", what, path,
                                 reason ? reason : "no reason is given");
    ERR_clear_error();
    return status;
}

// OpenSSL's words for a file that cannot be opened name neither the file nor the reason.
static enum status check_file(const char *flag, const char *path, struct err *err) {
    struct file file;
    enum status status = file_open(&file, path, err);
    if (status) return err_prefix(err, status, "%s", flag);
    file_close(&file);
    return OK;
}

static enum status read_files(SSL_CTX *context, const char *cert_path, const char *key_path,
                              struct err *err) {
    enum status status = check_file("--ssl-certfile", cert_path, err);
    if (!status) status = check_file("--ssl-keyfile", key_path, err);
    if (status) return status;
    if (SSL_CTX_use_certificate_chain_file(context, cert_path) != 1) {
        return refuse(err, "the certificate", cert_path);
    }
    if (SSL_CTX_use_PrivateKey_file(context, key_path, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        return refuse(err, "the key", key_path);
    }
    return OK;
}

// Of the protocols that a client offers only HTTP/1.1 is spoken here.
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg) {
    static const unsigned char own[] = "\x08http/1.1";
    (void)ssl;
    (void)arg;
    unsigned char *chosen = NULL;
    int found = SSL_select_next_proto(&chosen, out_len, own, sizeof own - 1, in, in_len);
    *out = chosen;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

enum status tls_create(struct tls **out, const char *cert_path, const char *key_path,
                       struct err *err) {
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls) tls->context = SSL_CTX_new(TLS_server_method());
    if (!tls || !tls->context) {
        tls_destroy(tls);
        return err_nomem(err, "TLS");
    }
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(tls->context, SSL_MODE_RELEASE_BUFFERS); // idle connections are small
    SSL_CTX_set_alpn_select_cb(tls->context, choose_protocol, NULL);
    enum status status = read_files(tls->context, cert_path, key_path ? key_path : cert_path, err);
    if (status) {
        tls_destroy(tls);
        return status;
    }
    *out = tls;
    return OK;
}

void tls_destroy(struct tls *tls) {
    if (!tls) return;
    SSL_CTX_free(tls->context);
    free(tls);
}

struct bufferevent *tls_accept(struct tls *tls, struct event_base *base, evutil_socket_t fd) {
    SSL *ssl = SSL_new(tls->context);
    if (!ssl) return NULL;
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE); // which frees ssl too
    if (!bev) {
        SSL_free(ssl);
        return NULL;
    }
    // A client that closes the socket without a word has left, as one without TLS.
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}

void tls_end(struct bufferevent *bev) {
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl) SSL_shutdown(ssl);
    ERR_clear_error();
}
