#include "base/jread.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/file.h"

enum status jread_text(json_t **out, const char *text, size_t len, const char *what,
                       struct err *err) {
    *out = NULL;
    json_error_t fault = {0};
    errno = 0;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &fault);
    // Where its own allocations fail, jansson says nothing at all, calls it a syntax error, or drops a
    // character of a long string and goes on. errno is what tells.
    bool out_of_memory = errno == ENOMEM || (!root && !fault.text[0]);
    if (root && !out_of_memory) {
        *out = root;
        return OK;
    }
    json_decref(root);
    if (out_of_memory) return err_nomem(err, what);
    return err_set(err, ERR_FORMAT, "%s is not valid JSON: %s at line %d, column %d", what,
                   fault.text, fault.line, fault.column);
}

enum status jread_file(json_t **out, const char *path, struct err *err) {
    *out = NULL;
    struct file_map map;
    enum status status = file_map_open(&map, path, err);
    if (status) return status;
    status = jread_text(out, map.data, map.size, path, err);
    file_map_close(&map);
    return status;
}

json_t *jread_get(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const char *jread_type_name(const json_t *value) {
    if (!value) return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a real number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "unknown";
}

static enum status wrong_type(const json_t *value, const char *key, const char *want,
                              const char *what, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want %s", what, key, jread_type_name(value),
                   want);
}

enum status jread_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                      const char *what, struct err *err) {
    const json_t *value = jread_get(object, key);
    if (!value) return OK;
    if (!json_is_integer(value)) return wrong_type(value, key, "an integer", what, err);
    int64_t number = json_integer_value(value);
    if (number < min || number > max) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %lld, want %lld to %lld", what, key,
                       (long long)number, (long long)min, (long long)max);
    }
    *out = number;
    return OK;
}

enum status jread_number(const json_t *object, const char *key, double *out, const char *what,
                         struct err *err) {
    const json_t *value = jread_get(object, key);
    if (!value) return OK;
    if (!json_is_number(value)) return wrong_type(value, key, "a number", what, err);
    double number = json_number_value(value);
    if (!isfinite(number)) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is not a finite number", what, key);
    }
    *out = number;
    return OK;
}

enum status jread_bool(const json_t *object, const char *key, bool *out, const char *what,
                       struct err *err) {
    const json_t *value = jread_get(object, key);
    if (!value) return OK;
    if (!json_is_boolean(value)) return wrong_type(value, key, "true or false", what, err);
    *out = json_is_true(value);
    return OK;
}

enum status jread_string(const json_t *object, const char *key, const char **out, const char *what,
                         struct err *err) {
    const json_t *value = jread_get(object, key);
    if (!value) return OK;
    if (!json_is_string(value)) return wrong_type(value, key, "a string", what, err);
    *out = json_string_value(value);
    return OK;
}
