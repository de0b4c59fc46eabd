#include "server/http_reader.h"

#include <http_parser.h>
#include <stdlib.h>
#include <string.h>

struct http_reader {
    struct http_parser parser;
    struct http_request request;
    size_t body_bytes_max;
    size_t length; // Content-Length; 0: none
    size_t scanned; // bytes of the head that scan_head has seen
    bool line_ended; // the request line is whole
    bool has_head, head_told, complete;
    int fault_status;
    const char *fault;
};

// ---- what http-parser calls ----

static int refuse(struct http_reader *reader, int status, const char *sentence) {
    if (!reader->fault_status) {
        reader->fault_status = status;
        reader->fault = sentence;
    }
    return 1;
}

static int add_text(struct http_reader *reader, const char *at, size_t len) {
    struct buf *text = &reader->request.text;
    if (buf_append(text, at, len, NULL) || buf_append(text, "", 1, NULL)) {
        return refuse(reader, 503, "out of memory");
    }
    return 0;
}

static int on_url(struct http_parser *parser, const char *at, size_t len) {
    struct http_reader *reader = parser->data;
    reader->request.target = (uint32_t)reader->request.text.len;
    return add_text(reader, at, len);
}

static int on_field(struct http_parser *parser, const char *at, size_t len) {
    struct http_reader *reader = parser->data;
    struct http_request *request = &reader->request;
    if (reader->has_head) return 0; // a trailer
    if (request->num_fields == HTTP_FIELDS_MAX)
        return refuse(reader, 431, "too many header fields");
    uint32_t start = (uint32_t)request->text.len;
    request->fields[request->num_fields].name = start;
    if (add_text(reader, at, len)) return 1;
    for (char *c = request->text.data + start; *c; c++) {
        // Two servers in a row may take such a name for different ones.
        if (*c == ' ' || *c == '\t') return refuse(reader, 400, "a field's name has a space");
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    return 0;
}

static int on_value(struct http_parser *parser, const char *at, size_t len) {
    struct http_reader *reader = parser->data;
    struct http_request *request = &reader->request;
    if (reader->has_head) return 0;
    while (len && (at[len - 1] == ' ' || at[len - 1] == '\t')) len--; // they are none of it
    request->fields[request->num_fields++].value = (uint32_t)request->text.len;
    return add_text(reader, at, len);
}

static int on_body(struct http_parser *parser, const char *at, size_t len) {
    struct http_reader *reader = parser->data;
    struct buf *body = &reader->request.body;
    if (len > reader->body_bytes_max - body->len) {
        return refuse(reader, 413, "the body is larger than this server takes");
    }
    return buf_append(body, at, len, NULL) ? refuse(reader, 503, "out of memory") : 0;
}

static int on_complete(struct http_parser *parser) {
    struct http_reader *reader = parser->data;
    reader->complete = true;
    http_parser_pause(parser, 1); // what follows is another request
    return 0;
}

static const struct http_parser_settings settings = {.on_url = on_url,
                                                     .on_header_field = on_field,
                                                     .on_header_value = on_value,
                                                     .on_body = on_body,
                                                     .on_message_complete = on_complete};

// ---- the head ----

// Looks for the head's end. Returns its length; 0: bytes are missing, or it is refused.
static size_t scan_head(struct http_reader *reader, const char *head, size_t len) {
    for (; reader->scanned < len; reader->scanned++) {
        size_t i = reader->scanned;
        if (i == 0 && (head[0] < 'A' || head[0] > 'Z')) refuse(reader, 400, "this is not HTTP");
        if (i && head[i - 1] == '\n' && (head[i] == ' ' || head[i] == '\t')) {
            refuse(reader, 400, "a header field is folded");
        }
        if (!reader->line_ended && i > HTTP_TARGET_BYTES_MAX) {
            refuse(reader, 414, "the request line is too long");
        }
        if (i >= HTTP_HEAD_BYTES_MAX) refuse(reader, 431, "the header is too large");
        if (reader->fault_status) return 0;
        if (head[i] != '\n') continue;
        reader->line_ended = true;
        if (!i || head[i - 1] != '\r') {
            refuse(reader, 400, "a line ends without CR");
            return 0;
        }
        if (i >= 3 && head[i - 2] == '\n') return i + 1;
    }
    return 0;
}

static int check_version(struct http_reader *reader) {
    if (reader->parser.http_major == 1 && reader->parser.http_minor <= 1) return 0;
    return refuse(reader, 505, "the HTTP version is not 1.1 or 1.0");
}

static int check_head(struct http_reader *reader) {
    const struct http_request *request = &reader->request;
    if (check_version(reader)) return 1;
    uint32_t num_hosts = http_request_count(request, "host");
    if (num_hosts > 1 || (!num_hosts && !request->is_1_0)) {
        return refuse(reader, 400, "a request has one Host field");
    }
    const char *coding = http_request_field(request, "transfer-encoding");
    if (coding &&
        (strcmp(coding, "chunked") != 0 || http_request_count(request, "transfer-encoding") > 1)) {
        return refuse(reader, 400, "the Transfer-Encoding is not chunked");
    }
    if (coding && http_request_field(request, "content-length")) {
        return refuse(reader, 400, "both Content-Length and Transfer-Encoding are given");
    }
    uint64_t length = reader->parser.content_length; // all ones where none was given
    if (!http_request_field(request, "content-length") || length == UINT64_MAX) return 0;
    if (length > reader->body_bytes_max) {
        return refuse(reader, 413, "the body is larger than this server takes");
    }
    reader->length = (size_t)length;
    return 0;
}

// "QUERY /path HTTP/1.1": a method that the parser does not know, else well-formed.
static bool has_foreign_method(const char *head, size_t len) {
    size_t at = 0;
    while (at < len && head[at] >= 'A' && head[at] <= 'Z') at++;
    const char *end = memchr(head, '\r', len);
    static const char version[] = " HTTP/1.1";
    size_t line_len = end ? (size_t)(end - head) : 0, version_len = sizeof version - 1;
    return at > 0 && at + 1 < len && head[at] == ' ' && head[at + 1] == '/' &&
           line_len > at + 1 + version_len && memcmp(end - version_len, version, version_len) == 0;
}

static void read_head(struct http_reader *reader, const char *head, size_t len) {
    struct http_request *request = &reader->request;
    size_t used = http_parser_execute(&reader->parser, &settings, head, len);
    enum http_errno problem = HTTP_PARSER_ERRNO(&reader->parser);
    if (reader->fault_status) return;
    if (problem == HPE_INVALID_METHOD && has_foreign_method(head, len)) {
        refuse(reader, 405, "the method is not known here");
        return;
    }
    if (used != len || (problem != HPE_OK && problem != HPE_PAUSED)) {
        refuse(reader, 400, "the request is not valid HTTP");
        return;
    }
    request->method = http_method_str((enum http_method)reader->parser.method);
    request->is_1_0 = reader->parser.http_minor == 0;
    request->keep_alive = http_should_keep_alive(&reader->parser) != 0;
    request->has_body = !reader->complete;
    reader->has_head = true;
    check_head(reader);
}

static void feed_head(struct http_reader *reader, struct evbuffer *input) {
    // One byte more than a head may have shows that it is too long.
    size_t len = evbuffer_get_length(input);
    if (len > HTTP_HEAD_BYTES_MAX + 1) len = HTTP_HEAD_BYTES_MAX + 1;
    const char *head = len ? (const char *)evbuffer_pullup(input, (ev_ssize_t)len) : NULL;
    if (!head) return;
    // Empty lines before a request are to be skipped (RFC 9112, 2.2).
    if (!reader->scanned && len >= 2 && head[0] == '\r' && head[1] == '\n') {
        evbuffer_drain(input, 2);
        feed_head(reader, input);
        return;
    }
    if (!reader->scanned && len == 1 && head[0] == '\r') return;
    size_t head_len = scan_head(reader, head, len);
    if (!head_len) return;
    read_head(reader, head, head_len);
    evbuffer_drain(input, head_len);
}

static void feed_body(struct http_reader *reader, struct evbuffer *input) {
    struct evbuffer_iovec piece;
    while (!reader->complete && !reader->fault_status &&
           evbuffer_peek(input, -1, NULL, &piece, 1) > 0) {
        size_t used =
            http_parser_execute(&reader->parser, &settings, piece.iov_base, piece.iov_len);
        enum http_errno problem = HTTP_PARSER_ERRNO(&reader->parser);
        evbuffer_drain(input, used);
        if (problem != HPE_OK && problem != HPE_PAUSED) {
            refuse(reader, 400, "the body is not valid HTTP");
        }
    }
}

// ---- the interface ----

struct http_reader *http_reader_create(size_t body_bytes_max) {
    struct http_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->body_bytes_max = body_bytes_max;
    http_parser_init(&reader->parser, HTTP_REQUEST);
    reader->parser.data = reader;
    return reader;
}

void http_reader_destroy(struct http_reader *reader) {
    if (!reader) return;
    buf_fini(&reader->request.text);
    buf_fini(&reader->request.body);
    free(reader);
}

enum http_reading http_reader_feed(struct http_reader *reader, struct evbuffer *input) {
    if (!reader->has_head && !reader->fault_status) feed_head(reader, input);
    if (reader->fault_status) return HTTP_READ_FAULT;
    if (!reader->has_head) return HTTP_READ_MORE;
    if (!reader->head_told) {
        reader->head_told = true;
        return HTTP_READ_HEAD;
    }
    feed_body(reader, input);
    if (reader->fault_status) return HTTP_READ_FAULT;
    return reader->complete ? HTTP_READ_ALL : HTTP_READ_MORE;
}

struct http_request *http_reader_request(struct http_reader *reader) {
    return &reader->request;
}

size_t http_reader_length(const struct http_reader *reader) {
    return reader->length;
}

bool http_reader_has_head(const struct http_reader *reader) {
    return reader->has_head;
}

int http_reader_fault(const struct http_reader *reader, const char **sentence) {
    *sentence = reader->fault;
    return reader->fault_status;
}

const char *http_request_field(const struct http_request *request, const char *name) {
    for (uint32_t i = 0; i < request->num_fields; i++) {
        const char *text = request->text.data;
        if (strcmp(text + request->fields[i].name, name) == 0) {
            return text + request->fields[i].value;
        }
    }
    return NULL;
}

uint32_t http_request_count(const struct http_request *request, const char *name) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < request->num_fields; i++) {
        count += strcmp(request->text.data + request->fields[i].name, name) == 0;
    }
    return count;
}
