// str methods that give the string changed: case, padding, stripping, replacing, joining.
// A Markup's give a Markup, and escape the text that they put in.
#include <string.h>

#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/str_ops.h"

// ---- case ----

static enum status case_method(struct jinja_run *run, const char *callee, struct jinja_value self,
                               const struct jinja_call_args *args, enum jinja_str_case mapping,
                               struct jinja_value *out) {
    enum status status = jinja_args_positional(run, callee, args, 0, 0, NULL);
    if (status) return status;
    return jinja_str_case_map(run, self.string, mapping, out);
}

static enum status method_capitalize(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    return case_method(run, "capitalize()", self, args, JINJA_STR_CAPITALIZE, out);
}

static enum status method_casefold(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_call_args *args, struct jinja_value *out) {
    return case_method(run, "casefold()", self, args, JINJA_STR_FOLD, out);
}

static enum status method_lower(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return case_method(run, "lower()", self, args, JINJA_STR_LOWER, out);
}

static enum status method_swapcase(struct jinja_run *run, struct jinja_value self,
                                   const struct jinja_call_args *args, struct jinja_value *out) {
    return case_method(run, "swapcase()", self, args, JINJA_STR_SWAP, out);
}

static enum status method_title(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return case_method(run, "title()", self, args, JINJA_STR_TITLE, out);
}

static enum status method_upper(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return case_method(run, "upper()", self, args, JINJA_STR_UPPER, out);
}

// ---- padding ----

// An argument that becomes part of a Markup is escaped first.
static enum status inserted(struct jinja_run *run, struct jinja_value self,
                            struct jinja_value *argument) {
    if (!self.string->is_markup) return OK;
    return jinja_library_escape(run, *argument, argument);
}

static enum status pad_method(struct jinja_run *run, const char *callee, struct jinja_value self,
                              const struct jinja_call_args *args, enum jinja_str_align align,
                              struct jinja_value *out) {
    struct jinja_value values[2];
    enum status status = jinja_value_string_borrow(run, " ", 1, &values[1]);
    if (!status) status = jinja_args_positional(run, callee, args, 1, 2, values);
    int64_t width;
    const struct jinja_string *fill;
    if (!status) status = jinja_args_int(run, callee, "width", values[0], &width);
    if (!status) status = jinja_args_string(run, callee, "fillchar", values[1], &fill);
    if (!status) status = inserted(run, self, &values[1]);
    if (status) return status;
    return jinja_str_pad(run, self.string, width, values[1].string, align, out);
}

static enum status method_center(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return pad_method(run, "center()", self, args, JINJA_STR_ALIGN_CENTER, out);
}

static enum status method_ljust(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return pad_method(run, "ljust()", self, args, JINJA_STR_ALIGN_LEFT, out);
}

static enum status method_rjust(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return pad_method(run, "rjust()", self, args, JINJA_STR_ALIGN_RIGHT, out);
}

static enum status method_zfill(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    static const struct jinja_string zero = {.data = "0", .len = 1, .num_chars = 1};
    struct jinja_value width_value;
    int64_t width;
    const struct jinja_string *string = self.string;
    enum status status = jinja_args_positional(run, "zfill()", args, 1, 1, &width_value);
    if (!status) status = jinja_args_int(run, "zfill()", "width", width_value, &width);
    if (status) return status;
    if (width <= (int64_t)string->num_chars) width = string->num_chars; // nothing to add
    size_t sign = string->len && (string->data[0] == '+' || string->data[0] == '-');
    struct jinja_text text = {0};
    status = jinja_text_append(run, &text, string->data, sign);
    if (!status)
        status = jinja_str_append_repeated(run, &text, &zero, width - (int64_t)string->num_chars);
    if (!status) status = jinja_str_pay_bytes(run, string->len);
    if (!status) status = jinja_text_append(run, &text, string->data + sign, string->len - sign);
    if (status) return status;
    return jinja_str_finish(run, &text, string->is_markup, out);
}

static enum status method_expandtabs(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    static const struct jinja_string space = {.data = " ", .len = 1, .num_chars = 1};
    struct jinja_value size_value = jinja_value_int(8);
    int64_t size, column = 0;
    const struct jinja_string *string = self.string;
    enum status status =
        jinja_args_bind(run, "expandtabs()", args, (const char *[]){"tabsize"}, 1, 0, &size_value);
    if (!status) status = jinja_args_int(run, "expandtabs()", "tabsize", size_value, &size);
    if (!status) status = jinja_str_pay_chars(run, string->len);
    struct jinja_text text = {0};
    for (size_t at = 0; at < string->len && !status;) {
        size_t start = at;
        uint32_t c = jinja_str_next(string, &at);
        if (c == '\t') {
            int64_t width = size > 0 ? size - column % size : 0;
            column += width;
            status = jinja_str_append_repeated(run, &text, &space, width);
            continue;
        }
        column = c == '\n' || c == '\r' ? 0 : column + 1;
        status = jinja_text_append(run, &text, string->data + start, at - start);
    }
    if (status) return status;
    return jinja_str_finish(run, &text, string->is_markup, out);
}

// ---- taking away ----

static enum status strip_method(struct jinja_run *run, const char *callee, struct jinja_value self,
                                const struct jinja_call_args *args, int sides,
                                struct jinja_value *out) {
    struct jinja_value chars_value = jinja_value_none();
    const struct jinja_string *chars = NULL;
    enum status status = jinja_args_positional(run, callee, args, 0, 1, &chars_value);
    if (!status && chars_value.type != JINJA_NONE)
        status = jinja_args_string(run, callee, "chars", chars_value, &chars);
    if (status) return status;
    return jinja_str_strip(run, self.string, chars, sides, out);
}

static enum status method_strip(struct jinja_run *run, struct jinja_value self,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    return strip_method(run, "strip()", self, args, JINJA_STR_LEFT | JINJA_STR_RIGHT, out);
}

static enum status method_lstrip(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return strip_method(run, "lstrip()", self, args, JINJA_STR_LEFT, out);
}

static enum status method_rstrip(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return strip_method(run, "rstrip()", self, args, JINJA_STR_RIGHT, out);
}

static enum status method_removeprefix(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_call_args *args,
                                       struct jinja_value *out) {
    struct jinja_value value;
    const struct jinja_string *prefix, *string = self.string;
    enum status status = jinja_args_positional(run, "removeprefix()", args, 1, 1, &value);
    if (!status) status = jinja_args_string(run, "removeprefix()", "prefix", value, &prefix);
    if (!status) status = jinja_str_pay_bytes(run, prefix->len);
    if (status) return status;
    bool has = prefix->len <= string->len && memcmp(string->data, prefix->data, prefix->len) == 0;
    return jinja_str_part(run, string, has ? prefix->len : 0, string->len, out);
}

static enum status method_removesuffix(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_call_args *args,
                                       struct jinja_value *out) {
    struct jinja_value value;
    const struct jinja_string *suffix, *string = self.string;
    enum status status = jinja_args_positional(run, "removesuffix()", args, 1, 1, &value);
    if (!status) status = jinja_args_string(run, "removesuffix()", "suffix", value, &suffix);
    if (!status) status = jinja_str_pay_bytes(run, suffix->len);
    if (status) return status;
    size_t end = string->len;
    if (suffix->len <= end &&
        memcmp(string->data + end - suffix->len, suffix->data, suffix->len) == 0)
        end -= suffix->len;
    return jinja_str_part(run, string, 0, end, out);
}

// ---- putting in ----

static enum status method_replace(struct jinja_run *run, struct jinja_value self,
                                  const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[3] = {[2] = jinja_value_int(-1)};
    const struct jinja_string *old, *new;
    int64_t count;
    enum status status = jinja_args_positional(run, "replace()", args, 2, 3, values);
    if (!status) status = jinja_args_string(run, "replace()", "old", values[0], &old);
    if (!status) status = inserted(run, self, &values[1]);
    if (!status) status = jinja_args_string(run, "replace()", "new", values[1], &new);
    if (!status) status = jinja_args_int(run, "replace()", "count", values[2], &count);
    if (status) return status;
    return jinja_str_replace(run, self.string, old, new, count, self.string->is_markup, out);
}

static enum status method_join(struct jinja_run *run, struct jinja_value self,
                               const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value iterable;
    const struct jinja_list *items;
    enum status status = jinja_args_positional(run, "join()", args, 1, 1, &iterable);
    if (!status && !jinja_value_is_iterable(iterable))
        return jinja_run_fail(run, "can only join an iterable");
    if (!status) status = jinja_value_items(run, iterable, &items);
    if (status) return status;
    for (size_t i = 0; i < items->len && !self.string->is_markup; i++) {
        if (items->items[i].type != JINJA_STRING)
            return jinja_run_fail(run, "sequence item %zu: expected str instance, %s found", i,
                                  jinja_value_type_name(items->items[i]));
    }
    return jinja_str_join(run, self.string, items, out);
}

static enum status method_format(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_call_args *args, struct jinja_value *out) {
    return jinja_format_fields(run, self.string, args, NULL, out);
}

static enum status method_format_map(struct jinja_run *run, struct jinja_value self,
                                     const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value mapping;
    enum status status = jinja_args_positional(run, "format_map()", args, 1, 1, &mapping);
    if (status) return status;
    const struct jinja_call_args none = {0};
    return jinja_format_fields(run, self.string, &none, &mapping, out);
}

const struct jinja_method_row jinja_methods_str[] = {
    {"capitalize", method_capitalize},
    {"casefold", method_casefold},
    {"center", method_center},
    {"expandtabs", method_expandtabs},
    {"format", method_format},
    {"format_map", method_format_map},
    {"join", method_join},
    {"ljust", method_ljust},
    {"lower", method_lower},
    {"lstrip", method_lstrip},
    {"removeprefix", method_removeprefix},
    {"removesuffix", method_removesuffix},
    {"replace", method_replace},
    {"rjust", method_rjust},
    {"rstrip", method_rstrip},
    {"strip", method_strip},
    {"swapcase", method_swapcase},
    {"title", method_title},
    {"upper", method_upper},
    {"zfill", method_zfill},
    {0},
};
