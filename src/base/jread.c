#include "base/jread.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

// The longest run of bytes that the parser may collect as one token: an upper bound.
static size_t longest_token(const char *text, size_t len) {
    size_t longest = 0, start = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                in_string = false;
            continue;
        }
        switch (text[i]) {
        case '"':
            in_string = true;
            break;
        case ',':
        case ':':
        case '[':
        case ']':
        case '{':
        case '}':
        case ' ':
        case '\n':
            if (i - start > longest) longest = i - start;
            start = i + 1;
            break;
        default:
            break;
        }
    }
    return len > start && len - start > longest ? len - start : longest;
}

// Whether a parse that failed did so for want of memory, which jansson also reports as a syntax
// error or not at all.
static bool parse_ran_out_of_memory(const json_t *root, const json_error_t *fault) {
    if (root) return false;
    return errno == ENOMEM || !fault->text[0] || json_error_code(fault) == json_error_out_of_memory;
}

/* jansson collects each token in a buffer that it grows on demand, and where that allocation fails
 * it drops a character and goes on (2.14, lex_save): out of memory would read as other text. So the
 * document is parsed as the second element of ["xxx...", document], where the first is as long as
 * the longest token: what comes back of it shows whether the buffer grew, and after it the buffer
 * never grows again. */
static enum status load_guarded(json_t **out, const char *text, size_t len, size_t flags,
                                const char *what, struct err *err) {
    size_t guard_len = longest_token(text, len) + 16;
    // The buffer grows at powers of two. Were the quote at the guard's end what is dropped there,
    // jansson would read on past it.
    if (((guard_len + 2) & (guard_len + 1)) == 0) guard_len++;
    char *wrapped = guard_len < SIZE_MAX / 4 ? malloc(guard_len + len + 8) : NULL;
    if (!wrapped) return err_nomem(err, what);
    size_t pos = 0;
    memcpy(wrapped, "[\"", 2);
    pos += 2;
    memset(wrapped + pos, 'x', guard_len);
    pos += guard_len;
    memcpy(wrapped + pos, "\",", 2);
    pos += 2;
    if (len) memcpy(wrapped + pos, text, len);
    pos += len;
    wrapped[pos++] = ']';
    json_error_t fault = {0};
    errno = 0;
    json_t *pair = json_loadb(wrapped, pos, flags, &fault);
    bool out_of_memory = parse_ran_out_of_memory(pair, &fault) ||
                         (pair && json_string_length(json_array_get(pair, 0)) != guard_len);
    free(wrapped);
    enum status status = OK;
    if (out_of_memory) {
        status = err_nomem(err, what);
    } else if (json_array_size(pair) == 2) {
        *out = json_incref(json_array_get(pair, 1));
    } else { // no JSON, or several values
        status = err_set(err, ERR_FORMAT, "%s is not valid JSON", what);
    }
    json_decref(pair);
    return status;
}

// What files that are no JSON most often begin with; jansson would speak of a single letter.
static enum status check_start(const char *text, size_t len, const char *what, struct err *err) {
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        return err_set(err, ERR_FORMAT, "%s starts with a byte order mark, want plain UTF-8", what);
    }
    return file_check_lfs(text, len, what, err);
}

static enum status load(json_t **out, const char *text, size_t len, size_t flags, const char *what,
                        struct err *err) {
    *out = NULL;
    enum status status = check_start(text, len, what, err);
    if (status) return status;
    status = load_guarded(out, text, len, flags, what, err);
    if (status != ERR_FORMAT) return status;
    // Again as it is, for a message whose positions and words are the document's own.
    json_error_t fault = {0};
    errno = 0;
    json_t *root = json_loadb(text, len, flags | JSON_DECODE_ANY, &fault);
    if (root) { // the guard's own level of nesting was the one too many
        json_decref(root);
        return err_set(err, ERR_FORMAT, "%s is nested too deep", what);
    }
    if (parse_ran_out_of_memory(root, &fault)) return err_nomem(err, what);
    if (json_error_code(&fault) == json_error_null_character) { // jansson names its own flag
        return err_set(err, ERR_FORMAT,
                       "%s: \\u0000 in a string is not supported (line %d, column %d)", what,
                       fault.line, fault.column);
    }
    return err_set(err, ERR_FORMAT, "%s is not valid JSON: %s at line %d, column %d", what,
                   fault.text, fault.line, fault.column);
}

enum status jread_text(json_t **out, const char *text, size_t len, const char *what,
                       struct err *err) {
    return load(out, text, len, JSON_REJECT_DUPLICATES, what, err);
}

enum status jread_text_nul(json_t **out, const char *text, size_t len, const char *what,
                           struct err *err) {
    return load(out, text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, what, err);
}

static enum status load_file(json_t **out, const char *path, size_t flags, struct err *err) {
    *out = NULL;
    struct file_map map;
    enum status status = file_map_open(&map, path, err);
    if (status) return status;
    status = load(out, map.data, map.size, flags, path, err);
    file_map_close(&map);
    return status;
}

enum status jread_file(json_t **out, const char *path, struct err *err) {
    return load_file(out, path, JSON_REJECT_DUPLICATES, err);
}

enum status jread_file_strings(json_t **out, const char *path, struct err *err) {
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    return load_file(out, path, flags, err);
}

json_t *jread_get(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const char *jread_type_name(const json_t *value) {
    if (!value) return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
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
