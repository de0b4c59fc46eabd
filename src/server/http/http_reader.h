/* One HTTP/1 request, from bytes to its parts. http_syntax.h reads it. What that lets pass and a
 * server must not is refused here, before and after: lone LFs, folded fields, oversized heads and
 * bodies, a Transfer-Encoding other than chunked, and a missing or second Host. */
#ifndef SERVER_HTTP_READER_H
#define SERVER_HTTP_READER_H

#include <event2/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"

enum {
    HTTP_TARGET_BYTES_MAX = 8 << 10, // of the request line
    HTTP_HEAD_BYTES_MAX = 16 << 10,
    HTTP_FIELDS_MAX = 100,
};

struct http_field {
    uint32_t name, value; // offsets in `text`
};

struct http_request {
    const char *method; // "GET"
    struct buf text; // NUL-terminated strings
    uint32_t target; // offset in `text`: path and query
    struct http_field fields[HTTP_FIELDS_MAX]; // names in lower case
    uint32_t num_fields;
    struct buf body;
    bool keep_alive; // the client wants another request on this connection
    bool is_1_0; // HTTP/1.0, which knows no chunks
    bool has_body; // more than the head was announced
};

// The value of the first field with this name; NULL: there is none. `name` is in lower case.
const char *http_request_field(const struct http_request *request, const char *name);
uint32_t http_request_count(const struct http_request *request, const char *name);

enum http_reading {
    HTTP_READ_MORE, // bytes are missing
    HTTP_READ_HEAD, // the head has come, and is told once
    HTTP_READ_ALL, // the request is whole
    HTTP_READ_FAULT, // it is refused: fault_status and fault
};

struct http_reader;

struct http_reader *http_reader_create(size_t body_bytes_max);
void http_reader_destroy(struct http_reader *reader); // NULL is fine
// Takes what belongs to the request off `input`; what follows it stays there.
enum http_reading http_reader_feed(struct http_reader *reader, struct evbuffer *input);
struct http_request *http_reader_request(struct http_reader *reader);
size_t http_reader_length(const struct http_reader *reader); // Content-Length; 0: none
bool http_reader_has_head(const struct http_reader *reader);
// The answer to a request that is refused: an HTTP status and a sentence.
int http_reader_fault(const struct http_reader *reader, const char **sentence);

#endif
