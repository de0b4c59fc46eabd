#include <http_parser.h>
#include <stdlib.h>

#include "server/http/http_syntax.h"

struct http_syntax {
    struct http_parser parser;
    const struct http_syntax_events *events;
    void *user_data;
};

static int on_url(struct http_parser *parser, const char *at, size_t len) {
    struct http_syntax *syntax = parser->data;
    return syntax->events->on_url(syntax->user_data, at, len);
}

static int on_field(struct http_parser *parser, const char *at, size_t len) {
    struct http_syntax *syntax = parser->data;
    return syntax->events->on_field(syntax->user_data, at, len);
}

static int on_value(struct http_parser *parser, const char *at, size_t len) {
    struct http_syntax *syntax = parser->data;
    return syntax->events->on_value(syntax->user_data, at, len);
}

static int on_body(struct http_parser *parser, const char *at, size_t len) {
    struct http_syntax *syntax = parser->data;
    return syntax->events->on_body(syntax->user_data, at, len);
}

static int on_complete(struct http_parser *parser) {
    struct http_syntax *syntax = parser->data;
    syntax->events->on_complete(syntax->user_data);
    http_parser_pause(parser, 1); // what follows is another request
    return 0;
}

static const struct http_parser_settings settings = {.on_url = on_url,
                                                     .on_header_field = on_field,
                                                     .on_header_value = on_value,
                                                     .on_body = on_body,
                                                     .on_message_complete = on_complete};

struct http_syntax *http_syntax_create(const struct http_syntax_events *events, void *user_data) {
    struct http_syntax *syntax = calloc(1, sizeof *syntax);
    if (!syntax) return NULL;
    syntax->events = events;
    syntax->user_data = user_data;
    http_parser_init(&syntax->parser, HTTP_REQUEST);
    syntax->parser.data = syntax;
    return syntax;
}

void http_syntax_destroy(struct http_syntax *syntax) {
    free(syntax);
}

size_t http_syntax_feed(struct http_syntax *syntax, const char *bytes, size_t len,
                        enum http_syntax_fault *fault) {
    size_t used = http_parser_execute(&syntax->parser, &settings, bytes, len);
    enum http_errno problem = HTTP_PARSER_ERRNO(&syntax->parser);
    *fault = problem == HPE_OK || problem == HPE_PAUSED ? HTTP_SYNTAX_GOOD
             : problem == HPE_INVALID_METHOD            ? HTTP_SYNTAX_METHOD
             : problem == HPE_INVALID_VERSION           ? HTTP_SYNTAX_VERSION
                                                        : HTTP_SYNTAX_INVALID;
    return used;
}

const char *http_syntax_method(const struct http_syntax *syntax) {
    return http_method_str((enum http_method)syntax->parser.method);
}

bool http_syntax_is_version(const struct http_syntax *syntax, unsigned major, unsigned minor) {
    return syntax->parser.http_major == major && syntax->parser.http_minor == minor;
}

bool http_syntax_keeps_alive(const struct http_syntax *syntax) {
    return http_should_keep_alive(&syntax->parser) != 0;
}

uint64_t http_syntax_length(const struct http_syntax *syntax) {
    return syntax->parser.content_length; // all ones where there is none
}
