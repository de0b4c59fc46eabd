#include "server/api/access.h"

#include <stdio.h>
#include <string.h>

#include "server/http/origin.h"
#include "server/loop/request_info.h"

// Takes as long for every key of the same length, right or wrong.
static bool is_equal(const char *given, size_t given_len, const char *key) {
    size_t key_len = strlen(key);
    unsigned char difference = given_len != key_len;
    for (size_t i = 0; i < given_len; i++) {
        unsigned char own = key_len ? (unsigned char)key[i % key_len] : 0;
        difference |= (unsigned char)((unsigned char)given[i] ^ own);
    }
    return difference == 0;
}

// All keys are compared: which one fits does not show in the time either.
static bool is_key(const struct server_options *options, const char *given, size_t len) {
    bool found = false;
    for (size_t i = 0; i < options->num_api_keys; i++) {
        found |= is_equal(given, len, options->api_keys[i]);
    }
    return found;
}

static const char *skip_scheme(const char *value) {
    static const char scheme[] = "bearer ";
    for (size_t i = 0; i < sizeof scheme - 1; i++) {
        char c = value[i] >= 'A' && value[i] <= 'Z' ? (char)(value[i] - 'A' + 'a') : value[i];
        if (c != scheme[i]) return NULL;
    }
    return value + sizeof scheme - 1;
}

static bool has_key(const struct server_options *options, const struct http_request *request) {
    const char *authorization = http_request_field(request, "authorization");
    const char *own_field = http_request_field(request, "x-api-key");
    if (http_request_count(request, "authorization") > 1 ||
        http_request_count(request, "x-api-key") > 1) {
        return false;
    }
    const char *bearer = authorization ? skip_scheme(authorization) : NULL;
    bool found = bearer && is_key(options, bearer, strlen(bearer));
    if (own_field) found |= is_key(options, own_field, strlen(own_field));
    return found;
}

/* A page of another site can have its name resolved to this machine, and then reads what it asks
 * (DNS rebinding). Such a request has the site's name in Host. A key stops it too. */
static bool is_known_host(const struct server_options *options,
                          const struct http_request *request) {
    if (options->unix_path) return true; // no browser connects to it
    if (options->num_api_keys || !host_is_loopback(options->host, strlen(options->host))) {
        return true;
    }
    const char *host = http_request_field(request, "host"), *name;
    if (!host) return true; // HTTP/1.0, which no browser speaks
    size_t len = host_name(host, &name);
    for (size_t i = 0; i < options->num_allowed_hosts; i++) {
        const char *allowed = options->allowed_hosts[i];
        if (strlen(allowed) == len && memcmp(allowed, name, len) == 0) return true;
    }
    return host_is_loopback(name, len);
}

bool access_check(const struct api *api, const struct http_request *request, bool is_open,
                  struct api_error *error) {
    const struct server_options *options = api->options;
    if (!is_known_host(options, request)) {
        return api_error_set(error, 403, "unknown_host", NULL,
                             "the name in Host is not this server's (--allowed-hosts)");
    }
    if (is_open || !options->num_api_keys || has_key(options, request)) return true;
    return api_error_set(error, 401, "invalid_api_key", NULL,
                         "a valid API key is needed: Authorization: Bearer KEY");
}

static bool is_field_list(const char *text) {
    for (const char *c = text; *c; c++) {
        bool message = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!message && !(*c >= '0' && *c <= '9') && !strchr("-_, ", *c)) return false;
    }
    return strlen(text) <= 1024;
}

bool access_preflight(struct api *api, struct http_conn *conn) {
    const struct http_request *request = http_conn_request(conn);
    if (strcmp(request->method, "OPTIONS") != 0 ||
        !http_request_field(request, "access-control-request-method") ||
        !http_request_field(request, "origin")) {
        return false;
    }
    struct request_info info;
    request_info_begin(&info, conn);
    char head[1400] = "";
    const char *fields = http_request_field(request, "access-control-request-headers");
    if (!fields || !is_field_list(fields)) fields = "Authorization, Content-Type";
    // Without an origin of this machine the fields say nothing, and the browser refuses.
    if (info.origin[0]) {
        snprintf(head, sizeof head,
                 "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Allow-Headers: %s\r\n"
                 "Access-Control-Max-Age: 600\r\n",
                 fields);
    }
    request_info_reply(api, &info, conn, 204, NULL, head, NULL, 0);
    return true;
}
