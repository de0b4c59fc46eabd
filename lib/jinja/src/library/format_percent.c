// String % values: printf-style formatting. Source: Python's documentation of it, and CPython's
// behaviour where that is silent.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "jinja/src/library/format_number.h"
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/numbers.h"
#include "jinja/src/value/str_ops.h"

// What is formatted and with which values.
struct percent {
    const struct jinja_string *format;
    size_t at; // byte after what was read
    struct jinja_value right;
    bool is_mapping; // %(name)s may be used
    size_t next; // of a tuple's values
    bool is_used; // the one value that is no tuple
    struct jinja_text text;
};

// One %...: what stands between the percent sign and the letter.
struct spec {
    bool left, plus, blank, alternate, zero;
    int64_t width, precision; // precision -1: none
    uint32_t type;
    bool has_named;
    struct jinja_value named; // %(name)
};

static enum status next_value(struct jinja_run *run, struct percent *percent,
                              struct jinja_value *out) {
    if (percent->right.type == JINJA_TUPLE) {
        if (percent->next >= percent->right.list->len)
            return jinja_run_fail(run, "not enough arguments for format string");
        *out = percent->right.list->items[percent->next++];
        return OK;
    }
    if (percent->is_used) return jinja_run_fail(run, "not enough arguments for format string");
    percent->is_used = true;
    *out = percent->right;
    return OK;
}

static bool take(struct percent *percent, char c) {
    if (percent->at >= percent->format->len || percent->format->data[percent->at] != c)
        return false;
    percent->at++;
    return true;
}

// right[name], without the ways that `.` and `[]` of a template go beyond Python's.
static enum status look_up(struct jinja_run *run, struct jinja_value right, struct jinja_value name,
                           struct jinja_value *out) {
    if (right.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, right);
    bool found = false;
    if (right.type != JINJA_DICT)
        return jinja_run_fail(run, "%s indices must be integers, not str",
                              jinja_value_type_name(right));
    enum status status = jinja_dict_get(run, right.dict, name, &found, out);
    if (!status && !found)
        return jinja_run_fail(run, "the format's key '%.*s' is missing", (int)name.string->len,
                              name.string->data);
    return status;
}

// "(name)" after the percent sign; parentheses nest.
static enum status read_key(struct jinja_run *run, struct percent *percent, struct spec *spec) {
    if (!take(percent, '(')) return OK;
    if (!percent->is_mapping) return jinja_run_fail(run, "format requires a mapping");
    size_t start = percent->at;
    for (int64_t depth = 1; depth > 0; percent->at++) {
        if (percent->at >= percent->format->len)
            return jinja_run_fail(run, "incomplete format key");
        char c = percent->format->data[percent->at];
        depth += c == '(';
        depth -= c == ')';
    }
    struct jinja_value key;
    enum status status =
        jinja_str_borrow(run, percent->format->data + start, percent->at - 1 - start, false, &key);
    if (!status) status = look_up(run, percent->right, key, &spec->named);
    spec->has_named = true;
    percent->is_used = true;
    return status;
}

// Digits or '*'; 0 when there are none.
static enum status read_number(struct jinja_run *run, struct percent *percent, int64_t *out) {
    if (take(percent, '*')) {
        struct jinja_value value = {0};
        enum status status = next_value(run, percent, &value);
        if (status) return status;
        bool is_int = value.type == JINJA_INT || value.type == JINJA_BOOL;
        if (!is_int || percent->format->is_markup) return jinja_run_fail(run, "* wants int");
        return jinja_args_int(run, "%", "*", value, out);
    }
    *out = 0;
    for (; percent->at < percent->format->len; percent->at++) {
        char c = percent->format->data[percent->at];
        if (c < '0' || c > '9') break;
        *out = *out * 10 + (c - '0');
        if (*out > INT32_MAX)
            return jinja_run_fail(run, "the width or precision of a format is too big");
    }
    return OK;
}

static enum status read_spec(struct jinja_run *run, struct percent *percent, struct spec *spec) {
    *spec = (struct spec){.precision = -1};
    enum status status = read_key(run, percent, spec);
    if (status) return status;
    for (bool is_flag = true; is_flag;) {
        is_flag = false;
        if (take(percent, '-')) spec->left = is_flag = true;
        if (take(percent, '+')) spec->plus = is_flag = true;
        if (take(percent, ' ')) spec->blank = is_flag = true;
        if (take(percent, '#')) spec->alternate = is_flag = true;
        if (take(percent, '0')) spec->zero = is_flag = true;
    }
    status = read_number(run, percent, &spec->width);
    if (status) return status;
    if (spec->width < 0) {
        spec->left = true;
        spec->width = spec->width == INT64_MIN ? INT64_MAX : -spec->width;
    }
    if (take(percent, '.')) {
        status = read_number(run, percent, &spec->precision);
        if (status) return status;
        if (spec->precision < 0) spec->precision = 0;
    }
    if (!take(percent, 'h') && !take(percent, 'l')) take(percent, 'L');
    if (percent->at >= percent->format->len) return jinja_run_fail(run, "incomplete format");
    spec->type = jinja_str_next(percent->format, &percent->at);
    return OK;
}

// Sign and prefix stand before zeros, but behind spaces.
static enum status append_padded(struct jinja_run *run, struct jinja_text *text,
                                 const struct spec *spec, bool zero, const char *prefix,
                                 const struct jinja_string *body) {
    static const struct jinja_string space_unit = {.data = " ", .len = 1, .num_chars = 1};
    static const struct jinja_string zero_unit = {.data = "0", .len = 1, .num_chars = 1};
    int64_t pad = spec->width - (int64_t)strlen(prefix) - (int64_t)body->num_chars;
    int64_t before = spec->left ? 0 : pad;
    enum status status = OK;
    if (!zero) status = jinja_str_append_repeated(run, text, &space_unit, before);
    if (!status) status = jinja_text_append_str(run, text, prefix);
    if (!status && zero) status = jinja_str_append_repeated(run, text, &zero_unit, before);
    if (!status) status = jinja_str_pay_bytes(run, body->len);
    if (!status) status = jinja_text_append_string(run, text, body);
    if (!status && spec->left) status = jinja_str_append_repeated(run, text, &space_unit, pad);
    return status;
}

static const char *sign_of(const struct spec *spec, bool negative) {
    if (negative) return "-";
    if (spec->plus) return "+";
    return spec->blank ? " " : "";
}

static enum status append_text(struct jinja_run *run, struct percent *percent,
                               const struct spec *spec, struct jinja_value value) {
    struct jinja_text printed = {0};
    const struct jinja_string *string;
    enum status status = OK;
    bool is_markup = percent->format->is_markup;
    if (spec->type == 's') {
        status = jinja_value_to_string(run, value, &string);
    } else {
        struct jinja_value shown;
        status = spec->type == 'r' ? jinja_value_repr(run, value, &printed)
                                   : jinja_format_ascii(run, value, &printed);
        if (!status) status = jinja_text_finish(run, &printed, &shown);
        if (!status) string = shown.string;
    }
    if (status) return status;
    struct jinja_value part = jinja_value_of_string(string);
    if (is_markup) status = jinja_library_escape(run, part, &part);
    if (status) return status;
    string = part.string;
    if (spec->precision >= 0 && spec->precision < string->num_chars) {
        status = jinja_str_part(run, string, 0,
                                jinja_string_offset(string, (size_t)spec->precision), &part);
        if (status) return status;
    }
    return append_padded(run, &percent->text, spec, false, "", part.string);
}

// The values of a Markup's format are wrapped, so that they are escaped. What is wrapped is no
// number, but says what int() and float() make of it.
static enum status unwrap(struct jinja_run *run, const struct percent *percent, bool to_float,
                          struct jinja_value *value) {
    if (!percent->format->is_markup || value->type != JINJA_STRING) return OK;
    enum status status = jinja_str_pay_chars(run, value->string->len);
    if (status) return status;
    bool too_large = false;
    int64_t integer = 0;
    double number = 0;
    bool is_read = to_float ? jinja_number_parse_float(value->string, &number)
                            : jinja_number_parse_int(value->string, 10, &integer, &too_large);
    if (!is_read || too_large) return jinja_run_fail(run, "a string to format as a number is none");
    *value = to_float ? jinja_value_float(number) : jinja_value_int(integer);
    return OK;
}

// An integer of any number; floats are cut, but not for o and x.
static enum status integer_of(struct jinja_run *run, const struct percent *percent,
                              const struct spec *spec, struct jinja_value value, int64_t *out) {
    char type = (char)spec->type;
    bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    if (percent->format->is_markup && !is_decimal)
        return jinja_run_fail(run, "%%%c format: an integer is required, not Markup", type);
    enum status status = unwrap(run, percent, false, &value);
    if (status) return status;
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    if (is_decimal && value.type == JINJA_FLOAT)
        return jinja_number_truncate(run, value.number, out);
    if (value.type != JINJA_INT && value.type != JINJA_BOOL)
        return jinja_run_fail(run, "%%%c format: %s is required, not %s", type,
                              is_decimal ? "a real number" : "an integer",
                              jinja_value_type_name(value));
    *out = value.type == JINJA_BOOL ? value.boolean : value.integer;
    return OK;
}

static enum status append_integer(struct jinja_run *run, struct percent *percent,
                                  const struct spec *spec, struct jinja_value value) {
    int64_t integer = 0;
    enum status status = integer_of(run, percent, spec, value, &integer);
    if (status) return status;
    char type = (char)spec->type;
    bool is_hex = type == 'x' || type == 'X';
    unsigned base = is_hex ? 16 : type == 'o' ? 8 : 10;
    char digits[64], prefix[4] = {0}; // a sign, 0x
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    size_t len = jinja_format_digits(magnitude, base, type == 'X', digits);
    size_t num_prefix = 0;
    const char *sign = sign_of(spec, integer < 0);
    if (*sign) prefix[num_prefix++] = *sign;
    if (spec->alternate && base != 10) {
        prefix[num_prefix++] = '0';
        prefix[num_prefix] = type;
    }
    static const struct jinja_string zero = {.data = "0", .len = 1, .num_chars = 1};
    struct jinja_text body = {0};
    struct jinja_value shown;
    status = jinja_str_append_repeated(run, &body, &zero, spec->precision - (int64_t)len);
    if (!status) status = jinja_text_append(run, &body, digits, len);
    if (!status) status = jinja_text_finish(run, &body, &shown);
    if (status) return status;
    return append_padded(run, &percent->text, spec, spec->zero, prefix, shown.string);
}

static enum status append_float(struct jinja_run *run, struct percent *percent,
                                const struct spec *spec, struct jinja_value value) {
    double number;
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    enum status status = unwrap(run, percent, true, &value);
    if (status) return status;
    if (value.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    if (value.type == JINJA_STRING || !jinja_number_of(value, &number))
        return jinja_run_fail(run, "must be real number, not %s", jinja_value_type_name(value));
    struct jinja_float_style style = {.type = (char)spec->type,
                                      .precision = spec->precision < 0 ? 6 : spec->precision,
                                      .keeps_point = spec->alternate};
    struct jinja_text body = {0};
    struct jinja_value shown;
    status = jinja_format_float(run, number, &style, &body);
    if (!status) status = jinja_text_finish(run, &body, &shown);
    if (status) return status;
    const char *sign = sign_of(spec, signbit(number) && !isnan(number));
    return append_padded(run, &percent->text, spec, spec->zero, sign, shown.string);
}

static enum status append_character(struct jinja_run *run, struct percent *percent,
                                    const struct spec *spec, struct jinja_value value) {
    if (percent->format->is_markup) return jinja_run_fail(run, "%%c requires int or char");
    if (value.type == JINJA_STRING) {
        if (value.string->num_chars != 1) return jinja_run_fail(run, "%%c requires int or char");
        return append_padded(run, &percent->text, spec, false, "", value.string);
    }
    if (value.type != JINJA_INT && value.type != JINJA_BOOL)
        return jinja_run_fail(run, "%%c requires int or char");
    int64_t c = value.type == JINJA_BOOL ? value.boolean : value.integer;
    char bytes[4];
    size_t len = 0;
    enum status status = jinja_format_character(run, c, bytes, &len);
    if (status) return status;
    struct jinja_string string = jinja_string_of(bytes, len);
    return append_padded(run, &percent->text, spec, false, "", &string);
}

static enum status append_spec(struct jinja_run *run, struct percent *percent,
                               const struct spec *spec) {
    struct jinja_value value = spec->named;
    enum status status = OK;
    if (!spec->has_named) status = next_value(run, percent, &value);
    if (status) return status;
    switch (spec->type) {
    case 's':
    case 'r':
    case 'a':
        return append_text(run, percent, spec, value);
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        return append_integer(run, percent, spec, value);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        return append_float(run, percent, spec, value);
    case 'c':
        return append_character(run, percent, spec, value);
    default:
        return jinja_run_fail(run, "unsupported format character (0x%x)", (unsigned)spec->type);
    }
}

enum status jinja_format_percent(struct jinja_run *run, const struct jinja_string *format,
                                 struct jinja_value right, struct jinja_value *out) {
    bool has_items = right.type == JINJA_DICT || right.type == JINJA_LIST ||
                     right.type == JINJA_RANGE || right.type == JINJA_UNDEFINED;
    struct percent percent = {.format = format, .right = right, .is_mapping = has_items};
    enum status status = jinja_str_pay_bytes(run, format->len);
    while (percent.at < format->len && !status) {
        const char *start = format->data + percent.at;
        const char *mark = memchr(start, '%', format->len - percent.at);
        size_t plain = mark ? (size_t)(mark - start) : format->len - percent.at;
        status = jinja_text_append(run, &percent.text, start, plain);
        percent.at += plain;
        if (status || !mark) break;
        percent.at++;
        status = jinja_run_pay(run, 1);
        if (!status && take(&percent, '%')) {
            status = jinja_text_append_str(run, &percent.text, "%");
            continue;
        }
        struct spec spec;
        if (!status) status = read_spec(run, &percent, &spec);
        if (!status) status = append_spec(run, &percent, &spec);
    }
    if (status) return status;
    bool is_left =
        right.type == JINJA_TUPLE ? percent.next < right.list->len : !percent.is_used && !has_items;
    if (is_left) return jinja_run_fail(run, "not all arguments converted during string formatting");
    return jinja_str_finish(run, &percent.text, format->is_markup, out);
}
