#include "base/json/jread.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread_scan.h"
#include "base/os/file.h"
#include "base/text/c_locale.h"

// Whether a parse failed because memory ran out. jansson also reports that as a syntax error, or
// not at all.
static bool parse_ran_out_of_memory(const json_t *root, const json_error_t *fault) {
    if (root) return false;
    return errno == ENOMEM || !fault->text[0] || json_error_code(fault) == json_error_out_of_memory;
}

// ---- integers beyond 64 bits ----

// jansson refuses NUL in the keys of a text, so no text has this key.
static const char big_key[] = "\0integer";
enum { BIG_KEY_LEN = sizeof big_key - 1 };

const char *jread_big_integer(const json_t *value) {
    return json_string_value(json_object_getn(value, big_key, BIG_KEY_LEN));
}

bool jread_is_object(const json_t *value) {
    return json_is_object(value) && !jread_big_integer(value);
}

static json_t *make_big(const char *digits, size_t len) {
    json_t *big = json_object();
    if (!json_object_setn_new_nocheck(big, big_key, BIG_KEY_LEN, json_stringn(digits, len))) {
        return big;
    }
    json_decref(big);
    return NULL;
}

// A walk through a tree in the order of its text.
struct big_walk {
    const char *text;
    const char *what;
    const struct jread_scan *scan;
    size_t num_placed; // of scan->bigs
    size_t num_strings; // keys, strings and big integers passed so far
};

static bool at_big(const struct big_walk *walk) {
    return walk->num_placed < walk->scan->num_bigs &&
           walk->scan->bigs[walk->num_placed].index == walk->num_strings;
}

static enum status place_bigs(struct big_walk *walk, json_t *value, struct err *err);

// *big replaces `value`, or is NULL where `value` is no big integer.
static enum status place_in_value(struct big_walk *walk, json_t *value, json_t **big,
                                  struct err *err) {
    *big = NULL;
    if (!json_is_string(value)) return place_bigs(walk, value, err);
    if (at_big(walk)) {
        const struct jread_big *found = &walk->scan->bigs[walk->num_placed++];
        *big = make_big(walk->text + found->start, found->len);
        if (!*big) return err_nomem(err, walk->what);
    }
    walk->num_strings++;
    return OK;
}

// Replaces the strings in a list or an object that stand for big integers.
static enum status place_bigs(struct big_walk *walk, json_t *value, struct err *err) {
    enum status status = OK;
    json_t *big;
    for (size_t i = 0; i < json_array_size(value) && !status; i++) {
        status = place_in_value(walk, json_array_get(value, i), &big, err);
        if (big) json_array_set_new(value, i, big);
    }
    for (void *at = json_object_iter(value); at && !status; at = json_object_iter_next(value, at)) {
        if (at_big(walk)) {
            return err_set(err, ERR_FORMAT, "%s is not valid JSON: a key is a number", walk->what);
        }
        walk->num_strings++;
        status = place_in_value(walk, json_object_iter_value(at), &big, err);
        if (big) json_object_iter_set_new(value, at, big);
    }
    return status;
}

static enum status place_all_bigs(json_t **root, const char *text, const char *what,
                                  const struct jread_scan *scan, struct err *err) {
    struct big_walk walk = {.text = text, .what = what, .scan = scan};
    json_t *big;
    enum status status = place_in_value(&walk, *root, &big, err);
    if (big || status) {
        json_decref(*root);
        *root = big;
    }
    return status;
}

// ---- parsing ----

struct source {
    const char *text; // [len]
    size_t len;
    const char *what;
    size_t flags; // jansson's
    size_t *memory_left; // for the tree; NULL: no limit, and jansson refuses big integers
};

static json_t *parse(const char *text, size_t len, size_t flags, json_error_t *fault) {
    *fault = (json_error_t){0};
    locale_t before = c_locale_enter();
    errno = 0;
    json_t *root = json_loadb(text, len, flags, fault);
    int reason = errno;
    c_locale_leave(before);
    errno = reason;
    return root;
}

json_t *jread_literal(const char *text) {
    json_error_t fault;
    return parse(text, strlen(text), JSON_DECODE_ANY, &fault);
}

// Parses the bare text once more, for jansson's message with its line and column.
static enum status not_json(const struct source *source, const char *text, struct err *err) {
    json_error_t fault;
    json_t *root = parse(text, source->len, source->flags | JSON_DECODE_ANY, &fault);
    if (parse_ran_out_of_memory(root, &fault)) return err_nomem(err, source->what);
    json_decref(root);
    if (json_error_code(&fault) == json_error_null_character) { // jansson names its own flag
        return err_set(err, ERR_FORMAT,
                       "%s: \\u0000 in a string is not supported (line %d, column %d)",
                       source->what, fault.line, fault.column);
    }
    return err_set(err, ERR_FORMAT, "%s is not valid JSON: %s at line %d, column %d", source->what,
                   fault.text, fault.line, fault.column);
}

/* jansson collects each token in a buffer that it grows on demand. Where that allocation fails it
 * drops a character and goes on (2.14, lex_save), so that out of memory would read as other text.
 * Therefore the document is parsed as the second element of ["xxx...", document]. The first string
 * is as long as the longest token. If it comes back whole, the buffer is large enough and never
 * grows again; otherwise memory ran out.
 *
 * Big integers are quoted: the quotes overwrite their first and last digits. place_all_bigs takes
 * the digits from the original text. */
static enum status load_guarded(json_t **out, const struct source *source,
                                const struct jread_scan *scan, struct err *err) {
    size_t len = source->len, guard_len = scan->longest_token + 16;
    // The buffer grows at powers of two. If it grew at the guard's closing quote, a failure would
    // drop that quote and jansson would read on past it.
    if (((guard_len + 2) & (guard_len + 1)) == 0) guard_len++;
    char *wrapped = guard_len < SIZE_MAX / 4 ? malloc(guard_len + len + 8) : NULL;
    if (!wrapped) return err_nomem(err, source->what);
    size_t pos = 0;
    memcpy(wrapped, "[\"", 2);
    pos += 2;
    memset(wrapped + pos, 'x', guard_len);
    pos += guard_len;
    memcpy(wrapped + pos, "\",", 2);
    pos += 2;
    char *document = wrapped + pos;
    if (len) memcpy(document, source->text, len);
    for (size_t i = 0; source->memory_left && i < scan->num_bigs; i++) {
        char *big = document + scan->bigs[i].start;
        big[0] = big[scan->bigs[i].len - 1] = '"';
    }
    pos += len;
    wrapped[pos++] = ']';
    json_error_t fault;
    json_t *pair = parse(wrapped, pos, source->flags, &fault);
    bool out_of_memory = parse_ran_out_of_memory(pair, &fault) ||
                         (pair && json_string_length(json_array_get(pair, 0)) != guard_len);
    enum status status = OK;
    if (out_of_memory) {
        status = err_nomem(err, source->what);
    } else if (json_array_size(pair) == 2) {
        *out = json_incref(json_array_get(pair, 1));
    } else { // no JSON, or several values
        status = not_json(source, document, err);
    }
    free(wrapped);
    json_decref(pair);
    return status;
}

// The two most frequent starts of files that are not JSON. jansson's message would only name a
// letter.
static enum status check_start(const struct source *source, struct err *err) {
    if (source->len >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0) {
        return err_set(err, ERR_FORMAT, "%s starts with a byte order mark, want plain UTF-8",
                       source->what);
    }
    return file_check_lfs(source->text, source->len, source->what, err);
}

static enum status check_bounds(const struct source *source, const struct jread_scan *scan,
                                struct err *err) {
    enum { DIGITS_MAX = 4300 }; // Python's limit for int(text)
    if (scan->depth_max > JREAD_DEPTH_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%s is nested deeper than %d levels", source->what,
                       JREAD_DEPTH_MAX);
    }
    if (!source->memory_left) return OK;
    if (scan->tree_bytes > *source->memory_left) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has too many small values: %zu bytes of JSON would take %zu bytes of "
                       "memory, want at most %zu",
                       source->what, source->len, scan->tree_bytes, *source->memory_left);
    }
    for (size_t i = 0; i < scan->num_bigs; i++) {
        if (scan->bigs[i].len <= DIGITS_MAX) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s has an integer of %zu digits, want at most %d",
                       source->what, scan->bigs[i].len, DIGITS_MAX);
    }
    return OK;
}

static enum status load(json_t **out, const struct source *source, struct err *err) {
    *out = NULL;
    enum status status = check_start(source, err);
    if (status) return status;
    struct jread_scan scan;
    status = jread_scan_run(&scan, source->text, source->len, source->what, err);
    if (!status) status = check_bounds(source, &scan, err);
    if (!status) status = load_guarded(out, source, &scan, err);
    if (!status && source->memory_left) {
        *source->memory_left -= scan.tree_bytes;
        if (scan.num_bigs) status = place_all_bigs(out, source->text, source->what, &scan, err);
    }
    jread_scan_fini(&scan);
    return status;
}

enum status jread_text(json_t **out, const char *text, size_t len, const char *what,
                       struct err *err) {
    const struct source source = {text, len, what, JSON_REJECT_DUPLICATES, NULL};
    return load(out, &source, err);
}

enum status jread_request_part(json_t **out, const char *text, size_t len, size_t *memory_left,
                               const char *what, struct err *err) {
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    const struct source source = {text, len, what, flags, memory_left};
    return load(out, &source, err);
}

enum status jread_request(json_t **out, const char *text, size_t len, const char *what,
                          struct err *err) {
    size_t memory_left = jread_request_memory(len);
    return jread_request_part(out, text, len, &memory_left, what, err);
}

enum status jread_text_strings(json_t **out, const char *text, size_t len, const char *what,
                               struct err *err) {
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    const struct source source = {text, len, what, flags, NULL};
    return load(out, &source, err);
}

enum status jread_file(json_t **out, const char *path, struct err *err) {
    *out = NULL;
    struct buf text = {0};
    enum status status = file_read(&text, path, err);
    if (!status) status = jread_text(out, text.data, text.len, path, err);
    buf_fini(&text);
    return status;
}

// ---- members ----

json_t *jread_get(const json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

const char *jread_type_name(const json_t *value) {
    if (!value) return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return jread_big_integer(value) ? "an integer beyond 64 bits" : "an object";
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
