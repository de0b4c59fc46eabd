// format(value, spec): the format specification mini-language,
//   [[fill]align][sign][z][#][0][width][grouping][.precision][type]
// Source: Python's documentation of it, and CPython's behaviour where that is silent.
#include <math.h>
#include <string.h>

#include "jinja/src/library/format_number.h"
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/numbers.h"
#include "jinja/src/value/str_ops.h"

struct layout {
    struct jinja_string fill; // one character
    char align; // one of < > = ^
    char sign; // + - or space; 0: not given
    bool no_negative_zero, alternate;
    int64_t width, precision; // -1: not given
    char grouping; // , or _; 0: none
    uint32_t type; // 0: not given
    const char *type_name; // of the value, for errors
};

// A number in its parts: padding may go between them.
struct number_parts {
    const char *sign, *prefix;
    struct jinja_string digits; // of the integer part: what is grouped
    struct jinja_string rest; // point, fraction, exponent; or "inf"
};

// ---- parsing ----

static bool is_align(uint32_t c) {
    return c == '<' || c == '>' || c == '=' || c == '^';
}

static bool take(const struct jinja_string *spec, size_t *at, char c) {
    if (*at >= spec->len || spec->data[*at] != c) return false;
    ++*at;
    return true;
}

// -1 when there are no digits.
static enum status read_number(struct jinja_run *run, const struct jinja_string *spec, size_t *at,
                               int64_t *out) {
    *out = -1;
    while (*at < spec->len) {
        char c = spec->data[*at];
        if (c < '0' || c > '9') return OK;
        *out = (*out < 0 ? 0 : *out * 10) + (c - '0');
        if (*out > INT32_MAX)
            return jinja_run_fail(run, "Too many decimal digits in format string");
        ++*at;
    }
    return OK;
}

static void read_align(const struct jinja_string *spec, size_t *at, struct layout *layout,
                       bool *has_fill, bool *has_align) {
    *has_fill = *has_align = false;
    if (*at >= spec->len) return;
    size_t second = *at;
    uint32_t first = jinja_str_next(spec, &second);
    if (second < spec->len && is_align((unsigned char)spec->data[second])) {
        layout->fill = jinja_string_of(spec->data + *at, second - *at);
        layout->align = spec->data[second];
        *has_fill = *has_align = true;
        *at = second + 1;
    } else if (is_align(first)) {
        layout->align = (char)first;
        *has_align = true;
        *at = second;
    }
}

static enum status read_rest(struct jinja_run *run, const struct jinja_string *spec, size_t at,
                             struct layout *layout) {
    enum status status = read_number(run, spec, &at, &layout->width);
    if (status) return status;
    if (take(spec, &at, ',')) layout->grouping = ',';
    if (take(spec, &at, '_')) {
        if (layout->grouping) return jinja_run_fail(run, "Cannot specify both ',' and '_'.");
        layout->grouping = '_';
    }
    if (at < spec->len && spec->data[at] == ',' && layout->grouping)
        return jinja_run_fail(run, "Cannot specify both ',' and '_'.");
    if (take(spec, &at, '.')) {
        status = read_number(run, spec, &at, &layout->precision);
        if (status) return status;
        if (layout->precision < 0) return jinja_run_fail(run, "Format specifier missing precision");
    }
    if (at < spec->len) layout->type = jinja_str_next(spec, &at);
    if (at < spec->len)
        return jinja_run_fail(run, "Invalid format specifier '%.*s' for object of type '%s'",
                              (int)spec->len, spec->data, layout->type_name);
    return OK;
}

static enum status parse(struct jinja_run *run, const struct jinja_string *spec, char default_align,
                         const char *type_name, struct layout *layout) {
    *layout = (struct layout){.fill = {.data = " ", .len = 1, .num_chars = 1},
                              .align = default_align,
                              .width = -1,
                              .precision = -1,
                              .type_name = type_name};
    enum status status = jinja_str_pay_chars(run, spec->len);
    if (status) return status;
    size_t at = 0;
    bool has_fill, has_align;
    read_align(spec, &at, layout, &has_fill, &has_align);
    if (take(spec, &at, '+'))
        layout->sign = '+';
    else if (take(spec, &at, '-'))
        layout->sign = '-';
    else if (take(spec, &at, ' '))
        layout->sign = ' ';
    layout->no_negative_zero = take(spec, &at, 'z');
    layout->alternate = take(spec, &at, '#');
    if (!has_fill && take(spec, &at, '0')) {
        layout->fill.data = "0";
        if (!has_align && default_align == '>') layout->align = '=';
    }
    return read_rest(run, spec, at, layout);
}

// ---- padding ----

static enum status unknown_code(struct jinja_run *run, const struct layout *layout) {
    char bytes[4];
    size_t len = utf8_write(layout->type, bytes);
    return jinja_run_fail(run, "Unknown format code '%.*s' for object of type '%s'", (int)len,
                          bytes, layout->type_name);
}

// How the padding is shared by both sides.
static int64_t padding_before(const struct layout *layout, int64_t padding) {
    if (layout->align == '>') return padding;
    return layout->align == '^' ? padding / 2 : 0;
}

// Digits in groups, zeros in front until there are `min_width` characters with the separators.
// Written from the back.
static enum status group(struct jinja_run *run, const struct layout *layout,
                         const struct jinja_string *digits, int64_t min_width,
                         struct jinja_string *out) {
    bool by_four =
        layout->type == 'b' || layout->type == 'o' || layout->type == 'x' || layout->type == 'X';
    int64_t size = by_four ? 4 : 3;
    int64_t left = digits->len;
    size_t capacity = 2 * (size_t)(left > min_width ? left : min_width) + 2;
    char *data = jinja_run_alloc(run, capacity);
    if (!data) return jinja_run_status(run);
    enum status status = jinja_str_pay_chars(run, capacity);
    if (status) return status;
    size_t at = capacity;
    for (bool is_first = true; is_first || left > 0 || min_width > 0; is_first = false) {
        if (!is_first) data[--at] = layout->grouping;
        if (!is_first) min_width--;
        int64_t wanted = left > min_width ? left : min_width;
        if (wanted < 1) wanted = 1;
        if (wanted > size) wanted = size;
        for (int64_t i = 0; i < wanted; i++) data[--at] = left > 0 ? digits->data[--left] : '0';
        min_width -= wanted;
    }
    *out = jinja_string_of(data + at, capacity - at);
    return OK;
}

static enum status append_number(struct jinja_run *run, const struct layout *layout,
                                 const struct number_parts *parts, struct jinja_text *text) {
    int64_t around =
        (int64_t)strlen(parts->sign) + (int64_t)strlen(parts->prefix) + parts->rest.num_chars;
    struct jinja_string digits = parts->digits;
    enum status status = OK;
    bool is_zero_padded = layout->align == '=' && jinja_string_is(&layout->fill, "0");
    if (layout->grouping && digits.len)
        status = group(run, layout, &parts->digits, is_zero_padded ? layout->width - around : 0,
                       &digits);
    if (status) return status;
    int64_t padding = layout->width - around - digits.num_chars;
    if (padding < 0) padding = 0;
    int64_t before = padding_before(layout, padding), between = layout->align == '=' ? padding : 0;
    status = jinja_str_append_repeated(run, text, &layout->fill, before);
    if (!status) status = jinja_text_append_str(run, text, parts->sign);
    if (!status) status = jinja_text_append_str(run, text, parts->prefix);
    if (!status) status = jinja_str_append_repeated(run, text, &layout->fill, between);
    if (!status) status = jinja_text_append_string(run, text, &digits);
    if (!status) status = jinja_text_append_string(run, text, &parts->rest);
    if (status) return status;
    return jinja_str_append_repeated(run, text, &layout->fill, padding - before - between);
}

static const char *sign_of(const struct layout *layout, bool negative) {
    if (negative) return "-";
    if (layout->sign == '+') return "+";
    return layout->sign == ' ' ? " " : "";
}

// ---- by type ----

static enum status format_string(struct jinja_run *run, const struct jinja_string *string,
                                 const struct jinja_string *spec, struct jinja_text *text) {
    struct layout layout;
    enum status status = parse(run, spec, '<', "str", &layout);
    if (status) return status;
    if (layout.type && layout.type != 's') return unknown_code(run, &layout);
    if (layout.sign) return jinja_run_fail(run, "Sign not allowed in string format specifier");
    if (layout.no_negative_zero)
        return jinja_run_fail(run,
                              "Negative zero coercion (z) not allowed in string format specifier");
    if (layout.alternate)
        return jinja_run_fail(run, "Alternate form (#) not allowed in string format specifier");
    if (layout.align == '=')
        return jinja_run_fail(run, "'=' alignment not allowed in string format specifier");
    if (layout.grouping)
        return jinja_run_fail(run, "Cannot specify '%c' with 's'.", layout.grouping);
    size_t len = string->len;
    int64_t num_chars = string->num_chars;
    if (layout.precision >= 0 && layout.precision < num_chars) {
        num_chars = layout.precision;
        len = jinja_string_offset(string, (size_t)num_chars);
    }
    int64_t padding = layout.width > num_chars ? layout.width - num_chars : 0;
    int64_t before = padding_before(&layout, padding);
    status = jinja_str_append_repeated(run, text, &layout.fill, before);
    if (!status) status = jinja_str_pay_bytes(run, len);
    if (!status) status = jinja_text_append(run, text, string->data, len);
    if (status) return status;
    return jinja_str_append_repeated(run, text, &layout.fill, padding - before);
}

static bool is_float_type(uint32_t type) {
    return type < 0x80 && type && strchr("eEfFgG%", (int)type);
}

static enum status check_grouping(struct jinja_run *run, const struct layout *layout) {
    uint32_t type = layout->type;
    if (!layout->grouping || type == 0 || type == 'd' || is_float_type(type)) return OK;
    bool is_binary = type == 'b' || type == 'o' || type == 'x' || type == 'X';
    if (layout->grouping == '_' && is_binary) return OK;
    char bytes[4];
    size_t len = utf8_write(type, bytes);
    return jinja_run_fail(run, "Cannot specify '%c' with '%.*s'.", layout->grouping, (int)len,
                          bytes);
}

static enum status format_float_value(struct jinja_run *run, double number, struct layout *layout,
                                      struct jinja_text *text);

// type c: the character itself.
static enum status format_character(struct jinja_run *run, int64_t c, const struct layout *layout,
                                    struct jinja_text *text) {
    if (layout->sign)
        return jinja_run_fail(run, "Sign not allowed with integer format specifier 'c'");
    if (layout->alternate)
        return jinja_run_fail(run,
                              "Alternate form (#) not allowed with integer format specifier 'c'");
    char bytes[4];
    size_t len = 0;
    enum status status = jinja_format_character(run, c, bytes, &len);
    if (status) return status;
    struct number_parts parts = {.sign = "", .prefix = "", .rest = jinja_string_of("", 0)};
    parts.digits = jinja_string_of(bytes, len);
    return append_number(run, layout, &parts, text);
}

static enum status format_integer(struct jinja_run *run, int64_t integer,
                                  const struct jinja_string *spec, const char *type_name,
                                  struct jinja_text *text) {
    struct layout layout;
    enum status status = parse(run, spec, '>', type_name, &layout);
    if (!status) status = check_grouping(run, &layout);
    if (status) return status;
    if (is_float_type(layout.type)) return format_float_value(run, (double)integer, &layout, text);
    unsigned base = 10;
    const char *prefix = "";
    switch (layout.type) {
    case 0:
    case 'd':
    case 'n':
    case 'c':
        break;
    case 'b':
        base = 2;
        prefix = "0b";
        break;
    case 'o':
        base = 8;
        prefix = "0o";
        break;
    case 'x':
    case 'X':
        base = 16;
        prefix = layout.type == 'x' ? "0x" : "0X";
        break;
    default:
        return unknown_code(run, &layout);
    }
    if (layout.precision >= 0)
        return jinja_run_fail(run, "Precision not allowed in integer format specifier");
    if (layout.no_negative_zero)
        return jinja_run_fail(
            run, "Negative zero coercion (z) not allowed in format specifier with integer format");
    if (layout.type == 'c') return format_character(run, integer, &layout, text);
    char digits[64];
    uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    size_t len = jinja_format_digits(magnitude, base, layout.type == 'X', digits);
    struct number_parts parts = {.sign = sign_of(&layout, integer < 0),
                                 .prefix = layout.alternate ? prefix : "",
                                 .digits = jinja_string_of(digits, len),
                                 .rest = jinja_string_of("", 0)};
    return append_number(run, &layout, &parts, text);
}

static enum status format_float_value(struct jinja_run *run, double number, struct layout *layout,
                                      struct jinja_text *text) {
    struct jinja_float_style style = {.type = (char)layout->type, .keeps_point = layout->alternate};
    style.precision = layout->precision < 0 ? 6 : layout->precision;
    if (layout->type == 0) style.type = layout->precision < 0 ? 'r' : 'd';
    if (layout->type == 'n') style.type = 'g';
    if (layout->type == '%') style.type = 'f';
    if (layout->type == '%') number *= 100;
    struct jinja_text body = {0};
    enum status status = jinja_format_float(run, number, &style, &body);
    bool is_finite = isfinite(number), is_zero = true;
    for (size_t i = 0; i < body.len && body.data[i] != 'e' && body.data[i] != 'E'; i++)
        is_zero &= body.data[i] < '1' || body.data[i] > '9';
    if (!status && layout->type == '%') status = jinja_text_append_str(run, &body, "%");
    if (status) return status;
    bool negative = signbit(number) && !isnan(number);
    if (layout->no_negative_zero && is_finite && is_zero) negative = false;
    size_t num_digits = 0;
    while (num_digits < body.len && body.data[num_digits] >= '0' && body.data[num_digits] <= '9')
        num_digits++;
    struct number_parts parts = {
        .sign = sign_of(layout, negative),
        .prefix = "",
        .digits = jinja_string_of(body.data, num_digits),
        .rest = jinja_string_of(body.data + num_digits, body.len - num_digits)};
    return append_number(run, layout, &parts, text);
}

enum status jinja_format_value(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_string *spec, struct jinja_text *text) {
    if (spec->len == 0) return jinja_value_print(run, value, text);
    const char *type_name = jinja_value_type_name(value);
    if (value.type == JINJA_STRING) return format_string(run, value.string, spec, text);
    if (value.type == JINJA_BOOL) return format_integer(run, value.boolean, spec, type_name, text);
    if (value.type == JINJA_INT) return format_integer(run, value.integer, spec, type_name, text);
    if (value.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    if (value.type != JINJA_FLOAT)
        return jinja_run_fail(run, "unsupported format string passed to %s.__format__", type_name);
    struct layout layout;
    enum status status = parse(run, spec, '>', type_name, &layout);
    if (!status) status = check_grouping(run, &layout);
    if (status) return status;
    if (layout.type && layout.type != 'n' && !is_float_type(layout.type))
        return unknown_code(run, &layout);
    return format_float_value(run, value.number, &layout, text);
}
