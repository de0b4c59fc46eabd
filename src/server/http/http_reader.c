#include "server/http/http_reader.h"

#include <stdlib.h>
#include <string.h>

#include "server/http/http_syntax.h"

struct http_reader {
    struct http_syntax *syntax;
    struct http_request request;
    size_t body_bytes_max;
    size_t length; // Content-Length; 0: none
    size_t scanned; // bytes of the head that scan_head has seen
    bool line_ended; // the request line is whole
    bool has_head, head_told, complete;
    int fault_status;
    const char *fault;
};

// ---- what the parser finds ----

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

static int on_url(void *user_data, const char *at, size_t len) {
    struct http_reader *reader = user_data;
    reader->request.target = (uint32_t)reader->request.text.len;
    return add_text(reader, at, len);
}

static int on_field(void *user_data, const char *at, size_t len) {
    struct http_reader *reader = user_data;
    struct http_request *request = &reader->request;
    if (reader->has_head) return 0; // a trailer
    if (request->num_fields == HTTP_FIELDS_MAX)
        return refuse(reader, 431, "too many header fields");
    uint32_t start = (uint32_t)request->text.len;
    if (add_text(reader, at, len)) return 1;
    // An empty value may not be told: until one comes it is the name's end.
    request->fields[request->num_fields++] =
        (struct http_field){.name = start, .value = start + (uint32_t)len};
    for (char *c = request->text.data + start; *c; c++) {
        // Two servers in a row may take such a name for different ones.
        if (*c == ' ' || *c == '\t') return refuse(reader, 400, "a field's name has a space");
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    return 0;
}

static int on_value(void *user_data, const char *at, size_t len) {
    struct http_reader *reader = user_data;
    struct http_request *request = &reader->request;
    if (reader->has_head) return 0;
    while (len && (at[len - 1] == ' ' || at[len - 1] == '\t')) len--; // they are none of it
    request->fields[request->num_fields - 1].value = (uint32_t)request->text.len;
    return add_text(reader, at, len);
}

static int on_body(void *user_data, const char *at, size_t len) {
    struct http_reader *reader = user_data;
    struct buf *body = &reader->request.body;
    if (len > reader->body_bytes_max - body->len) {
        return refuse(reader, 413, "the body is larger than this server takes");
    }
    return buf_append(body, at, len, NULL) ? refuse(reader, 503, "out of memory") : 0;
}

static void on_complete(void *user_data) {
    struct http_reader *reader = user_data;
    reader->complete = true;
}

static const struct http_syntax_events events = {.on_url = on_url,
                                                 .on_field = on_field,
                                                 .on_value = on_value,
                                                 .on_body = on_body,
                                                 .on_complete = on_complete};

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

static int refuse_version(struct http_reader *reader) {
    return refuse(reader, 505, "the HTTP version is not 1.1 or 1.0");
}

// Whether `text` begins with `word`, which is in lower case, in any case.
static bool begins_with(const char *text, const char *word) {
    for (; *word; word++, text++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
        if (c != *word) return false;
    }
    return true;
}

// A target with the name of a server, as clients of proxies send it. That name stands for the one
// in Host (RFC 9112, 3.2.2), and its path is the target.
static int read_absolute_target(struct http_reader *reader) {
    static const char *const schemes[] = {"http://", "https://"};
    struct http_request *request = &reader->request;
    const char *target = request->text.data + request->target, *name = NULL;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t len = strlen(schemes[i]);
        if (begins_with(target, schemes[i])) name = target + len;
    }
    if (!name) return 0;
    size_t len = strcspn(name, "/?#");
    if (!len || memchr(name, '@', len)) {
        return refuse(reader, 400, "the target names no server, or a user");
    }
    // Offsets, because the text moves when it grows.
    uint32_t name_at = (uint32_t)(name - request->text.data), path_at = name_at + (uint32_t)len;
    uint32_t host_at = (uint32_t)request->text.len;
    if (buf_reserve(&request->text, len + strlen(target) + 4, NULL)) {
        return refuse(reader, 503, "out of memory");
    }
    if (add_text(reader, request->text.data + name_at, len)) return 1;
    for (uint32_t i = 0; i < request->num_fields; i++) {
        struct http_field *field = &request->fields[i];
        if (strcmp(request->text.data + field->name, "host") == 0) field->value = host_at;
    }
    if (request->text.data[path_at] == '/') {
        request->target = path_at;
        return 0;
    }
    request->target = (uint32_t)request->text.len;
    const char *rest = request->text.data + path_at;
    return buf_append(&request->text, "/", 1, NULL) ? refuse(reader, 503, "out of memory")
                                                    : add_text(reader, rest, strlen(rest));
}

static int check_head(struct http_reader *reader) {
    const struct http_request *request = &reader->request;
    bool is_1 = http_syntax_is_version(reader->syntax, 1, 1) || request->is_1_0;
    if (!is_1) return refuse_version(reader);
    uint32_t num_hosts = http_request_count(request, "host");
    if (num_hosts > 1 || (!num_hosts && !request->is_1_0)) {
        return refuse(reader, 400, "a request has one Host field");
    }
    const char *coding = http_request_field(request, "transfer-encoding");
    if (coding && (!begins_with(coding, "chunked") || coding[7] ||
                   http_request_count(request, "transfer-encoding") > 1)) {
        return refuse(reader, 400, "the Transfer-Encoding is not chunked");
    }
    // HTTP/1.0 has no chunks: what stands between may have taken the body for something else.
    if (coding && request->is_1_0) {
        return refuse(reader, 400, "HTTP/1.0 has no Transfer-Encoding");
    }
    if (coding && http_request_field(request, "content-length")) {
        return refuse(reader, 400, "both Content-Length and Transfer-Encoding are given");
    }
    if (!http_request_field(request, "content-length")) return 0;
    uint64_t length = http_syntax_length(reader->syntax);
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
    enum http_syntax_fault fault;
    size_t used = http_syntax_feed(reader->syntax, head, len, &fault);
    if (reader->fault_status) return;
    if (fault == HTTP_SYNTAX_VERSION) {
        refuse_version(reader);
        return;
    }
    if (fault == HTTP_SYNTAX_METHOD && has_foreign_method(head, len)) {
        refuse(reader, 405, "the method is not known here");
        return;
    }
    if (used != len || fault) {
        refuse(reader, 400, "the request is not valid HTTP");
        return;
    }
    request->method = http_syntax_method(reader->syntax);
    request->is_1_0 = http_syntax_is_version(reader->syntax, 1, 0);
    request->keep_alive = http_syntax_keeps_alive(reader->syntax);
    request->has_body = !reader->complete;
    reader->has_head = true;
    if (!check_head(reader)) read_absolute_target(reader);
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
        enum http_syntax_fault fault;
        size_t used = http_syntax_feed(reader->syntax, piece.iov_base, piece.iov_len, &fault);
        evbuffer_drain(input, used);
        if (fault) {
            refuse(reader, 400, "the body is not valid HTTP");
        }
    }
}

// ---- the interface ----

struct http_reader *http_reader_create(size_t body_bytes_max) {
    struct http_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->body_bytes_max = body_bytes_max;
    reader->syntax = http_syntax_create(&events, reader);
    if (reader->syntax) return reader;
    free(reader);
    return NULL;
}

void http_reader_destroy(struct http_reader *reader) {
    if (!reader) return;
    http_syntax_destroy(reader->syntax);
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
