// Filters on any value: default, attr, tojson.
#include "jinja/src/library_parts.h"
#include "jinja/src/str_ops.h"

static enum status filter_default(struct run *run, struct value value, const struct call_args *args,
                                  struct value *out) {
    struct value values[2] = {[1] = value_bool(false)};
    enum status status = value_string_borrow(run, "", 0, &values[0]);
    if (!status)
        status = args_bind(run, "default", args, (const char *[]){"default_value", "boolean"}, 2, 0,
                           values);
    if (status) return status;
    bool is_missing =
        value.type == VALUE_UNDEFINED || (value_is_true(values[1]) && !value_is_true(value));
    *out = is_missing ? values[0] : value;
    return OK;
}

// Only attributes, unlike `.`, which goes on to items.
static enum status filter_attr(struct run *run, struct value value, const struct call_args *args,
                               struct value *out) {
    struct value name_value, item;
    enum status status = args_bind(run, "attr", args, (const char *[]){"name"}, 1, 1, &name_value);
    const struct string *name;
    if (!status) status = args_string(run, "attr", "name", name_value, &name);
    if (!status) status = run_attribute(run, value, name, out);
    if (status || value.type != VALUE_DICT || out->type == VALUE_UNDEFINED) return status;
    bool is_method = false;
    status = library_method(run, value, name, &is_method, &item);
    if (status || is_method) return status;
    return value_undefined(run, out, "'dict object' has no attribute '%.*s'", name_shown_len(name),
                           name->data);
}

// ---- tojson ----

// json.dumps's indent: a number of spaces or the text of one level.
static enum status json_indent(struct run *run, struct value indent, const struct string **out) {
    *out = NULL;
    if (indent.type == VALUE_NONE) return OK;
    if (indent.type == VALUE_STRING) {
        *out = indent.string;
        return OK;
    }
    static const struct string space = {.data = " ", .len = 1, .num_chars = 1};
    int64_t width;
    struct text text = {0};
    struct value value;
    enum status status = args_int(run, "tojson", "indent", indent, &width);
    if (!status) status = str_append_repeated(run, &text, &space, width);
    if (!status) status = text_finish(run, &text, &value);
    if (!status) *out = value.string;
    return status;
}

static enum status filter_tojson(struct run *run, struct value value, const struct call_args *args,
                                 struct value *out) {
    static const struct string comma = {.data = ",", .len = 1, .num_chars = 1};
    static const struct string comma_space = {.data = ", ", .len = 2, .num_chars = 2};
    static const struct string colon_space = {.data = ": ", .len = 2, .num_chars = 2};
    struct value values[4] = {value_bool(false), value_none(), value_none(), value_bool(false)};
    enum status status = args_bind(
        run, "tojson", args, (const char *[]){"ensure_ascii", "indent", "separators", "sort_keys"},
        4, 0, values);
    struct json_print_options options = {
        .ensure_ascii = value_is_true(values[0]),
        .sort_keys = value_is_true(values[3]),
        .item_separator = values[1].type == VALUE_NONE ? &comma_space : &comma,
        .key_separator = &colon_space,
    };
    if (!status) status = json_indent(run, values[1], &options.indent);
    if (!status && values[2].type != VALUE_NONE) {
        const struct list *pair;
        status = value_items(run, values[2], &pair);
        if (!status && pair->len != 2)
            return run_fail(run, "tojson wants two separators, not %zu", pair->len);
        if (!status)
            status =
                args_string(run, "tojson", "a separator", pair->items[0], &options.item_separator);
        if (!status)
            status =
                args_string(run, "tojson", "a separator", pair->items[1], &options.key_separator);
    }
    struct text text = {0};
    if (!status) status = value_to_json(run, value, &options, &text);
    if (status) return status;
    return text_finish(run, &text, out);
}

const struct filter filters_value[] = {
    {"attr", filter_attr},
    {"d", filter_default},
    {"default", filter_default},
    {"tojson", filter_tojson},
    {0},
};
