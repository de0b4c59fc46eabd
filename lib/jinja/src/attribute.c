// attribute="a.0.b" of filters: the way from an item to a part of it.
#include "jinja/src/chars.h"
#include "jinja/src/library_parts.h"
#include "jinja/src/str_ops.h"

static bool is_number(const struct string *part) {
    for (size_t at = 0; at < part->len;) {
        if (!char_is_decimal(str_next(part, &at))) return false;
    }
    return part->len > 0;
}

static enum status part_of(struct run *run, const struct string *string, size_t start, size_t end,
                           struct value *out) {
    enum status status = str_part(run, string, start, end, out);
    if (status || !is_number(out->string)) return status;
    int64_t index;
    bool too_large = false;
    if (!number_parse_int(out->string, 10, &index, &too_large) || too_large)
        return run_fail(run, "'%.*s' is no index", (int)out->string->len, out->string->data);
    *out = value_int(index);
    return OK;
}

enum status attribute_path(struct run *run, struct value attribute, bool ignore_case,
                           struct attribute_path *out) {
    *out = (struct attribute_path){.ignore_case = ignore_case, .default_value = value_none()};
    if (attribute.type == VALUE_NONE) return OK;
    size_t num_parts = 1;
    const struct string *string = attribute.type == VALUE_STRING ? attribute.string : NULL;
    for (size_t i = 0; string && i < string->len; i++) num_parts += string->data[i] == '.';
    out->parts = run_alloc_array(run, num_parts, sizeof *out->parts);
    if (!out->parts) return run_status(run);
    if (!string) {
        out->parts[0] = attribute;
        out->num_parts = 1;
        return OK;
    }
    enum status status = str_pay_chars(run, string->len);
    for (size_t start = 0; out->num_parts < num_parts && !status;) {
        size_t end = start;
        while (end < string->len && string->data[end] != '.') end++;
        status = part_of(run, string, start, end, &out->parts[out->num_parts++]);
        start = end + 1;
    }
    return status;
}

enum status attribute_get(struct run *run, const struct attribute_path *path, struct value item,
                          struct value *out) {
    enum status status = run_pay(run, 1 + path->num_parts);
    for (size_t i = 0; i < path->num_parts && !status; i++) {
        status = run_item(run, item, path->parts[i], &item);
        if (item.type == VALUE_UNDEFINED && path->default_value.type != VALUE_NONE)
            item = path->default_value;
    }
    if (!status && path->ignore_case && item.type == VALUE_STRING)
        status = str_case_map(run, item.string, STR_LOWER, &item);
    if (!status) *out = item;
    return status;
}
