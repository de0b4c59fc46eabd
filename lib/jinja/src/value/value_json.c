/* Values from JSON and to JSON, the latter as Python's json.dumps writes it.
 *
 * Strings and keys stay in the document; a JSON object's order is the dict's. Keys that differ as
 * values may come out alike (1 and "1"): both are written, as Python does. */
#include <math.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/utf8.h"
#include "jinja/src/run/run.h"
#include "jinja/src/value/value.h"

// ---- from JSON ----

static enum status list_from_json(struct jinja_run *run, const json_t *json,
                                  struct jinja_value *out) {
    struct jinja_list *list;
    enum status status = jinja_list_create(run, json_array_size(json), &list);
    if (status) return status;
    for (size_t i = 0; i < list->capacity && !status; i++) {
        struct jinja_value item;
        status = jinja_value_from_json(run, json_array_get(json, i), &item);
        if (!status) list->items[list->len++] = item;
    }
    *out = jinja_value_of_list(list);
    return status;
}

static enum status dict_from_json(struct jinja_run *run, json_t *json, struct jinja_value *out) {
    struct jinja_dict *dict;
    enum status status = jinja_dict_create(run, json_object_size(json), &dict);
    if (status) return status;
    for (void *at = json_object_iter(json); at && !status; at = json_object_iter_next(json, at)) {
        struct jinja_value key, item;
        status = jinja_value_string_borrow(run, json_object_iter_key(at),
                                           json_object_iter_key_len(at), &key);
        if (!status) status = jinja_value_from_json(run, json_object_iter_value(at), &item);
        if (!status) status = jinja_dict_set(run, dict, key, item);
    }
    *out = jinja_value_of_dict(dict);
    return status;
}

// jansson walks over an object without changing it, but wants it writable.
static json_t *writable(const json_t *json) {
    union {
        const json_t *from;
        json_t *to;
    } pointer = {json};
    return pointer.to;
}

enum status jinja_value_from_json(struct jinja_run *run, const json_t *json,
                                  struct jinja_value *out) {
    enum status status = jinja_run_pay(run, 1);
    if (status) return status;
    switch (json_typeof(json)) {
    case JSON_NULL:
        *out = jinja_value_none();
        return OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = jinja_value_bool(json_is_true(json));
        return OK;
    case JSON_INTEGER:
        *out = jinja_value_int(json_integer_value(json));
        return OK;
    case JSON_REAL:
        *out = jinja_value_float(json_real_value(json));
        return OK;
    case JSON_STRING:
        return jinja_value_string_borrow(run, json_string_value(json), json_string_length(json),
                                         out);
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    const char *big = jread_big_integer(json);
    if (big) {
        status = jinja_value_string_borrow(run, big, strlen(big), out);
        if (!status) out->type = JINJA_BIG_INT;
        return status;
    }
    status = jinja_run_enter(run);
    if (status) return status;
    status = json_is_array(json) ? list_from_json(run, json, out)
                                 : dict_from_json(run, writable(json), out);
    jinja_run_leave(run);
    return status;
}

// ---- to JSON ----

struct json_printer {
    struct jinja_run *run;
    const struct jinja_json_print_options *options;
    struct jinja_text *text;
    size_t level; // of indentation
};

static enum status put(struct json_printer *printer, const char *str) {
    return jinja_text_append_str(printer->run, printer->text, str);
}

static enum status put_newline(struct json_printer *printer) {
    if (!printer->options->indent) return OK;
    enum status status = put(printer, "\n");
    for (size_t i = 0; i < printer->level && !status; i++) {
        status = jinja_text_append_string(printer->run, printer->text, printer->options->indent);
    }
    return status;
}

static bool is_plain(uint32_t c, bool ensure_ascii) {
    return c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !ensure_ascii);
}

static enum status put_escape(struct json_printer *printer, uint32_t c) {
    static const char letters[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                   ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    struct jinja_run *run = printer->run;
    if (c < sizeof letters && letters[c]) {
        const char escape[2] = {'\\', letters[c]};
        return jinja_text_append(run, printer->text, escape, sizeof escape);
    }
    if (c < 0x10000) return jinja_text_append_escape(run, printer->text, 'u', 4, c);
    c -= 0x10000; // UTF-16's surrogate pair
    enum status status = jinja_text_append_escape(run, printer->text, 'u', 4, 0xd800 + (c >> 10));
    return status ? status
                  : jinja_text_append_escape(run, printer->text, 'u', 4, 0xdc00 + (c & 0x3ff));
}

static enum status put_string(struct json_printer *printer, const struct jinja_string *string) {
    struct jinja_run *run = printer->run;
    struct jinja_text *text = printer->text;
    enum status status = jinja_run_pay(run, string->len / 16);
    if (!status) status = put(printer, "\"");
    size_t plain = 0; // from here on nothing is written yet
    size_t num_escapes = 0;
    for (size_t i = 0, size; i < string->len && !status; i += size) {
        uint32_t c = utf8_decode((const unsigned char *)string->data + i, &size);
        if (is_plain(c, printer->options->ensure_ascii)) continue;
        status = jinja_text_append(run, text, string->data + plain, i - plain);
        if (!status) status = put_escape(printer, c);
        plain = i + size;
        num_escapes++;
    }
    if (!status) status = jinja_text_append(run, text, string->data + plain, string->len - plain);
    if (!status) status = jinja_run_pay(run, num_escapes / 4);
    return status ? status : put(printer, "\"");
}

static enum status put_float(struct json_printer *printer, double number) {
    if (isnan(number)) return put(printer, "NaN");
    if (isinf(number)) return put(printer, number < 0 ? "-Infinity" : "Infinity");
    return jinja_value_repr(printer->run, jinja_value_float(number), printer->text);
}

// None, booleans and numbers; *is_written false: something else.
static enum status put_scalar(struct json_printer *printer, struct jinja_value value,
                              bool *is_written) {
    *is_written = true;
    switch (value.type) {
    case JINJA_NONE:
        return put(printer, "null");
    case JINJA_BOOL:
        return put(printer, value.boolean ? "true" : "false");
    case JINJA_INT:
    case JINJA_BIG_INT:
        return jinja_value_repr(printer->run, value, printer->text);
    case JINJA_FLOAT:
        return put_float(printer, value.number);
    default:
        *is_written = false;
        return OK;
    }
}

static enum status put_key(struct json_printer *printer, struct jinja_value key) {
    if (key.type == JINJA_STRING) return put_string(printer, key.string);
    bool is_written = false;
    enum status status = put(printer, "\"");
    if (!status) status = put_scalar(printer, key, &is_written);
    if (status) return status;
    if (!is_written) {
        return jinja_run_fail(printer->run, "keys must be str, int, float, bool or None, not %s",
                              jinja_value_type_name(key));
    }
    return put(printer, "\"");
}

// Merges the sorted entries from[0, half) and from[half, len) into `to`.
static enum status merge_entries(struct jinja_run *run, const struct jinja_dict_entry **from,
                                 size_t half, size_t len, const struct jinja_dict_entry **to) {
    size_t left = 0, right = half;
    for (size_t i = 0; i < len; i++) {
        int order = left == half ? 1 : -1;
        bool unordered;
        if (left < half && right < len) {
            // Python asks whether the later is less.
            enum status status =
                jinja_value_compare(run, from[right]->key, from[left]->key, &order, &unordered);
            if (status) return status;
            order = !unordered && order < 0 ? 1 : -1;
        }
        to[i] = order > 0 ? from[right++] : from[left++];
    }
    return OK;
}

// The entries by their keys, in memory of the run.
static enum status sort_entries(struct jinja_run *run, const struct jinja_dict *dict,
                                const struct jinja_dict_entry ***out) {
    size_t len = dict->len;
    const struct jinja_dict_entry **from = jinja_run_alloc_array(run, len, sizeof *from);
    const struct jinja_dict_entry **to = from ? jinja_run_alloc_array(run, len, sizeof *to) : NULL;
    if (!to) return jinja_run_status(run);
    for (size_t i = 0; i < len; i++) from[i] = &dict->entries[i];
    for (size_t half = 1; half < len; half *= 2) {
        for (size_t start = 0; start < len; start += 2 * half) {
            size_t rest = len - start;
            enum status status = merge_entries(run, from + start, half < rest ? half : rest,
                                               2 * half < rest ? 2 * half : rest, to + start);
            if (status) return status;
        }
        const struct jinja_dict_entry **sorted = to;
        to = from;
        from = sorted;
    }
    *out = from;
    return OK;
}

static enum status put_value(struct json_printer *printer, struct jinja_value value);

// Before item `i`: the separator, and a line of its own where there is an indent.
static enum status put_separator(struct json_printer *printer, size_t i) {
    enum status status = OK;
    if (i > 0) {
        status =
            jinja_text_append_string(printer->run, printer->text, printer->options->item_separator);
    }
    return status ? status : put_newline(printer);
}

static enum status put_items(struct json_printer *printer, const struct jinja_list *list) {
    enum status status = OK;
    for (size_t i = 0; i < list->len && !status; i++) {
        status = put_separator(printer, i);
        if (!status) status = put_value(printer, list->items[i]);
    }
    return status;
}

static enum status put_entries(struct json_printer *printer, const struct jinja_dict *dict) {
    const struct jinja_dict_entry **sorted = NULL;
    enum status status = OK;
    if (printer->options->sort_keys) status = sort_entries(printer->run, dict, &sorted);
    for (size_t i = 0; i < dict->len && !status; i++) {
        const struct jinja_dict_entry *entry = sorted ? sorted[i] : &dict->entries[i];
        status = put_separator(printer, i);
        if (!status) status = put_key(printer, entry->key);
        if (!status) {
            status = jinja_text_append_string(printer->run, printer->text,
                                              printer->options->key_separator);
        }
        if (!status) status = put_value(printer, entry->value);
    }
    return status;
}

static enum status put_container(struct json_printer *printer, struct jinja_value value) {
    bool is_dict = value.type == JINJA_DICT;
    size_t len = is_dict ? value.dict->len : value.list->len;
    if (len == 0) return put(printer, is_dict ? "{}" : "[]");
    enum status status = jinja_run_enter(printer->run);
    if (status) return status;
    status = put(printer, is_dict ? "{" : "[");
    printer->level++;
    if (!status) {
        status = is_dict ? put_entries(printer, value.dict) : put_items(printer, value.list);
    }
    printer->level--;
    if (!status) status = put_newline(printer);
    if (!status) status = put(printer, is_dict ? "}" : "]");
    jinja_run_leave(printer->run);
    return status;
}

static enum status put_value(struct json_printer *printer, struct jinja_value value) {
    enum status status = jinja_run_pay(printer->run, 1);
    if (status) return status;
    bool is_written;
    switch (value.type) {
    case JINJA_STRING:
        return put_string(printer, value.string);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        return put_container(printer, value);
    default:
        status = put_scalar(printer, value, &is_written);
        if (status || is_written) return status;
        return jinja_run_fail(printer->run, "Object of type %s is not JSON serializable",
                              jinja_value_type_name(value));
    }
}

enum status jinja_value_to_json(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_json_print_options *options,
                                struct jinja_text *text) {
    struct json_printer printer = {.run = run, .options = options, .text = text};
    return put_value(&printer, value);
}
