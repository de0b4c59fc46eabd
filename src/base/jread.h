/* Reading JSON: a thin skin over jansson that turns every fault into one sentence naming the file
 * (or other source) and the key. Duplicate keys are refused, as is anything after the document.
 *
 * Getters take an object and a key. A missing or null key leaves *out untouched and returns OK, so
 * that the caller sets the default first; a wrong type or a value out of range is ERR_FORMAT. */
#ifndef BASE_JREAD_H
#define BASE_JREAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

// `what` names the source in messages. The caller owns *out (json_decref).
MUST_USE enum status jread_text(json_t **out, const char *text, size_t len, const char *what,
                                struct err *err);
// The same, but strings and keys may contain \u0000: json_string_length counts, strlen does not.
MUST_USE enum status jread_text_nul(json_t **out, const char *text, size_t len, const char *what,
                                    struct err *err);
MUST_USE enum status jread_file(json_t **out, const char *path, struct err *err);
// For a file that is read for its strings: integers of any size come as reals, so that one beyond
// 64 bits in a member that nobody asks for is no fault (tokenizer_config.json's model_max_length).
MUST_USE enum status jread_file_strings(json_t **out, const char *path, struct err *err);

MUST_USE enum status jread_int(const json_t *object, const char *key, int64_t min, int64_t max,
                               int64_t *out, const char *what, struct err *err);
MUST_USE enum status jread_number(const json_t *object, const char *key, double *out,
                                  const char *what, struct err *err); // finite
MUST_USE enum status jread_bool(const json_t *object, const char *key, bool *out, const char *what,
                                struct err *err);
// *out borrows from the document.
MUST_USE enum status jread_string(const json_t *object, const char *key, const char **out,
                                  const char *what, struct err *err);
// json_object_get, but NULL for null values too.
json_t *jread_get(const json_t *object, const char *key);
// "an object", "a string", ...: for messages.
const char *jread_type_name(const json_t *value);

#endif
