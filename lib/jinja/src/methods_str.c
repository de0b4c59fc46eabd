// str methods that give the string changed: case, padding, stripping, replacing, joining.
// A Markup's give a Markup, and escape the text that they put in.
#include <string.h>

#include "jinja/src/library_parts.h"
#include "jinja/src/str_ops.h"

// ---- case ----

static enum status case_method(struct run *run, const char *callee, struct value self,
                               const struct call_args *args, enum str_case mapping,
                               struct value *out) {
    enum status status = args_positional(run, callee, args, 0, 0, NULL);
    if (status) return status;
    return str_case_map(run, self.string, mapping, out);
}

static enum status method_capitalize(struct run *run, struct value self,
                                     const struct call_args *args, struct value *out) {
    return case_method(run, "capitalize()", self, args, STR_CAPITALIZE, out);
}

static enum status method_casefold(struct run *run, struct value self, const struct call_args *args,
                                   struct value *out) {
    return case_method(run, "casefold()", self, args, STR_FOLD, out);
}

static enum status method_lower(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return case_method(run, "lower()", self, args, STR_LOWER, out);
}

static enum status method_swapcase(struct run *run, struct value self, const struct call_args *args,
                                   struct value *out) {
    return case_method(run, "swapcase()", self, args, STR_SWAP, out);
}

static enum status method_title(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return case_method(run, "title()", self, args, STR_TITLE, out);
}

static enum status method_upper(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return case_method(run, "upper()", self, args, STR_UPPER, out);
}

// ---- padding ----

// An argument that becomes part of a Markup is escaped first.
static enum status inserted(struct run *run, struct value self, struct value *argument) {
    if (!self.string->is_markup) return OK;
    return library_escape(run, *argument, argument);
}

static enum status pad_method(struct run *run, const char *callee, struct value self,
                              const struct call_args *args, enum str_align align,
                              struct value *out) {
    struct value values[2];
    enum status status = value_string_borrow(run, " ", 1, &values[1]);
    if (!status) status = args_positional(run, callee, args, 1, 2, values);
    int64_t width;
    const struct string *fill;
    if (!status) status = args_int(run, callee, "width", values[0], &width);
    if (!status) status = args_string(run, callee, "fillchar", values[1], &fill);
    if (!status) status = inserted(run, self, &values[1]);
    if (status) return status;
    return str_pad(run, self.string, width, values[1].string, align, out);
}

static enum status method_center(struct run *run, struct value self, const struct call_args *args,
                                 struct value *out) {
    return pad_method(run, "center()", self, args, STR_ALIGN_CENTER, out);
}

static enum status method_ljust(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return pad_method(run, "ljust()", self, args, STR_ALIGN_LEFT, out);
}

static enum status method_rjust(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return pad_method(run, "rjust()", self, args, STR_ALIGN_RIGHT, out);
}

static enum status method_zfill(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    static const struct string zero = {.data = "0", .len = 1, .num_chars = 1};
    struct value width_value;
    int64_t width;
    const struct string *string = self.string;
    enum status status = args_positional(run, "zfill()", args, 1, 1, &width_value);
    if (!status) status = args_int(run, "zfill()", "width", width_value, &width);
    if (status) return status;
    if (width <= (int64_t)string->num_chars) width = string->num_chars; // nothing to add
    size_t sign = string->len && (string->data[0] == '+' || string->data[0] == '-');
    struct text text = {0};
    status = text_append(run, &text, string->data, sign);
    if (!status)
        status = str_append_repeated(run, &text, &zero, width - (int64_t)string->num_chars);
    if (!status) status = str_pay_bytes(run, string->len);
    if (!status) status = text_append(run, &text, string->data + sign, string->len - sign);
    if (status) return status;
    return str_finish(run, &text, string->is_markup, out);
}

static enum status method_expandtabs(struct run *run, struct value self,
                                     const struct call_args *args, struct value *out) {
    static const struct string space = {.data = " ", .len = 1, .num_chars = 1};
    struct value size_value = value_int(8);
    int64_t size, column = 0;
    const struct string *string = self.string;
    enum status status =
        args_bind(run, "expandtabs()", args, (const char *[]){"tabsize"}, 1, 0, &size_value);
    if (!status) status = args_int(run, "expandtabs()", "tabsize", size_value, &size);
    if (!status) status = str_pay_chars(run, string->len);
    struct text text = {0};
    for (size_t at = 0; at < string->len && !status;) {
        size_t start = at;
        uint32_t c = str_next(string, &at);
        if (c == '\t') {
            int64_t width = size > 0 ? size - column % size : 0;
            column += width;
            status = str_append_repeated(run, &text, &space, width);
            continue;
        }
        column = c == '\n' || c == '\r' ? 0 : column + 1;
        status = text_append(run, &text, string->data + start, at - start);
    }
    if (status) return status;
    return str_finish(run, &text, string->is_markup, out);
}

// ---- taking away ----

static enum status strip_method(struct run *run, const char *callee, struct value self,
                                const struct call_args *args, int sides, struct value *out) {
    struct value chars_value = value_none();
    const struct string *chars = NULL;
    enum status status = args_positional(run, callee, args, 0, 1, &chars_value);
    if (!status && chars_value.type != VALUE_NONE)
        status = args_string(run, callee, "chars", chars_value, &chars);
    if (status) return status;
    return str_strip(run, self.string, chars, sides, out);
}

static enum status method_strip(struct run *run, struct value self, const struct call_args *args,
                                struct value *out) {
    return strip_method(run, "strip()", self, args, STR_LEFT | STR_RIGHT, out);
}

static enum status method_lstrip(struct run *run, struct value self, const struct call_args *args,
                                 struct value *out) {
    return strip_method(run, "lstrip()", self, args, STR_LEFT, out);
}

static enum status method_rstrip(struct run *run, struct value self, const struct call_args *args,
                                 struct value *out) {
    return strip_method(run, "rstrip()", self, args, STR_RIGHT, out);
}

static enum status method_removeprefix(struct run *run, struct value self,
                                       const struct call_args *args, struct value *out) {
    struct value value;
    const struct string *prefix, *string = self.string;
    enum status status = args_positional(run, "removeprefix()", args, 1, 1, &value);
    if (!status) status = args_string(run, "removeprefix()", "prefix", value, &prefix);
    if (!status) status = str_pay_bytes(run, prefix->len);
    if (status) return status;
    bool has = prefix->len <= string->len && memcmp(string->data, prefix->data, prefix->len) == 0;
    return str_part(run, string, has ? prefix->len : 0, string->len, out);
}

static enum status method_removesuffix(struct run *run, struct value self,
                                       const struct call_args *args, struct value *out) {
    struct value value;
    const struct string *suffix, *string = self.string;
    enum status status = args_positional(run, "removesuffix()", args, 1, 1, &value);
    if (!status) status = args_string(run, "removesuffix()", "suffix", value, &suffix);
    if (!status) status = str_pay_bytes(run, suffix->len);
    if (status) return status;
    size_t end = string->len;
    if (suffix->len <= end &&
        memcmp(string->data + end - suffix->len, suffix->data, suffix->len) == 0)
        end -= suffix->len;
    return str_part(run, string, 0, end, out);
}

// ---- putting in ----

static enum status method_replace(struct run *run, struct value self, const struct call_args *args,
                                  struct value *out) {
    struct value values[3] = {[2] = value_int(-1)};
    const struct string *old, *new;
    int64_t count;
    enum status status = args_positional(run, "replace()", args, 2, 3, values);
    if (!status) status = args_string(run, "replace()", "old", values[0], &old);
    if (!status) status = inserted(run, self, &values[1]);
    if (!status) status = args_string(run, "replace()", "new", values[1], &new);
    if (!status) status = args_int(run, "replace()", "count", values[2], &count);
    if (status) return status;
    return str_replace(run, self.string, old, new, count, self.string->is_markup, out);
}

static enum status method_join(struct run *run, struct value self, const struct call_args *args,
                               struct value *out) {
    struct value iterable;
    const struct list *items;
    enum status status = args_positional(run, "join()", args, 1, 1, &iterable);
    if (!status && !value_is_iterable(iterable)) return run_fail(run, "can only join an iterable");
    if (!status) status = value_items(run, iterable, &items);
    if (status) return status;
    for (size_t i = 0; i < items->len && !self.string->is_markup; i++) {
        if (items->items[i].type != VALUE_STRING)
            return run_fail(run, "sequence item %zu: expected str instance, %s found", i,
                            value_type_name(items->items[i]));
    }
    return str_join(run, self.string, items, out);
}

const struct method_row methods_str[] = {
    {"capitalize", method_capitalize},
    {"casefold", method_casefold},
    {"center", method_center},
    {"expandtabs", method_expandtabs},
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
