/* Reads a GGUF file's metadata with checks of type and range. A missing key leaves *out untouched
 * and returns OK; an error names the file and the key. */
#ifndef CHECKPOINT_GGUF_GGUF_READ_H
#define CHECKPOINT_GGUF_GGUF_READ_H

#include "checkpoint/gguf/file/gguf_file.h"

enum { GGUF_KEY_MAX = 160 };

// An integer of any type in [min, max], or a list of equal ones (one for each layer).
MUST_USE enum status gguf_read_int(const struct gguf *gguf, const char *key, int64_t min,
                                   int64_t max, int64_t *out, struct err *err);
// A finite number.
MUST_USE enum status gguf_read_real(const struct gguf *gguf, const char *key, double *out,
                                    struct err *err);
MUST_USE enum status gguf_read_bool(const struct gguf *gguf, const char *key, bool *out,
                                    struct err *err);
// Borrowed from the file.
MUST_USE enum status gguf_read_string(const struct gguf *gguf, const char *key,
                                      struct gguf_string *out, struct err *err);
// A list of this type. *found is false where there is no such key.
MUST_USE enum status gguf_read_array(const struct gguf *gguf, const char *key, enum gguf_type type,
                                     struct gguf_value *out, bool *found, struct err *err);
MUST_USE enum status gguf_missing(const struct gguf *gguf, const char *key, struct err *err);
bool gguf_string_is(struct gguf_string string, const char *text);
bool gguf_string_begins(struct gguf_string string, const char *text);

#endif
