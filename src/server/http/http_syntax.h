/* The parser of HTTP/1's syntax that the build found: llhttp, or http-parser where there is none.
 * http_reader.c decides what of it is allowed. One parser reads one request. */
#ifndef SERVER_HTTP_SYNTAX_H
#define SERVER_HTTP_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_syntax;

// What the parser finds, in the order of the request. Not 0: the caller refuses it. A field's name
// is followed by its value, or by none if that is empty.
struct http_syntax_events {
    int (*on_url)(void *user_data, const char *at, size_t len);
    int (*on_field)(void *user_data, const char *at, size_t len);
    int (*on_value)(void *user_data, const char *at, size_t len);
    int (*on_body)(void *user_data, const char *at, size_t len);
    void (*on_complete)(void *user_data); // nothing more is read
};

enum http_syntax_fault {
    HTTP_SYNTAX_GOOD,
    HTTP_SYNTAX_METHOD, // one that the parser does not know
    HTTP_SYNTAX_VERSION,
    HTTP_SYNTAX_INVALID,
};

// NULL: no memory. `events` is borrowed.
struct http_syntax *http_syntax_create(const struct http_syntax_events *events, void *user_data);
void http_syntax_destroy(struct http_syntax *syntax); // NULL is fine
// Returns how many bytes belong to the request.
size_t http_syntax_feed(struct http_syntax *syntax, const char *bytes, size_t len,
                        enum http_syntax_fault *fault);

// ---- after the head ----

const char *http_syntax_method(const struct http_syntax *syntax); // "GET"
bool http_syntax_is_version(const struct http_syntax *syntax, unsigned major, unsigned minor);
bool http_syntax_keeps_alive(const struct http_syntax *syntax);
uint64_t http_syntax_length(const struct http_syntax *syntax); // if there is a Content-Length

#endif
