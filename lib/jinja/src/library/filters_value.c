// Filters on any value: default, attr, tojson.
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/str_ops.h"

static enum status filter_default(struct jinja_run *run, struct jinja_value value,
                                  const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {[1] = jinja_value_bool(false)};
    enum status status = jinja_value_string_borrow(run, "", 0, &values[0]);
    if (!status)
        status = jinja_args_bind(run, "default", args, (const char *[]){"default_value", "boolean"},
                                 2, 0, values);
    if (status) return status;
    bool is_missing = value.type == JINJA_UNDEFINED ||
                      (jinja_value_is_true(values[1]) && !jinja_value_is_true(value));
    *out = is_missing ? values[0] : value;
    return OK;
}

// Only attributes, unlike `.`, which goes on to items.
static enum status filter_attr(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value name_value, item;
    enum status status =
        jinja_args_bind(run, "attr", args, (const char *[]){"name"}, 1, 1, &name_value);
    const struct jinja_string *name;
    if (!status) status = jinja_args_string(run, "attr", "name", name_value, &name);
    if (!status) status = jinja_run_attribute(run, value, name, out);
    if (status || value.type != JINJA_DICT || out->type == JINJA_UNDEFINED) return status;
    bool is_method = false;
    status = jinja_library_method(run, value, name, &is_method, &item);
    if (status || is_method) return status;
    return jinja_value_undefined(run, out, "'dict object' has no attribute '%.*s'",
                                 jinja_name_shown_len(name), name->data);
}

// ---- tojson ----

// json.dumps's indent: a number of spaces or the text of one level.
static enum status json_indent(struct jinja_run *run, struct jinja_value indent,
                               const struct jinja_string **out) {
    *out = NULL;
    if (indent.type == JINJA_NONE) return OK;
    if (indent.type == JINJA_STRING) {
        *out = indent.string;
        return OK;
    }
    static const struct jinja_string space = {.data = " ", .len = 1, .num_chars = 1};
    int64_t width;
    struct jinja_text text = {0};
    struct jinja_value value;
    enum status status = jinja_args_int(run, "tojson", "indent", indent, &width);
    if (!status) status = jinja_str_append_repeated(run, &text, &space, width);
    if (!status) status = jinja_text_finish(run, &text, &value);
    if (!status) *out = value.string;
    return status;
}

static enum status filter_tojson(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    static const struct jinja_string comma = {.data = ",", .len = 1, .num_chars = 1};
    static const struct jinja_string comma_space = {.data = ", ", .len = 2, .num_chars = 2};
    static const struct jinja_string colon_space = {.data = ": ", .len = 2, .num_chars = 2};
    struct jinja_value values[4] = {jinja_value_bool(false), jinja_value_none(), jinja_value_none(),
                                    jinja_value_bool(false)};
    enum status status = jinja_args_bind(
        run, "tojson", args, (const char *[]){"ensure_ascii", "indent", "separators", "sort_keys"},
        4, 0, values);
    struct jinja_json_print_options options = {
        .ensure_ascii = jinja_value_is_true(values[0]),
        .sort_keys = jinja_value_is_true(values[3]),
        .item_separator = values[1].type == JINJA_NONE ? &comma_space : &comma,
        .key_separator = &colon_space,
    };
    if (!status) status = json_indent(run, values[1], &options.indent);
    if (!status && values[2].type != JINJA_NONE) {
        const struct jinja_list *pair;
        status = jinja_value_items(run, values[2], &pair);
        if (!status && pair->len != 2)
            return jinja_run_fail(run, "tojson wants two separators, not %zu", pair->len);
        if (!status)
            status = jinja_args_string(run, "tojson", "a separator", pair->items[0],
                                       &options.item_separator);
        if (!status)
            status = jinja_args_string(run, "tojson", "a separator", pair->items[1],
                                       &options.key_separator);
    }
    struct jinja_text text = {0};
    if (!status) status = jinja_value_to_json(run, value, &options, &text);
    if (status) return status;
    return jinja_text_finish(run, &text, out);
}

const struct jinja_filter jinja_filters_value[] = {
    {"attr", filter_attr},
    {"d", filter_default},
    {"default", filter_default},
    {"tojson", filter_tojson},
    {0},
};
