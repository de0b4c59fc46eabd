/* Numbers as text and back, by Python's rules: digits are taken from printf and given to strtod,
 * both in the C locale. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "base/text/utf8.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/value.h"

// ---- printing ----

enum { DIGITS_MAX = 17 }; // always enough to tell doubles apart

struct decimal { // 0.d1d2d3... * 10^point
    char digits[DIGITS_MAX + 1]; // [len], NUL-terminated
    int len, point;
};

// The nearest decimal of `len` digits.
static void decimal_round(double number, int len, struct decimal *out) {
    char text[40];
    c_locale_snprintf(text, sizeof text, "%.*e", len - 1, number);
    const char *p = text;
    out->len = 0;
    for (; *p != 'e' && *p != '\0'; p++) {
        if (*p >= '0' && *p <= '9' && out->len < DIGITS_MAX) out->digits[out->len++] = *p;
    }
    out->digits[out->len] = '\0';
    out->point = (int)strtol(p + (*p == 'e'), NULL, 10) + 1;
}

static bool decimal_is(const struct decimal *decimal, double number) {
    char text[40];
    snprintf(text, sizeof text, "%se%d", decimal->digits, decimal->point - decimal->len);
    return c_locale_strtod(text, NULL) == number;
}

// One more in the last digit.
static void decimal_step(struct decimal *decimal) {
    int i = decimal->len - 1;
    while (i >= 0 && decimal->digits[i] == '9') decimal->digits[i--] = '0';
    if (i >= 0) {
        decimal->digits[i]++;
        return;
    }
    decimal->digits[0] = '1'; // 9.99 -> 10.0
    decimal->point++;
}

// The shortest decimal that reads back as `number` > 0, of these the nearest. Up to 15 digits
// survive a normal double, so fewer need not be tried. Below a power of two doubles lie closer
// together than above it: there the nearest decimal may miss while the next one above hits.
static void decimal_shortest(double number, struct decimal *out) {
    int exponent;
    bool is_power_of_two = frexp(number, &exponent) == 0.5;
    for (int len = isnormal(number) ? 15 : 1; len < DIGITS_MAX; len++) {
        decimal_round(number, len, out);
        if (decimal_is(out, number)) break;
        if (!is_power_of_two) continue;
        decimal_step(out);
        if (decimal_is(out, number)) break;
    }
    if (!decimal_is(out, number)) decimal_round(number, DIGITS_MAX, out);
    while (out->len > 1 && out->digits[out->len - 1] == '0') out->digits[--out->len] = '\0';
}

// Python writes 1e-05 and 1e+16, but 0.0001 and 1000000000000000.0.
static void decimal_write(const struct decimal *decimal, char *out) {
    int len = decimal->len, point = decimal->point;
    if (point > 16 || point < -3) {
        *out++ = decimal->digits[0];
        if (len > 1) {
            *out++ = '.';
            memcpy(out, decimal->digits + 1, (size_t)len - 1);
            out += len - 1;
        }
        unsigned exponent = (unsigned)abs(point - 1) % 1000;
        snprintf(out, 6, "e%c%02u", point < 1 ? '-' : '+', exponent);
        return;
    }
    if (point <= 0) {
        memcpy(out, "0.0000", 6);
        out += 2 - point;
    }
    for (int i = 0; i < len || i < point; i++) {
        if (i == point && i > 0) *out++ = '.';
        *out++ = i < len ? decimal->digits[i] : '0';
    }
    memcpy(out, len <= point ? ".0" : "", len <= point ? 3 : 1);
}

void jinja_float_repr(double number, char *out) {
    if (isnan(number)) {
        memcpy(out, "nan", 4);
        return;
    }
    if (signbit(number)) *out++ = '-';
    if (isinf(number)) {
        memcpy(out, "inf", 4);
        return;
    }
    if (number == 0) {
        memcpy(out, "0.0", 4);
        return;
    }
    struct decimal decimal;
    decimal_shortest(fabs(number), &decimal);
    decimal_write(&decimal, out);
}

// ---- reading ----

// Reads a string as if its digits and white space were ASCII.
struct scan {
    const unsigned char *at, *end;
};

// A digit of any script, '0' to '9'. Unicode gives each script's digits in order from zero, and
// scripts that lie side by side have ten each.
static int digit_of(uint32_t c) {
    if (!jinja_char_is_decimal(c)) return '?';
    uint32_t first = c;
    while (jinja_char_is_decimal(first - 1)) first--;
    return '0' + (int)((c - first) % 10);
}

// The current character, 0 at the end. Characters that no number has come as '?', NUL too.
static int scan_peek(const struct scan *scan, size_t *size) {
    *size = 0;
    if (scan->at == scan->end) return 0;
    uint32_t c = utf8_decode(scan->at, size);
    if (c == 0) return '?';
    if (c < 0x80) return (int)c;
    return jinja_char_is_space(c) ? ' ' : digit_of(c);
}

static int peek(const struct scan *scan) {
    size_t size;
    return scan_peek(scan, &size);
}

static void advance(struct scan *scan) {
    size_t size;
    scan_peek(scan, &size);
    scan->at += size;
}

static bool accept(struct scan *scan, int lower) {
    int c = peek(scan);
    if (c != lower && !(c >= 'A' && c <= 'Z' && c + 32 == lower)) return false;
    advance(scan);
    return true;
}

static void skip_space(struct scan *scan) {
    for (;;) {
        int c = peek(scan);
        if (c != ' ' && !(c >= '\t' && c <= '\r')) return;
        advance(scan);
    }
}

// The string without the white space before it, and its sign.
static struct scan scan_start(const struct jinja_string *string, bool *is_negative) {
    const unsigned char *data = (const unsigned char *)string->data;
    struct scan scan = {data, string->len > 0 ? data + string->len : data};
    skip_space(&scan);
    *is_negative = accept(&scan, '-');
    if (!*is_negative) accept(&scan, '+');
    return scan;
}

static bool scan_ends(struct scan *scan) {
    skip_space(scan);
    return scan->at == scan->end;
}

static int digit_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

// Reads the prefix "0x", "0o" or "0b" where it agrees with the base. Base 0 becomes the prefix's.
// *has_prefix then allows an underscore before the first digit. *is_zero_only: base 0 and a leading
// zero, which only zero may have.
static void read_prefix(struct scan *scan, int *base, bool *has_prefix, bool *is_zero_only) {
    static const struct { int letter, base; } prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    *has_prefix = *is_zero_only = false;
    struct scan after = *scan;
    if (accept(&after, '0')) {
        for (size_t i = 0; i < 3 && !*has_prefix; i++) {
            if (*base != 0 && *base != prefixes[i].base) continue;
            *has_prefix = accept(&after, prefixes[i].letter);
            if (*has_prefix) *base = prefixes[i].base;
        }
        if (*has_prefix) *scan = after;
        *is_zero_only = *base == 0;
    }
    if (*base == 0) *base = 10;
}

struct magnitude {
    uint64_t value;
    size_t num_digits;
    bool too_large;
};

// Digits with single underscores between them; false: none, or an underscore astray.
static bool read_digits(struct scan *scan, int base, bool has_prefix, struct magnitude *out) {
    *out = (struct magnitude){0};
    if (has_prefix) accept(scan, '_');
    for (;;) {
        int digit = digit_value(peek(scan));
        if (digit >= base) return false;
        advance(scan);
        out->num_digits++;
        if (__builtin_mul_overflow(out->value, (uint64_t)base, &out->value) ||
            __builtin_add_overflow(out->value, (uint64_t)digit, &out->value)) {
            out->too_large = true;
            out->value = 1; // not zero, whatever follows
        }
        if (!accept(scan, '_') && digit_value(peek(scan)) >= base) return true;
    }
}

bool jinja_number_parse_int(const struct jinja_string *string, int base, int64_t *out,
                            bool *too_large) {
    enum { PYTHON_DIGITS_MAX = 4300 }; // Python refuses more, except for powers of two
    *too_large = false;
    if (base != 0 && (base < 2 || base > 36)) return false;
    bool is_negative, has_prefix, is_zero_only;
    struct scan scan = scan_start(string, &is_negative);
    read_prefix(&scan, &base, &has_prefix, &is_zero_only);
    struct magnitude magnitude;
    if (!read_digits(&scan, base, has_prefix, &magnitude) || !scan_ends(&scan)) return false;
    if (is_zero_only && magnitude.value != 0) return false;
    if ((base & (base - 1)) != 0 && magnitude.num_digits > PYTHON_DIGITS_MAX) return false;
    uint64_t limit = (uint64_t)INT64_MAX + is_negative;
    *too_large = magnitude.too_large || magnitude.value > limit;
    if (*too_large) return true;
    *out = (int64_t)(is_negative ? 0 - magnitude.value : magnitude.value);
    return true;
}

// More digits than decide any double (767), then one that stands for the rest.
enum { SIGNIFICANT_MAX = 780 };

struct mantissa {
    char digits[SIGNIFICANT_MAX + 1]; // [len]
    size_t len;
    int64_t exponent; // of the last digit
    bool has_digits, has_rest;
};

static void mantissa_put(struct mantissa *mantissa, int digit, bool is_fraction) {
    mantissa->has_digits = true;
    if (mantissa->len < SIGNIFICANT_MAX) {
        if (mantissa->len > 0 || digit != '0') mantissa->digits[mantissa->len++] = (char)digit;
        mantissa->exponent -= is_fraction;
        return;
    }
    mantissa->has_rest |= digit != '0';
    mantissa->exponent += !is_fraction;
}

// A row of digits, which may be empty, with single underscores between them.
static bool read_row(struct scan *scan, struct mantissa *mantissa, bool is_fraction) {
    bool after_underscore = false;
    for (;;) {
        int c = peek(scan);
        if (c < '0' || c > '9') return !after_underscore;
        mantissa_put(mantissa, c, is_fraction);
        advance(scan);
        after_underscore = accept(scan, '_');
    }
}

static bool read_exponent(struct scan *scan, int64_t *exponent) {
    bool is_negative = accept(scan, '-');
    if (!is_negative) accept(scan, '+');
    int c = peek(scan);
    if (c < '0' || c > '9') return false;
    int64_t value = 0;
    while (c >= '0' && c <= '9') {
        if (value < INT64_C(1000000000000)) value = value * 10 + (c - '0');
        advance(scan);
        bool after_underscore = accept(scan, '_');
        c = peek(scan);
        if (after_underscore && (c < '0' || c > '9')) return false;
    }
    *exponent += is_negative ? -value : value;
    return true;
}

static double mantissa_value(struct mantissa *mantissa) {
    char text[SIGNIFICANT_MAX + 32];
    if (mantissa->len == 0) return 0;
    int64_t exponent = mantissa->exponent;
    if (mantissa->has_rest) {
        mantissa->digits[mantissa->len++] = '1';
        exponent--;
    }
    // Past these the value is 0 or infinite whatever the digits are.
    if (exponent > 5000) exponent = 5000;
    if (exponent < -5000) exponent = -5000;
    snprintf(text, sizeof text, "%.*se%d", (int)mantissa->len, mantissa->digits, (int)exponent);
    return c_locale_strtod(text, NULL);
}

static bool accept_word(struct scan *scan, const char *word) {
    struct scan after = *scan;
    for (; *word != '\0'; word++) {
        if (!accept(&after, *word)) return false;
    }
    *scan = after;
    return true;
}

bool jinja_number_parse_float(const struct jinja_string *string, double *out) {
    bool is_negative;
    struct scan scan = scan_start(string, &is_negative);
    double number;
    if (accept_word(&scan, "inf")) {
        accept_word(&scan, "inity");
        number = (double)INFINITY;
    } else if (accept_word(&scan, "nan")) {
        number = (double)NAN;
    } else {
        struct mantissa mantissa = {.len = 0};
        if (!read_row(&scan, &mantissa, false)) return false;
        if (accept(&scan, '.') && !read_row(&scan, &mantissa, true)) return false;
        if (!mantissa.has_digits) return false;
        if (accept(&scan, 'e') && !read_exponent(&scan, &mantissa.exponent)) return false;
        number = mantissa_value(&mantissa);
    }
    if (!scan_ends(&scan)) return false;
    *out = is_negative ? -number : number;
    return true;
}

double jinja_number_of_big(const struct jinja_string *digits) {
    double number = 0;
    (void)jinja_number_parse_float(digits, &number); // they are a number
    return number;
}
