#include "server/route.h"

#include <stdio.h>
#include <string.h>

#include "server/api/endpoints.h"
#include "server/loop/api.h"
#include "server/loop/api_error.h"
#include "server/loop/api_request.h"
#include "server/loop/request_info.h"
#include "server/observe/engine_room.h"
#include "server/page/web_page.h"

// ---- who may ask ----

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

// `is_open`: a key is not needed. False: error is set.
static bool access_check(const struct api *api, const struct http_request *request, bool is_open,
                         struct api_error *error) {
    const struct server_options *options = api->options;
    if (!is_known_host(options, request)) {
        return api_error_set(error, 403, "unknown_host", NULL,
                             "the name in Host is not this server's (--allowed-hosts)");
    }
    if (is_open || !options->num_api_keys || has_key(options, request)) return true;
    return api_error_set(error, 401, "invalid_api_key", NULL,
                         "a valid API key is needed: Authorization: Bearer KEY, or "
                         "x-api-key: KEY");
}

static bool is_field_list(const char *text) {
    for (const char *c = text; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!letter && !(*c >= '0' && *c <= '9') && !strchr("-_, ", *c)) return false;
    }
    return strlen(text) <= 1024;
}

// Answers a browser's preflight; false: this is none.
static bool access_preflight(struct api *api, struct http_conn *conn) {
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

// ---- where to ----

struct route {
    const char *path; // ends with * where any name may stand there
    // Exactly one: a page is written at once, an endpoint has an API request.
    void (*get)(struct api *api, const struct request_info *info, struct http_conn *conn,
                const char *name);
    const struct endpoint *post;
    bool is_open; // without a key
    bool generates; // not while the server ends
    bool also_short; // without /v1 too, as llama-server has it
};

static const struct route routes[] = {
    {.path = "/health", .get = page_health, .is_open = true},
    {.path = "/v1/health", .get = page_health, .is_open = true},
    {.path = "/live", .get = page_live, .is_open = true},
    {.path = "/ready", .get = page_ready, .is_open = true},
    {.path = "/version", .get = page_version},
    {.path = "/metrics", .get = page_metrics},
    {.path = "/openapi.json", .get = page_openapi},
    {.path = "/props", .get = page_props},
    {.path = "/tokenizer_info", .get = page_tokenizer_info},
    // A browser sends no key for these, and they have nothing to hide.
    {.path = "/", .get = page_html, .is_open = true},
    {.path = "/page.css", .get = page_css, .is_open = true},
    {.path = "/page.js", .get = page_js, .is_open = true},
    {.path = "/engine/state", .get = page_engine_state},
    {.path = "/engine/events", .get = page_engine_events},
    {.path = "/engine/blocks/*", .get = page_engine_block},
    {.path = "/engine/control", .post = &endpoint_engine_control},
    {.path = "/v1/models", .get = page_models, .also_short = true},
    {.path = "/v1/models/*", .get = page_model},
    {.path = "/v1/completions",
     .post = &endpoint_completions,
     .generates = true,
     .also_short = true},
    {.path = "/v1/chat/completions", .post = &endpoint_chat, .generates = true, .also_short = true},
    {.path = "/v1/responses", .post = &endpoint_responses, .generates = true},
    {.path = "/v1/responses/input_tokens", .post = &endpoint_responses_count},
    {.path = "/v1/messages", .post = &endpoint_messages, .generates = true},
    {.path = "/v1/messages/count_tokens", .post = &endpoint_count_tokens},
    {.path = "/tokenize", .post = &endpoint_tokenize},
    {.path = "/detokenize", .post = &endpoint_detokenize},
    {.path = "/apply-template", .post = &endpoint_apply_template},
    {.path = "/v1/embeddings", .post = &endpoint_embeddings, .generates = true, .also_short = true},
    {.path = "/v1/score", .post = &endpoint_score, .generates = true, .also_short = true},
    {.path = "/v1/rerank", .post = &endpoint_rerank, .generates = true, .also_short = true},
    {.path = "/v2/rerank", .post = &endpoint_rerank, .generates = true},
};

// *name is what stands for the *. The spelling counts: no decoding, no dots, no doubled slashes.
static const struct route *find_route(const char *path, size_t len, const char **name) {
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        const char *own = routes[i].path;
        size_t own_len = strlen(own);
        *name = path + own_len - 1;
        if (own[own_len - 1] != '*') {
            if (own_len == len && memcmp(own, path, len) == 0) return &routes[i];
            size_t skip = strlen("/v1");
            bool is_short = routes[i].also_short && own_len == len + skip;
            if (is_short && memcmp(own + skip, path, len) == 0) return &routes[i];
        } else if (len > own_len - 1 && memcmp(own, path, own_len - 1) == 0) {
            return &routes[i];
        }
    }
    return NULL;
}

// NULL: there is none, or the head has not come.
static const struct route *route_of(struct http_conn *conn, const char **name) {
    const struct http_request *request = http_conn_request(conn);
    if (!request->method) return NULL;
    const char *path = request->text.data + request->target;
    return find_route(path, strcspn(path, "?"), name);
}

static bool is_get(const struct http_request *request) {
    return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
}

// ---- checks of the head ----

// In the form of the endpoint that was asked for.
static void refuse(struct api *api, struct http_conn *conn, const struct api_error *error,
                   const char *head) {
    struct request_info info;
    struct json_out *out = &api->scratch;
    const char *name;
    const struct route *route = route_of(conn, &name);
    request_info_begin(&info, conn);
    json_out_clear(out);
    if (route && route->post && route->post->write_refusal) {
        route->post->write_refusal(error, out);
    } else {
        api_error_write(out, error);
    }
    if (!head) {
        request_info_reply_refusal(api, &info, conn, error, out);
        return;
    }
    request_info_reply(api, &info, conn, error->status, "application/json", head, out->buf.data,
                       out->buf.len);
}

// "application/json; charset=utf-8"
static bool is_json(const char *type) {
    static const char wanted[] = "application/json";
    size_t len = sizeof wanted - 1;
    if (!type || strlen(type) < len) return false;
    for (size_t i = 0; i < len; i++) {
        char c = type[i] >= 'A' && type[i] <= 'Z' ? (char)(type[i] - 'A' + 'a') : type[i];
        if (c != wanted[i]) return false;
    }
    return !type[len] || strchr("; \t", type[len]) != NULL;
}

static bool check_post(const struct api *api, const struct route *route,
                       const struct http_request *request, struct api_error *error) {
    const char *coding = http_request_field(request, "content-encoding");
    if (!is_json(http_request_field(request, "content-type"))) {
        return api_error_set(error, 415, "unsupported_media_type", NULL,
                             "the body is to be JSON: send the header Content-Type: "
                             "application/json (curl: -H 'Content-Type: application/json')");
    }
    if (coding && strcmp(coding, "identity") != 0) {
        return api_error_set(error, 415, "unsupported_media_type", NULL,
                             "the body is compressed, want it as it is");
    }
    if (api->has_failed) {
        return api_error_set(error, 503, "engine_failed", NULL, "the engine has failed");
    }
    if (!api->is_draining || !route->generates) return true;
    error->retry_after = 5;
    return api_error_set(error, 503, "shutting_down", NULL, "the server is shutting down");
}

static bool check_route(struct api *api, struct http_conn *conn, const struct route *route,
                        struct api_error *error, const char **head) {
    const struct http_request *request = http_conn_request(conn);
    if (!route) return api_error_set(error, 404, "not_found", NULL, "there is nothing here");
    if (route->get && is_get(request)) return true;
    if (!route->get && strcmp(request->method, "POST") == 0) {
        return check_post(api, route, request, error);
    }
    *head = route->get ? "Allow: GET, HEAD\r\n" : "Allow: POST\r\n";
    return api_error_set(error, 405, "method_not_allowed", NULL, "want %s here",
                         route->get ? "GET" : "POST");
}

void route_on_head(struct http_conn *conn, void *user_data) {
    struct api *api = user_data;
    const struct http_request *request = http_conn_request(conn);
    const char *name, *head = NULL;
    const struct route *route = route_of(conn, &name);
    struct api_error error = {0};
    if (access_preflight(api, conn)) return;
    bool is_open = route && route->is_open && is_get(request);
    if (!access_check(api, request, is_open, &error) ||
        !check_route(api, conn, route, &error, &head)) {
        refuse(api, conn, &error, head);
    }
}

void route_on_request(struct http_conn *conn, void *user_data) {
    struct api *api = user_data;
    const char *name;
    const struct route *route = route_of(conn, &name); // route_on_head let it pass
    struct request_info info;
    request_info_begin(&info, conn);
    if (route->get) {
        route->get(api, &info, conn, name);
    } else {
        api_request_start(api, conn, route->post, &info);
    }
}

void route_on_gone(struct http_conn *conn, void *user_data) {
    struct api *api = user_data;
    struct api_request *request = http_conn_data(conn);
    if (request) {
        api_request_abandon(request);
    } else {
        engine_room_gone(api->room, conn);
    }
}

void route_on_full(struct http_conn *conn, void *user_data) {
    struct api_error error = {.retry_after = 1};
    api_error_set(&error, 503, "bodies_full", NULL,
                  "the server has no room for this body beside those of others "
                  "(--max-bodies-mib)");
    refuse(user_data, conn, &error, NULL);
}

void route_on_fault(struct http_conn *conn, int status, const char *sentence, void *user_data) {
    struct api *api = user_data;
    struct api_error error = {0};
    const char *code = status == 503   ? "out_of_memory"
                       : status == 405 ? "method_not_allowed"
                                       : "bad_http";
    api_error_set(&error, status, code, NULL, "%s", sentence);
    if (status == 503) error.retry_after = 1;
    refuse(api, conn, &error, status == 405 ? "Allow: GET, HEAD, POST\r\n" : NULL);
}
