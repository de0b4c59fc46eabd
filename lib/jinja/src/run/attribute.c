// attribute="a.0.b" of filters: the way from an item to a part of it.
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

static bool is_number(const struct jinja_string *part) {
    for (size_t at = 0; at < part->len;) {
        if (!jinja_char_is_decimal(jinja_str_next(part, &at))) return false;
    }
    return part->len > 0;
}

static enum status part_of(struct jinja_run *run, const struct jinja_string *string, size_t start,
                           size_t end, struct jinja_value *out) {
    enum status status = jinja_str_part(run, string, start, end, out);
    if (status || !is_number(out->string)) return status;
    int64_t index;
    bool too_large = false;
    if (!jinja_number_parse_int(out->string, 10, &index, &too_large) || too_large)
        return jinja_run_fail(run, "'%.*s' is no index", (int)out->string->len, out->string->data);
    *out = jinja_value_int(index);
    return OK;
}

enum status jinja_attribute_path(struct jinja_run *run, struct jinja_value attribute,
                                 bool ignore_case, struct jinja_attribute_path *out) {
    *out = (struct jinja_attribute_path){.ignore_case = ignore_case,
                                         .default_value = jinja_value_none()};
    if (attribute.type == JINJA_NONE) return OK;
    size_t num_parts = 1;
    const struct jinja_string *string = attribute.type == JINJA_STRING ? attribute.string : NULL;
    for (size_t i = 0; string && i < string->len; i++) num_parts += string->data[i] == '.';
    out->parts = jinja_run_alloc_array(run, num_parts, sizeof *out->parts);
    if (!out->parts) return jinja_run_status(run);
    if (!string) {
        out->parts[0] = attribute;
        out->num_parts = 1;
        return OK;
    }
    enum status status = jinja_str_pay_chars(run, string->len);
    for (size_t start = 0; out->num_parts < num_parts && !status;) {
        size_t end = start;
        while (end < string->len && string->data[end] != '.') end++;
        status = part_of(run, string, start, end, &out->parts[out->num_parts++]);
        start = end + 1;
    }
    return status;
}

enum status jinja_attribute_get(struct jinja_run *run, const struct jinja_attribute_path *path,
                                struct jinja_value item, struct jinja_value *out) {
    enum status status = jinja_run_pay(run, 1 + path->num_parts);
    for (size_t i = 0; i < path->num_parts && !status; i++) {
        status = jinja_run_item(run, item, path->parts[i], &item);
        if (item.type == JINJA_UNDEFINED && path->default_value.type != JINJA_NONE)
            item = path->default_value;
    }
    if (!status && path->ignore_case && item.type == JINJA_STRING)
        status = jinja_str_case_map(run, item.string, JINJA_STR_LOWER, &item);
    if (!status) *out = item;
    return status;
}
