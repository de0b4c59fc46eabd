// str.format: replacement fields, {name.attribute[item]!conversion:spec}. Lookups go through the
// sandbox, as the format method of jinja2.sandbox does; the rules are string.Formatter's.
#include <string.h>

#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

// A format string inside a format specification is the last that may have fields.
enum { NESTED_MAX = 2 };

struct fields {
    const struct jinja_call_args *args;
    const struct jinja_value *mapping; // format_map's; NULL: the keywords of args
    int64_t num_automatic; // {} so far
    bool is_manual; // {0} was seen
    bool escapes; // the format is a Markup
};

// One field as it stands in the format string.
struct field {
    struct jinja_string name, spec;
    uint32_t conversion; // 0: none
};

static enum status value_of_key(struct jinja_run *run, const struct fields *fields,
                                const struct jinja_string *key, struct jinja_value *out) {
    bool found = false;
    if (fields->mapping) {
        if (fields->mapping->type == JINJA_UNDEFINED)
            return jinja_run_fail_undefined(run, *fields->mapping);
        if (fields->mapping->type != JINJA_DICT)
            return jinja_run_fail(run, "format_map() wants a dict, not %s",
                                  jinja_value_type_name(*fields->mapping));
        enum status status =
            jinja_dict_get(run, fields->mapping->dict, jinja_value_of_string(key), &found, out);
        if (status) return status;
    }
    for (size_t i = 0; i < fields->args->num_names && !found; i++) {
        found = jinja_string_equal(fields->args->names[i], key);
        if (found) *out = fields->args->named[i];
    }
    if (found) return OK;
    return jinja_run_fail(run, "the format's key '%.*s' is missing", (int)key->len, key->data);
}

static enum status value_at(struct jinja_run *run, const struct fields *fields, int64_t index,
                            struct jinja_value *out) {
    if (index < 0 || (uint64_t)index >= fields->args->num_values)
        return jinja_run_fail(run, "Replacement index %lld out of range for positional args tuple",
                              (long long)index);
    *out = fields->args->values[index];
    return OK;
}

static bool is_index(const struct jinja_string *text, int64_t *out) {
    bool too_large = false;
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') return false;
    }
    if (text->len == 0) return false;
    if (!jinja_number_parse_int(text, 10, out, &too_large) || too_large) *out = INT64_MAX;
    return true;
}

// ".attribute" and "[item]" after the first part of a name.
static enum status follow(struct jinja_run *run, const struct jinja_string *name, size_t at,
                          struct jinja_value *value) {
    enum status status = OK;
    while (at < name->len && !status) {
        char kind = name->data[at++];
        if (kind != '.' && kind != '[')
            return jinja_run_fail(run, "Only '.' or '[' may follow ']' in format field specifier");
        size_t start = at;
        if (kind == '[') {
            const char *close = memchr(name->data + at, ']', name->len - at);
            if (!close) return jinja_run_fail(run, "Missing ']' in format string");
            at = (size_t)(close - name->data);
        } else {
            while (at < name->len && name->data[at] != '.' && name->data[at] != '[') at++;
        }
        if (at == start) return jinja_run_fail(run, "Empty attribute in format string");
        struct jinja_value key;
        status = jinja_str_borrow(run, name->data + start, at - start, false, &key);
        if (status) return status;
        int64_t index;
        if (kind == '.') {
            status = jinja_run_attribute(run, *value, key.string, value);
        } else {
            at++;
            if (is_index(key.string, &index)) key = jinja_value_int(index);
            status = jinja_run_item(run, *value, key, value);
        }
    }
    return status;
}

static enum status field_value(struct jinja_run *run, struct fields *fields,
                               const struct jinja_string *name, struct jinja_value *out) {
    size_t end = 0;
    while (end < name->len && name->data[end] != '.' && name->data[end] != '[') end++;
    int64_t index;
    struct jinja_value first;
    enum status status = jinja_str_borrow(run, name->data, end, false, &first);
    if (status) return status;
    if (name->len == 0) {
        if (fields->is_manual)
            return jinja_run_fail(run, "cannot switch from manual field specification to automatic "
                                       "field numbering");
        status = value_at(run, fields, fields->num_automatic++, out);
    } else if (is_index(first.string, &index)) {
        if (end == name->len) {
            if (fields->num_automatic)
                return jinja_run_fail(run,
                                      "cannot switch from manual field specification to automatic "
                                      "field numbering");
            fields->is_manual = true;
        }
        status = value_at(run, fields, index, out);
    } else {
        status = value_of_key(run, fields, first.string, out);
    }
    if (status) return status;
    return follow(run, name, end, out);
}

enum status jinja_format_ascii(struct jinja_run *run, struct jinja_value value,
                               struct jinja_text *text) {
    struct jinja_text shown = {0};
    enum status status = jinja_value_repr(run, value, &shown);
    if (!status) status = jinja_str_pay_chars(run, shown.len);
    if (status) return status;
    struct jinja_string string = jinja_string_of(shown.data, shown.len);
    for (size_t at = 0; at < string.len && !status;) {
        static const char hex[] = "0123456789abcdef";
        uint32_t c = jinja_str_next(&string, &at);
        if (c < 0x80) {
            status = jinja_str_append_char(run, text, c);
            continue;
        }
        int num_digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
        char escape[10] = {'\\', num_digits == 2 ? 'x' : num_digits == 4 ? 'u' : 'U'};
        for (int i = 0; i < num_digits; i++)
            escape[2 + i] = hex[c >> 4 * (num_digits - 1 - i) & 15];
        status = jinja_text_append(run, text, escape, 2 + (size_t)num_digits);
    }
    return status;
}

static enum status convert(struct jinja_run *run, uint32_t conversion, struct jinja_value *value) {
    if (conversion == 0) return OK;
    if (conversion == 's') {
        const struct jinja_string *string;
        enum status status = jinja_value_to_string(run, *value, &string);
        if (!status) *value = jinja_value_of_string(string);
        return status;
    }
    if (conversion != 'r' && conversion != 'a') {
        char bytes[4];
        size_t len = utf8_write(conversion, bytes);
        return jinja_run_fail(run, "Unknown conversion specifier '%.*s'", (int)len, bytes);
    }
    struct jinja_text text = {0};
    enum status status = conversion == 'r' ? jinja_value_repr(run, *value, &text)
                                           : jinja_format_ascii(run, *value, &text);
    if (status) return status;
    return jinja_text_finish(run, &text, value);
}

// The field after its '{', up to and with its '}'.
static enum status read_field(struct jinja_run *run, const struct jinja_string *format, size_t *at,
                              struct field *out) {
    size_t start = *at;
    char c = 0;
    while (*at < format->len) {
        c = format->data[(*at)++];
        if (c == '{') return jinja_run_fail(run, "unexpected '{' in field name");
        if (c == '[') {
            while (*at < format->len && format->data[*at] != ']') ++*at;
        } else if (c == '}' || c == ':' || c == '!') {
            break;
        }
    }
    if (c != '}' && c != ':' && c != '!')
        return jinja_run_fail(run, "expected '}' before end of string");
    *out = (struct field){.name = jinja_string_of(format->data + start, *at - 1 - start),
                          .spec = jinja_string_of("", 0)};
    if (c == '}') return OK;
    if (c == '!') {
        if (*at >= format->len)
            return jinja_run_fail(run, "end of string while looking for conversion specifier");
        out->conversion = jinja_str_next(format, at);
        if (*at < format->len) {
            c = format->data[(*at)++];
            if (c == '}') return OK;
            if (c != ':') return jinja_run_fail(run, "expected ':' after conversion specifier");
        }
    }
    start = *at;
    for (int64_t depth = 1; *at < format->len;) {
        c = format->data[(*at)++];
        depth += c == '{';
        depth -= c == '}';
        if (depth > 0) continue;
        out->spec = jinja_string_of(format->data + start, *at - 1 - start);
        return OK;
    }
    return jinja_run_fail(run, "unmatched '{' in format spec");
}

static enum status append_formatted(struct jinja_run *run, const struct fields *fields,
                                    struct jinja_value value, const struct jinja_string *spec,
                                    struct jinja_text *text) {
    if (!fields->escapes) return jinja_format_value(run, value, spec, text);
    if (value.type == JINJA_STRING && value.string->is_markup) {
        if (spec->len) return jinja_run_fail(run, "Unsupported format specification for Markup.");
        return jinja_text_append_string(run, text, value.string);
    }
    struct jinja_text formatted = {0};
    struct jinja_value shown;
    enum status status = jinja_format_value(run, value, spec, &formatted);
    if (!status) status = jinja_text_finish(run, &formatted, &shown);
    if (status) return status;
    return jinja_str_escape(run, text, shown.string);
}

static enum status append_format(struct jinja_run *run, struct fields *fields,
                                 const struct jinja_string *format, int depth,
                                 struct jinja_text *text);

static enum status append_field(struct jinja_run *run, struct fields *fields,
                                const struct field *field, int depth, struct jinja_text *text) {
    struct jinja_value value = {0}, spec = {0};
    struct jinja_text expanded = {0};
    enum status status = field_value(run, fields, &field->name, &value);
    if (!status) status = convert(run, field->conversion, &value);
    if (!status) status = append_format(run, fields, &field->spec, depth + 1, &expanded);
    if (!status) status = jinja_text_finish(run, &expanded, &spec);
    if (status) return status;
    return append_formatted(run, fields, value, spec.string, text);
}

static enum status append_format(struct jinja_run *run, struct fields *fields,
                                 const struct jinja_string *format, int depth,
                                 struct jinja_text *text) {
    if (depth > NESTED_MAX) return jinja_run_fail(run, "Max string recursion exceeded");
    enum status status = jinja_str_pay_chars(run, format->len);
    for (size_t at = 0; at < format->len && !status;) {
        size_t start = at;
        while (at < format->len && format->data[at] != '{' && format->data[at] != '}') at++;
        status = jinja_text_append(run, text, format->data + start, at - start);
        if (status || at == format->len) break;
        char brace = format->data[at++];
        if (at < format->len && format->data[at] == brace) {
            status = jinja_text_append(run, text, &brace, 1);
            at++;
            continue;
        }
        if (brace == '}' || at == format->len)
            return jinja_run_fail(run, "Single '%c' encountered in format string", brace);
        struct field field = {0};
        status = jinja_run_pay(run, 1);
        if (!status) status = read_field(run, format, &at, &field);
        if (!status) status = append_field(run, fields, &field, depth, text);
    }
    return status;
}

enum status jinja_format_fields(struct jinja_run *run, const struct jinja_string *format,
                                const struct jinja_call_args *args,
                                const struct jinja_value *mapping, struct jinja_value *out) {
    struct fields fields = {.args = args, .mapping = mapping, .escapes = format->is_markup};
    struct jinja_text text = {0};
    enum status status = append_format(run, &fields, format, 0, &text);
    if (status) return status;
    return jinja_str_finish(run, &text, format->is_markup, out);
}
