#include "checkpoint/gguf/file/gguf_read.h"

#include <math.h>
#include <string.h>

static enum status wrong_type(const struct gguf *gguf, const char *key,
                              const struct gguf_value *value, const char *want, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s%s, want %s", gguf_path(gguf), key,
                   value->is_array ? "an array of " : "", gguf_type_name(value->type), want);
}

enum status gguf_missing(const struct gguf *gguf, const char *key, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s has no \"%s\"", gguf_path(gguf), key);
}

bool gguf_string_is(struct gguf_string string, const char *text) {
    return string.len == strlen(text) && memcmp(string.text, text, string.len) == 0;
}

bool gguf_string_begins(struct gguf_string string, const char *text) {
    size_t len = strlen(text);
    return string.len >= len && memcmp(string.text, text, len) == 0;
}

enum status gguf_read_int(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                          int64_t *out, struct err *err) {
    struct gguf_value value;
    int64_t first = 0;
    if (!gguf_find(gguf, key, &value)) return OK;
    if (value.type == GGUF_STRING || value.type == GGUF_BOOL || value.type == GGUF_F32 ||
        value.type == GGUF_F64 || value.count == 0) {
        return wrong_type(gguf, key, &value, "an integer", err);
    }
    bool is_good = gguf_integer(&value, 0, &first);
    for (uint64_t i = 1; i < value.count; i++) {
        int64_t other = 0;
        if (!gguf_integer(&value, i, &other) || other != first) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: \"%s\" differs between layers, which is not supported",
                           gguf_path(gguf), key);
        }
    }
    if (is_good && first >= min && first <= max) {
        *out = first;
        return OK;
    }
    return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s%lld, want %lld to %lld", gguf_path(gguf), key,
                   is_good ? "" : "negative or more than ",
                   is_good ? (long long)first : (long long)INT64_MAX, (long long)min,
                   (long long)max);
}

enum status gguf_read_real(const struct gguf *gguf, const char *key, double *out, struct err *err) {
    struct gguf_value value;
    if (!gguf_find(gguf, key, &value)) return OK;
    if (value.is_array || value.type == GGUF_STRING || value.type == GGUF_BOOL) {
        return wrong_type(gguf, key, &value, "a number", err);
    }
    double real = gguf_real(&value, 0);
    if (!isfinite(real)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is not a finite number", gguf_path(gguf), key);
    }
    *out = real;
    return OK;
}

enum status gguf_read_bool(const struct gguf *gguf, const char *key, bool *out, struct err *err) {
    struct gguf_value value;
    int64_t number = 0;
    if (!gguf_find(gguf, key, &value)) return OK;
    if (value.is_array || value.type != GGUF_BOOL || !gguf_integer(&value, 0, &number) ||
        number > 1) {
        return wrong_type(gguf, key, &value, "a boolean, 0 or 1", err);
    }
    *out = number == 1;
    return OK;
}

enum status gguf_read_string(const struct gguf *gguf, const char *key, struct gguf_string *out,
                             struct err *err) {
    struct gguf_value value;
    if (!gguf_find(gguf, key, &value)) return OK;
    if (value.is_array || value.type != GGUF_STRING) {
        return wrong_type(gguf, key, &value, "a string", err);
    }
    *out = gguf_next_string(&value.data);
    return OK;
}

enum status gguf_read_array(const struct gguf *gguf, const char *key, enum gguf_type type,
                            struct gguf_value *out, bool *found, struct err *err) {
    *found = gguf_find(gguf, key, out);
    if (!*found || (out->is_array && out->type == type)) return OK;
    return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s%s, want an array of %s", gguf_path(gguf), key,
                   out->is_array ? "an array of " : "", gguf_type_name(out->type),
                   gguf_type_name(type));
}
