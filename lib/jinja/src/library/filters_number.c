/* Filters on numbers: abs, int, float, round.
 *
 * A result that Python would give as an integer of more than 64 bits is an error: it is never
 * wrapped or rounded. printf's digits are exact, so that rounding decimals through them is
 * correct. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/numbers.h"

static enum status filter_abs(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_args_bind(run, "abs", args, NULL, 0, 0, NULL);
    if (status) return status;
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type == JINJA_BOOL) {
        *out = jinja_value_int(value.boolean);
    } else if (value.type == JINJA_FLOAT) {
        *out = jinja_value_float(fabs(value.number));
    } else if (value.type == JINJA_INT) {
        if (value.integer == INT64_MIN) return jinja_run_fail(run, "integer result is too large");
        *out = jinja_value_int(value.integer < 0 ? -value.integer : value.integer);
    } else if (value.type == JINJA_BIG_INT) {
        size_t sign = value.string->data[0] == '-';
        status = jinja_value_string_borrow(run, value.string->data + sign, value.string->len - sign,
                                           out);
        if (!status) out->type = JINJA_BIG_INT;
        return status;
    } else {
        return jinja_run_fail(run, "bad operand type for abs(): '%s'",
                              jinja_value_type_name(value));
    }
    return OK;
}

// The integer of a text that int() refuses. One that float() reads ("42.9") is cut to an integer,
// any other gives the default.
static enum status int_of_text(struct jinja_run *run, const struct jinja_string *string,
                               struct jinja_value default_value, struct jinja_value *out) {
    double number;
    if (!jinja_number_parse_float(string, &number) || !isfinite(number)) {
        *out = default_value;
        return OK;
    }
    int64_t integer;
    enum status status = jinja_number_truncate(run, number, &integer);
    if (!status) *out = jinja_value_int(integer);
    return status;
}

static enum status filter_int(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {jinja_value_int(0), jinja_value_int(10)};
    enum status status =
        jinja_args_bind(run, "int", args, (const char *[]){"default", "base"}, 2, 0, values);
    if (status) return status;
    int64_t integer = 0;
    switch (value.type) {
    case JINJA_UNDEFINED:
        return jinja_run_fail_undefined(run, value);
    case JINJA_INT:
    case JINJA_BIG_INT:
        *out = value;
        return OK;
    case JINJA_BOOL:
        *out = jinja_value_int(value.boolean);
        return OK;
    case JINJA_FLOAT:
        if (isnan(value.number)) {
            *out = values[0];
            return OK;
        }
        status = jinja_number_truncate(run, value.number, &integer);
        if (!status) *out = jinja_value_int(integer);
        return status;
    case JINJA_STRING:
        break;
    default:
        *out = values[0];
        return OK;
    }
    int64_t base = values[1].type == JINJA_BOOL ? values[1].boolean : values[1].integer;
    bool is_base = (values[1].type == JINJA_INT || values[1].type == JINJA_BOOL) &&
                   (base == 0 || (base >= 2 && base <= 36));
    bool too_large = false;
    status = jinja_run_pay(run, 1 + value.string->len / 16);
    if (status) return status;
    bool is_read = is_base && jinja_number_parse_int(value.string, (int)base, &integer, &too_large);
    if (too_large) return jinja_run_fail(run, "integer result is too large");
    if (is_read) {
        *out = jinja_value_int(integer);
        return OK;
    }
    return int_of_text(run, value.string, values[0], out);
}

static enum status filter_float(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value default_value = jinja_value_float(0.0);
    enum status status =
        jinja_args_bind(run, "float", args, (const char *[]){"default"}, 1, 0, &default_value);
    if (status) return status;
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    double number;
    bool is_read = jinja_number_of(value, &number);
    if (value.type == JINJA_BIG_INT) {
        number = jinja_number_of_big(value.string);
        is_read = isfinite(number);
    }
    if (value.type == JINJA_STRING) {
        status = jinja_run_pay(run, 1 + value.string->len / 16);
        is_read = jinja_number_parse_float(value.string, &number);
    }
    if (!status) *out = is_read ? jinja_value_float(number) : default_value;
    return status;
}

// ---- round ----

enum { EXACT_MAX = 1500 }; // bytes of any double's exact decimal expansion and more

// To the nearest of 10^-digits, ties to even, from the exact value: what CPython's round() does.
static double round_decimal(double number, int64_t digits) {
    char exact[EXACT_MAX];
    if (digits > 323 || !isfinite(number)) return number;
    if (digits < -308) return 0.0 * number;
    if (digits >= 0) {
        c_locale_snprintf(exact, sizeof exact, "%.*f", (int)digits, number);
        return c_locale_strtod(exact, NULL);
    }
    // Left of the point: cut the exact integer part and look at what was cut.
    c_locale_snprintf(exact, sizeof exact, "%.1074f", fabs(number));
    size_t cut = (size_t)-digits, len = strcspn(exact, ".");
    if (cut > len) return 0.0 * number;
    char first = exact[len - cut];
    bool is_tie =
        first == '5' && strspn(exact + len - cut + 1, "0.") == strlen(exact) - len + cut - 1;
    bool is_odd = cut < len && (exact[len - cut - 1] - '0') % 2;
    bool up = first > '5' || (first == '5' && (!is_tie || is_odd));
    char kept[EXACT_MAX];
    size_t at = 1; // a leading zero takes the carry
    kept[0] = '0';
    memcpy(kept + at, exact, len - cut);
    at += len - cut;
    for (size_t i = at; up; i--) {
        up = kept[i - 1] == '9';
        kept[i - 1] = up ? '0' : (char)(kept[i - 1] + 1);
    }
    snprintf(kept + at, sizeof kept - at, "e%zu", cut);
    return copysign(c_locale_strtod(kept, NULL), number);
}

static enum status round_int(struct jinja_run *run, int64_t integer, int64_t digits,
                             struct jinja_value *out) {
    if (digits >= 0) {
        *out = jinja_value_int(integer);
        return OK;
    }
    bool rounds_up_to_19 = integer > 5000000000000000000 || integer < -5000000000000000000;
    if (digits < -18) {
        if (digits == -19 && rounds_up_to_19)
            return jinja_run_fail(run, "integer result is too large");
        *out = jinja_value_int(0);
        return OK;
    }
    int64_t unit = 1;
    for (int64_t i = 0; i > digits; i--) unit *= 10;
    int64_t quotient = integer / unit, rest = integer % unit;
    int64_t twice = rest < 0 ? -2 * rest : 2 * rest;
    if (twice > unit || (twice == unit && quotient % 2 != 0)) quotient += integer < 0 ? -1 : 1;
    int64_t rounded;
    if (__builtin_mul_overflow(quotient, unit, &rounded))
        return jinja_run_fail(run, "integer result is too large");
    *out = jinja_value_int(rounded);
    return OK;
}

static enum status round_common(struct jinja_run *run, struct jinja_value value,
                                struct jinja_value precision, struct jinja_value *out) {
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    double number;
    if (!jinja_number_of(value, &number))
        return jinja_run_fail(run, "type %s doesn't define __round__ method",
                              jinja_value_type_name(value));
    int64_t digits = 0;
    if (precision.type == JINJA_NONE) {
        int64_t integer = value.type == JINJA_BOOL ? value.boolean : value.integer;
        enum status status = OK;
        if (value.type == JINJA_FLOAT) status = jinja_number_truncate(run, rint(number), &integer);
        if (!status) *out = jinja_value_int(integer);
        return status;
    }
    enum status status = jinja_args_int(run, "round", "precision", precision, &digits);
    bool is_long = digits < 0 || fabs(number) >= 1e22; // the exact expansion
    if (!status) status = jinja_run_pay(run, is_long ? 64 : 8);
    if (status) return status;
    if (value.type == JINJA_BOOL) return round_int(run, value.boolean, digits, out);
    if (value.type == JINJA_INT) return round_int(run, value.integer, digits, out);
    double rounded = round_decimal(number, digits);
    if (isinf(rounded) && !isinf(number))
        return jinja_run_fail(run, "rounded value too large to represent");
    *out = jinja_value_float(rounded);
    return OK;
}

// ceil(value * 10**precision) / 10**precision.
static enum status round_directed(struct jinja_run *run, struct jinja_value value,
                                  struct jinja_value precision, bool up, struct jinja_value *out) {
    struct jinja_value scale, scaled;
    enum status status =
        jinja_run_binary(run, JINJA_OP_POW, jinja_value_int(10), precision, &scale);
    if (!status) status = jinja_run_binary(run, JINJA_OP_MUL, value, scale, &scaled);
    if (status) return status;
    double number;
    if (!jinja_number_of(scaled, &number))
        return jinja_run_fail(run, "must be real number, not %s", jinja_value_type_name(scaled));
    if (scaled.type == JINJA_FLOAT) {
        if (!isfinite(number))
            return jinja_run_fail(run, "cannot convert float %s to integer",
                                  isnan(number) ? "NaN" : "infinity");
        // Python's ceil and floor give integers, which have no negative zero.
        scaled = jinja_value_float((up ? ceil(number) : floor(number)) + 0.0);
    }
    return jinja_run_binary(run, JINJA_OP_DIV, scaled, scale, out);
}

static enum status filter_round(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_value values[2] = {jinja_value_int(0)};
    enum status status = jinja_value_string_borrow(run, "common", 6, &values[1]);
    if (!status)
        status = jinja_args_bind(run, "round", args, (const char *[]){"precision", "method"}, 2, 0,
                                 values);
    if (status) return status;
    const struct jinja_string *method = values[1].type == JINJA_STRING ? values[1].string : NULL;
    if (method && jinja_string_is(method, "common"))
        return round_common(run, value, values[0], out);
    if (method && jinja_string_is(method, "ceil"))
        return round_directed(run, value, values[0], true, out);
    if (method && jinja_string_is(method, "floor"))
        return round_directed(run, value, values[0], false, out);
    return jinja_run_fail(run, "method must be common, ceil or floor");
}

const struct jinja_filter jinja_filters_number[] = {
    {"abs", filter_abs}, {"float", filter_float}, {"int", filter_int}, {"round", filter_round}, {0},
};
