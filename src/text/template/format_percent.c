// String % values: printf-style formatting. Source: Python's documentation of it, and CPython's
// behaviour where that is silent.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "text/template/format_number.h"
#include "text/template/library_parts.h"
#include "text/template/numbers.h"
#include "text/template/str_ops.h"

// What is formatted and with which values.
struct percent {
    const struct string *format;
    size_t at; // byte after what was read
    struct value right;
    bool is_mapping; // %(name)s may be used
    size_t next; // of a tuple's values
    bool is_used; // the one value that is no tuple
    struct text text;
};

// One %...: what stands between the percent sign and the letter.
struct spec {
    bool left, plus, blank, alternate, zero;
    int64_t width, precision; // precision -1: none
    uint32_t type;
    bool has_named;
    struct value named; // %(name)
};

static enum status next_value(struct run *run, struct percent *percent, struct value *out) {
    if (percent->right.type == VALUE_TUPLE) {
        if (percent->next >= percent->right.list->len)
            return run_fail(run, "not enough arguments for format string");
        *out = percent->right.list->items[percent->next++];
        return OK;
    }
    if (percent->is_used) return run_fail(run, "not enough arguments for format string");
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
static enum status look_up(struct run *run, struct value right, struct value name,
                           struct value *out) {
    if (right.type == VALUE_UNDEFINED) return run_fail_undefined(run, right);
    bool found = false;
    if (right.type != VALUE_DICT)
        return run_fail(run, "%s indices must be integers, not str", value_type_name(right));
    enum status status = dict_get(run, right.dict, name, &found, out);
    if (!status && !found)
        return run_fail(run, "the format's key '%.*s' is missing", (int)name.string->len,
                        name.string->data);
    return status;
}

// "(name)" after the percent sign; parentheses nest.
static enum status read_key(struct run *run, struct percent *percent, struct spec *spec) {
    if (!take(percent, '(')) return OK;
    if (!percent->is_mapping) return run_fail(run, "format requires a mapping");
    size_t start = percent->at;
    for (int64_t depth = 1; depth > 0; percent->at++) {
        if (percent->at >= percent->format->len) return run_fail(run, "incomplete format key");
        char c = percent->format->data[percent->at];
        depth += c == '(';
        depth -= c == ')';
    }
    struct value key;
    enum status status =
        str_borrow(run, percent->format->data + start, percent->at - 1 - start, false, &key);
    if (!status) status = look_up(run, percent->right, key, &spec->named);
    spec->has_named = true;
    percent->is_used = true;
    return status;
}

// Digits or '*'; 0 when there are none.
static enum status read_number(struct run *run, struct percent *percent, int64_t *out) {
    if (take(percent, '*')) {
        struct value value = {0};
        enum status status = next_value(run, percent, &value);
        if (status) return status;
        bool is_int = value.type == VALUE_INT || value.type == VALUE_BOOL;
        if (!is_int || percent->format->is_markup) return run_fail(run, "* wants int");
        return args_int(run, "%", "*", value, out);
    }
    *out = 0;
    for (; percent->at < percent->format->len; percent->at++) {
        char c = percent->format->data[percent->at];
        if (c < '0' || c > '9') break;
        *out = *out * 10 + (c - '0');
        if (*out > INT32_MAX) return run_fail(run, "the width or precision of a format is too big");
    }
    return OK;
}

static enum status read_spec(struct run *run, struct percent *percent, struct spec *spec) {
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
    if (percent->at >= percent->format->len) return run_fail(run, "incomplete format");
    spec->type = str_next(percent->format, &percent->at);
    return OK;
}

// Sign and prefix stand before zeros, but behind spaces.
static enum status append_padded(struct run *run, struct text *text, const struct spec *spec,
                                 bool zero, const char *prefix, const struct string *body) {
    static const struct string space_unit = {.data = " ", .len = 1, .num_chars = 1};
    static const struct string zero_unit = {.data = "0", .len = 1, .num_chars = 1};
    int64_t pad = spec->width - (int64_t)strlen(prefix) - (int64_t)body->num_chars;
    int64_t before = spec->left ? 0 : pad;
    enum status status = OK;
    if (!zero) status = str_append_repeated(run, text, &space_unit, before);
    if (!status) status = text_append_str(run, text, prefix);
    if (!status && zero) status = str_append_repeated(run, text, &zero_unit, before);
    if (!status) status = str_pay_bytes(run, body->len);
    if (!status) status = text_append_string(run, text, body);
    if (!status && spec->left) status = str_append_repeated(run, text, &space_unit, pad);
    return status;
}

static const char *sign_of(const struct spec *spec, bool negative) {
    if (negative) return "-";
    if (spec->plus) return "+";
    return spec->blank ? " " : "";
}

static enum status append_text(struct run *run, struct percent *percent, const struct spec *spec,
                               struct value value) {
    struct text printed = {0};
    const struct string *string;
    enum status status = OK;
    bool is_markup = percent->format->is_markup;
    if (spec->type == 's') {
        status = value_to_string(run, value, &string);
    } else {
        struct value shown;
        status = spec->type == 'r' ? value_repr(run, value, &printed)
                                   : format_ascii(run, value, &printed);
        if (!status) status = text_finish(run, &printed, &shown);
        if (!status) string = shown.string;
    }
    if (status) return status;
    struct value part = value_of_string(string);
    if (is_markup) status = library_escape(run, part, &part);
    if (status) return status;
    string = part.string;
    if (spec->precision >= 0 && spec->precision < string->num_chars) {
        status = str_part(run, string, 0, string_offset(string, (size_t)spec->precision), &part);
        if (status) return status;
    }
    return append_padded(run, &percent->text, spec, false, "", part.string);
}

// The values of a Markup's format are wrapped, so that they are escaped. What is wrapped is no
// number, but says what int() and float() make of it.
static enum status unwrap(struct run *run, const struct percent *percent, bool to_float,
                          struct value *value) {
    if (!percent->format->is_markup || value->type != VALUE_STRING) return OK;
    enum status status = str_pay_chars(run, value->string->len);
    if (status) return status;
    bool too_large = false;
    int64_t integer = 0;
    double number = 0;
    bool is_read = to_float ? number_parse_float(value->string, &number)
                            : number_parse_int(value->string, 10, &integer, &too_large);
    if (!is_read || too_large) return run_fail(run, "a string to format as a number is none");
    *value = to_float ? value_float(number) : value_int(integer);
    return OK;
}

// An integer of any number; floats are cut, but not for o and x.
static enum status integer_of(struct run *run, const struct percent *percent,
                              const struct spec *spec, struct value value, int64_t *out) {
    char type = (char)spec->type;
    bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    if (percent->format->is_markup && !is_decimal)
        return run_fail(run, "%%%c format: an integer is required, not Markup", type);
    enum status status = unwrap(run, percent, false, &value);
    if (status) return status;
    if (value.type == VALUE_UNDEFINED) return run_fail_undefined(run, value);
    if (value.type == VALUE_BIG_INT) return run_fail_big(run);
    if (is_decimal && value.type == VALUE_FLOAT) return number_truncate(run, value.number, out);
    if (value.type != VALUE_INT && value.type != VALUE_BOOL)
        return run_fail(run, "%%%c format: %s is required, not %s", type,
                        is_decimal ? "a real number" : "an integer", value_type_name(value));
    *out = value.type == VALUE_BOOL ? value.boolean : value.integer;
    return OK;
}

static enum status append_integer(struct run *run, struct percent *percent, const struct spec *spec,
                                  struct value value) {
    int64_t integer = 0;
    enum status status = integer_of(run, percent, spec, value, &integer);
    if (status) return status;
    char type = (char)spec->type;
    bool is_hex = type == 'x' || type == 'X';
    unsigned base = is_hex ? 16 : type == 'o' ? 8 : 10;
    char digits[64], prefix[4] = {0}; // a sign, 0x
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    size_t len = format_digits(magnitude, base, type == 'X', digits);
    size_t num_prefix = 0;
    const char *sign = sign_of(spec, integer < 0);
    if (*sign) prefix[num_prefix++] = *sign;
    if (spec->alternate && base != 10) {
        prefix[num_prefix++] = '0';
        prefix[num_prefix] = type;
    }
    static const struct string zero = {.data = "0", .len = 1, .num_chars = 1};
    struct text body = {0};
    struct value shown;
    status = str_append_repeated(run, &body, &zero, spec->precision - (int64_t)len);
    if (!status) status = text_append(run, &body, digits, len);
    if (!status) status = text_finish(run, &body, &shown);
    if (status) return status;
    return append_padded(run, &percent->text, spec, spec->zero, prefix, shown.string);
}

static enum status append_float(struct run *run, struct percent *percent, const struct spec *spec,
                                struct value value) {
    double number;
    if (value.type == VALUE_UNDEFINED) return run_fail_undefined(run, value);
    enum status status = unwrap(run, percent, true, &value);
    if (status) return status;
    if (value.type == VALUE_BIG_INT) return run_fail_big(run);
    if (value.type == VALUE_STRING || !number_of(value, &number))
        return run_fail(run, "must be real number, not %s", value_type_name(value));
    struct float_style style = {.type = (char)spec->type,
                                .precision = spec->precision < 0 ? 6 : spec->precision,
                                .keeps_point = spec->alternate};
    struct text body = {0};
    struct value shown;
    status = format_float(run, number, &style, &body);
    if (!status) status = text_finish(run, &body, &shown);
    if (status) return status;
    const char *sign = sign_of(spec, signbit(number) && !isnan(number));
    return append_padded(run, &percent->text, spec, spec->zero, sign, shown.string);
}

static enum status append_character(struct run *run, struct percent *percent,
                                    const struct spec *spec, struct value value) {
    if (percent->format->is_markup) return run_fail(run, "%%c requires int or char");
    if (value.type == VALUE_STRING) {
        if (value.string->num_chars != 1) return run_fail(run, "%%c requires int or char");
        return append_padded(run, &percent->text, spec, false, "", value.string);
    }
    if (value.type != VALUE_INT && value.type != VALUE_BOOL)
        return run_fail(run, "%%c requires int or char");
    int64_t c = value.type == VALUE_BOOL ? value.boolean : value.integer;
    if (c < 0 || c >= UNICODE_END || (c >= 0xd800 && c <= 0xdfff))
        return run_fail(run, "%%c arg not in range(0x110000)");
    char bytes[4];
    struct string string = string_of(bytes, utf8_write((uint32_t)c, bytes));
    return append_padded(run, &percent->text, spec, false, "", &string);
}

static enum status append_spec(struct run *run, struct percent *percent, const struct spec *spec) {
    struct value value = spec->named;
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
        return run_fail(run, "unsupported format character (0x%x)", (unsigned)spec->type);
    }
}

enum status library_format(struct run *run, const struct string *format, struct value right,
                           struct value *out) {
    bool has_items = right.type == VALUE_DICT || right.type == VALUE_LIST ||
                     right.type == VALUE_RANGE || right.type == VALUE_UNDEFINED;
    struct percent percent = {.format = format, .right = right, .is_mapping = has_items};
    enum status status = str_pay_bytes(run, format->len);
    while (percent.at < format->len && !status) {
        const char *start = format->data + percent.at;
        const char *mark = memchr(start, '%', format->len - percent.at);
        size_t plain = mark ? (size_t)(mark - start) : format->len - percent.at;
        status = text_append(run, &percent.text, start, plain);
        percent.at += plain;
        if (status || !mark) break;
        percent.at++;
        status = run_pay(run, 1);
        if (!status && take(&percent, '%')) {
            status = text_append_str(run, &percent.text, "%");
            continue;
        }
        struct spec spec;
        if (!status) status = read_spec(run, &percent, &spec);
        if (!status) status = append_spec(run, &percent, &spec);
    }
    if (status) return status;
    bool is_left =
        right.type == VALUE_TUPLE ? percent.next < right.list->len : !percent.is_used && !has_items;
    if (is_left) return run_fail(run, "not all arguments converted during string formatting");
    return str_finish(run, &percent.text, format->is_markup, out);
}
