#include <llhttp.h>
#include <stdlib.h>

#include "server/http/http_syntax.h"

struct http_syntax {
    llhttp_t parser;
    llhttp_settings_t settings;
    const struct http_syntax_events *events;
    void *user_data;
};

static int pass(llhttp_t *parser, int (*event)(void *, const char *, size_t), const char *at,
                size_t len) {
    struct http_syntax *syntax = parser->data;
    return event(syntax->user_data, at, len) ? HPE_USER : 0;
}

static int on_url(llhttp_t *parser, const char *at, size_t len) {
    return pass(parser, ((struct http_syntax *)parser->data)->events->on_url, at, len);
}

static int on_field(llhttp_t *parser, const char *at, size_t len) {
    return pass(parser, ((struct http_syntax *)parser->data)->events->on_field, at, len);
}

static int on_value(llhttp_t *parser, const char *at, size_t len) {
    return pass(parser, ((struct http_syntax *)parser->data)->events->on_value, at, len);
}

static int on_body(llhttp_t *parser, const char *at, size_t len) {
    return pass(parser, ((struct http_syntax *)parser->data)->events->on_body, at, len);
}

static int on_complete(llhttp_t *parser) {
    struct http_syntax *syntax = parser->data;
    syntax->events->on_complete(syntax->user_data);
    return HPE_PAUSED; // what follows is another request
}

struct http_syntax *http_syntax_create(const struct http_syntax_events *events, void *user_data) {
    struct http_syntax *syntax = calloc(1, sizeof *syntax);
    if (!syntax) return NULL;
    syntax->events = events;
    syntax->user_data = user_data;
    llhttp_settings_init(&syntax->settings);
    syntax->settings.on_url = on_url;
    syntax->settings.on_header_field = on_field;
    syntax->settings.on_header_value = on_value;
    syntax->settings.on_body = on_body;
    syntax->settings.on_message_complete = on_complete;
    llhttp_init(&syntax->parser, HTTP_REQUEST, &syntax->settings);
    syntax->parser.data = syntax;
    return syntax;
}

void http_syntax_destroy(struct http_syntax *syntax) {
    free(syntax);
}

size_t http_syntax_feed(struct http_syntax *syntax, const char *bytes, size_t len,
                        enum http_syntax_fault *fault) {
    llhttp_errno_t problem = llhttp_execute(&syntax->parser, bytes, len);
    *fault = problem == HPE_OK || problem == HPE_PAUSED ? HTTP_SYNTAX_GOOD
             : problem == HPE_INVALID_METHOD            ? HTTP_SYNTAX_METHOD
             : problem == HPE_INVALID_VERSION           ? HTTP_SYNTAX_VERSION
                                                        : HTTP_SYNTAX_INVALID;
    if (problem == HPE_OK) return len;
    const char *end = llhttp_get_error_pos(&syntax->parser);
    return end ? (size_t)(end - bytes) : len;
}

const char *http_syntax_method(const struct http_syntax *syntax) {
    return llhttp_method_name((llhttp_method_t)syntax->parser.method);
}

bool http_syntax_is_version(const struct http_syntax *syntax, unsigned major, unsigned minor) {
    return syntax->parser.http_major == major && syntax->parser.http_minor == minor;
}

bool http_syntax_keeps_alive(const struct http_syntax *syntax) {
    return llhttp_should_keep_alive(&syntax->parser) != 0;
}

uint64_t http_syntax_length(const struct http_syntax *syntax) {
    return syntax->parser.content_length;
}
