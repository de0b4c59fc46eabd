// The digits of numbers: printf's correctly rounded ones, arranged as Python does.
#include "jinja/src/library/format_number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "jinja/src/value/str_ops.h"

enum {
    // Digits behind the point that can be other than 0: a double has no more.
    FRACTION_MAX = 1074,
    // 309 before the point, the fraction, a sign, an exponent.
    LINE_MAX_BYTES = 1500,
};

size_t jinja_format_digits(uint64_t magnitude, unsigned base, bool upper, char *out) {
    const char *symbols = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    char reversed[64];
    size_t len = 0;
    do {
        reversed[len++] = symbols[magnitude % base];
        magnitude /= base;
    } while (magnitude);
    for (size_t i = 0; i < len; i++) out[i] = reversed[len - 1 - i];
    return len;
}

enum status jinja_format_character(struct jinja_run *run, int64_t c, char *out, size_t *len) {
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return jinja_run_fail(run, "%%c arg not in range(0x110000)");
    *len = utf8_write((uint32_t)c, out);
    return OK;
}

static enum status append_zeros(struct jinja_run *run, struct jinja_text *text, int64_t count) {
    static const struct jinja_string zero = {.data = "0", .len = 1, .num_chars = 1};
    return jinja_str_append_repeated(run, text, &zero, count);
}

static enum status append_fixed(struct jinja_run *run, double number, int64_t precision,
                                bool keeps_point, struct jinja_text *text) {
    char line[LINE_MAX_BYTES];
    int64_t real = precision < FRACTION_MAX ? precision : FRACTION_MAX;
    int len = c_locale_snprintf(line, sizeof line, "%.*f", (int)real, number);
    enum status status = jinja_text_append(run, text, line, (size_t)len);
    if (!status && keeps_point && precision == 0) status = jinja_text_append_str(run, text, ".");
    if (status) return status;
    return append_zeros(run, text, precision - real);
}

// The mantissa with `precision` digits behind the point, then e+XX.
static enum status append_exponent(struct jinja_run *run, double number, int64_t precision,
                                   bool keeps_point, struct jinja_text *text) {
    char line[LINE_MAX_BYTES];
    int64_t real = precision < FRACTION_MAX ? precision : FRACTION_MAX;
    c_locale_snprintf(line, sizeof line, "%.*e", (int)real, number);
    const char *exponent = strchr(line, 'e');
    enum status status = jinja_text_append(run, text, line, (size_t)(exponent - line));
    if (!status && keeps_point && precision == 0) status = jinja_text_append_str(run, text, ".");
    if (!status) status = append_zeros(run, text, precision - real);
    if (status) return status;
    return jinja_text_append_str(run, text, exponent);
}

static size_t without_zeros(const char *digits, size_t len) {
    while (len > 1 && digits[len - 1] == '0') len--;
    return len;
}

// Python's g: `precision` digits, as a fixed or an exponential form by the exponent; zeros at the
// end go unless the point is kept. `adds_zero`: format()'s default type, "1.0" instead of "1" and
// the exponential form one digit earlier.
static enum status append_general(struct jinja_run *run, double number, int64_t precision,
                                  bool keeps_point, bool adds_zero, struct jinja_text *text) {
    char line[LINE_MAX_BYTES], digits[LINE_MAX_BYTES];
    if (precision == 0) precision = 1;
    int64_t real = precision - 1 < FRACTION_MAX ? precision - 1 : FRACTION_MAX;
    c_locale_snprintf(line, sizeof line, "%.*e", (int)real, number);
    char *mark = strchr(line, 'e');
    int64_t exponent = strtol(mark + 1, NULL, 10);
    size_t num_digits = 0;
    for (const char *p = line; p < mark; p++) {
        if (*p != '.') digits[num_digits++] = *p;
    }
    int64_t num_zeros = precision - (int64_t)num_digits; // behind the digits, if they are kept
    if (!keeps_point) {
        num_zeros = 0;
        num_digits = without_zeros(digits, num_digits);
    }
    enum status status = OK;
    if (exponent < -4 || exponent >= precision - adds_zero) {
        status = jinja_text_append(run, text, digits, 1);
        if (!status && (num_digits > 1 || keeps_point))
            status = jinja_text_append_str(run, text, ".");
        if (!status) status = jinja_text_append(run, text, digits + 1, num_digits - 1);
        if (!status) status = append_zeros(run, text, num_zeros);
        if (status) return status;
        return jinja_text_append_str(run, text, mark);
    }
    int64_t before = exponent + 1; // digits before the point; 0 and less: zeros behind it
    int64_t given = before < (int64_t)num_digits ? before : (int64_t)num_digits;
    if (before <= 0) {
        status = jinja_text_append_str(run, text, "0.");
        if (!status) status = append_zeros(run, text, -before);
        if (!status) status = jinja_text_append(run, text, digits, num_digits);
        if (status) return status;
        return append_zeros(run, text, num_zeros);
    }
    status = jinja_text_append(run, text, digits, (size_t)given);
    if (!status) status = append_zeros(run, text, before - given);
    bool has_fraction = (int64_t)num_digits > before;
    int64_t zeros_behind = keeps_point ? precision - before - ((int64_t)num_digits - given) : 0;
    if (!status && (has_fraction || keeps_point)) status = jinja_text_append_str(run, text, ".");
    if (!status) status = jinja_text_append(run, text, digits + given, num_digits - (size_t)given);
    if (!status) status = append_zeros(run, text, zeros_behind);
    if (!status && adds_zero && !has_fraction && zeros_behind == 0)
        status = jinja_text_append_str(run, text, keeps_point ? "0" : ".0");
    return status;
}

static enum status append_repr(struct jinja_run *run, double number, bool keeps_point,
                               struct jinja_text *text) {
    char line[32];
    jinja_float_repr(number, line);
    size_t mantissa = strcspn(line, "e");
    enum status status = jinja_text_append(run, text, line, mantissa);
    if (!status && keeps_point && !memchr(line, '.', mantissa))
        status = jinja_text_append_str(run, text, ".");
    if (status) return status;
    return jinja_text_append_str(run, text, line + mantissa);
}

enum status jinja_format_float(struct jinja_run *run, double number,
                               const struct jinja_float_style *style, struct jinja_text *text) {
    number = fabs(number);
    size_t start = text->len;
    bool upper = style->type == 'E' || style->type == 'F' || style->type == 'G';
    if (style->precision > INT32_MAX) return jinja_run_fail(run, "precision too big");
    int64_t real = style->precision < FRACTION_MAX ? style->precision : FRACTION_MAX;
    // Digits before the point of large numbers, and those that a subnormal one's repr tries.
    bool is_long = number >= 1e22 || fpclassify(number) == FP_SUBNORMAL;
    enum status status = jinja_run_pay(run, (is_long ? 64 : 8) + (uint64_t)real / 16);
    if (status) return status;
    if (!isfinite(number))
        return jinja_text_append_str(
            run, text, isnan(number) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"));
    switch (style->type) {
    case 'e':
    case 'E':
        status = append_exponent(run, number, style->precision, style->keeps_point, text);
        break;
    case 'f':
    case 'F':
        status = append_fixed(run, number, style->precision, style->keeps_point, text);
        break;
    case 'r':
        status = append_repr(run, number, style->keeps_point, text);
        break;
    default:
        status = append_general(run, number, style->precision, style->keeps_point,
                                style->type == 'd', text);
        break;
    }
    for (size_t i = start; upper && i < text->len; i++) {
        if (text->data[i] == 'e') text->data[i] = 'E';
    }
    return status;
}
