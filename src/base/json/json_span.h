/* Large values of a JSON document that are read by hand, because a JSON tree of hundreds of
 * thousands of values would take longer than all the rest. A search finds their places, and jansson
 * reads and checks the rest of the document. The search only counts brackets. Where a broken
 * document misleads it, jansson or the value's reader reports an error. */
#ifndef BASE_JSON_SPAN_H
#define BASE_JSON_SPAN_H

#include "base/json/jread.h"

struct json_span {
    const char *text; // NULL: absent, or a null
    size_t len;
};

bool json_span_is(struct json_span span, const char *text);

const char *json_skip_spaces(const char *p, const char *end);
// The place after the string's closing quote; NULL when there is none. `p` is at the opening one.
const char *json_skip_string(const char *p, const char *end);
// The place after the value at `p`; NULL when it does not end. Only brackets are counted.
const char *json_skip_value(const char *p, const char *end);
// The next key of an object, without its quotes. *p is at the opening bracket or after a value, and
// moves to the key's value. False at the end, or when this is no object.
bool json_next_key(const char **p, const char *end, struct json_span *key);

// jread_text or jread_request.
typedef enum status json_read_fn(json_t **out, const char *text, size_t len, const char *what,
                                 struct err *err);
// Reads `text` without the lists and objects `spans`, which lie in it in any order: each comes as
// an empty one. Spans without a text are ignored. `text` must be UTF-8.
MUST_USE enum status json_span_read_rest(json_t **root, struct json_span text,
                                         const struct json_span *spans, size_t num_spans,
                                         json_read_fn *read, const char *what, struct err *err);

#endif
