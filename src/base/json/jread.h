/* Reading JSON: a thin layer over jansson that turns every fault into one sentence naming the
 * source (a file, a request) and the key. It is stricter than other readers and refuses:
 * - nesting deeper than JREAD_DEPTH_MAX, and anything after the document;
 * - duplicate keys: JSON gives them no meaning, so two programs may read different values;
 * - NaN and Infinity, which are not JSON, and a real number too large for a double.
 *
 * Getters take an object and a key. A missing or null key leaves *out untouched and returns OK, so
 * that the caller sets the default first; a wrong type or a value out of range is ERR_FORMAT. */
#ifndef BASE_JREAD_H
#define BASE_JREAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { JREAD_DEPTH_MAX = 64 }; // levels of lists and objects

// `what` names the source in messages. The caller owns *out (json_decref).
MUST_USE enum status jread_text(json_t **out, const char *text, size_t len, const char *what,
                                struct err *err);
// JSON of a request: a chat, a line of an input file. Strings may contain \u0000: take their length
// from json_string_length, not strlen. Integers may have up to 4300 digits. The tree takes at most
// jread_request_memory(len) bytes. A text that needs more is ERR_UNSUPPORTED before anything is
// allocated for it.
MUST_USE enum status jread_request(json_t **out, const char *text, size_t len, const char *what,
                                   struct err *err);
// The same for a JSON text inside a request. It shares the request's memory: the bound of its tree
// is subtracted from *memory_left.
MUST_USE enum status jread_request_part(json_t **out, const char *text, size_t len,
                                        size_t *memory_left, const char *what, struct err *err);
static inline size_t jread_request_memory(size_t len) { // bytes
    return ((size_t)16 << 20) + 40 * len;
}
MUST_USE enum status jread_file(json_t **out, const char *path, struct err *err);
// For a text whose strings alone are read. All integers come as reals, so that one beyond 64 bits
// in an unread member is no fault (tokenizer_config.json's model_max_length).
MUST_USE enum status jread_text_strings(json_t **out, const char *text, size_t len,
                                        const char *what, struct err *err);

MUST_USE enum status jread_int(const json_t *object, const char *key, int64_t min, int64_t max,
                               int64_t *out, const char *what, struct err *err);
MUST_USE enum status jread_number(const json_t *object, const char *key, double *out,
                                  const char *what, struct err *err); // finite
MUST_USE enum status jread_bool(const json_t *object, const char *key, bool *out, const char *what,
                                struct err *err);
// *out borrows from the document.
MUST_USE enum status jread_string(const json_t *object, const char *key, const char **out,
                                  const char *what, struct err *err);
// The sign and digits of an integer beyond 64 bits; NULL when `value` is anything else. jansson has
// no type for such a number: jread_request makes it an object with one member, whose key no JSON
// text can have. jwrite writes it as the number again.
const char *jread_big_integer(const json_t *value);
// json_is_object, but false for an integer beyond 64 bits.
bool jread_is_object(const json_t *value);
// json_object_get, but NULL for null values too.
json_t *jread_get(const json_t *object, const char *key);
// "an object", "a string", ...: for messages.
const char *jread_type_name(const json_t *value);

// JSON of the program itself, any value. Not jansson's json_loads, which stops the process at "0.5"
// in a locale whose decimal point has several bytes. NULL: no memory. The caller ends it with
// json_decref.
json_t *jread_literal(const char *text);

#endif
