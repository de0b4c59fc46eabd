/* Decimal numbers of any size: limits of numbers, exactly as the schema writes them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/c_locale.h"
#include "structured/schema/schema_internal.h"

enum { NUMBER_TEXT_MAX = 64 };

// The shortest digits that read back as the same double.
static void print_real(double value, char out[NUMBER_TEXT_MAX]) {
    for (int precision = 15; precision <= 17; precision++) {
        c_locale_snprintf(out, NUMBER_TEXT_MAX, "%.*e", precision - 1, value);
        double again = c_locale_strtod(out, NULL);
        if (again >= value && again <= value) return;
    }
}

// [+-]DIGITS[.DIGITS][eEXPONENT]
static bool parse(struct schema_reader *reader, const char *text, struct schema_decimal *out) {
    char *digits = schema_alloc(reader, strlen(text) + 1);
    if (!digits) return false;
    *out = (struct schema_decimal){.negative = *text == '-', .digits = digits};
    size_t count = 0;
    int32_t exponent = 0;
    bool in_fraction = false;
    text += *text == '-';
    for (; c_locale_is_digit(*text) || *text == '.'; text++) {
        if (*text == '.') {
            in_fraction = true;
            continue;
        }
        if (!count && *text == '0') {
            exponent -= in_fraction;
            continue;
        }
        digits[count++] = *text;
        exponent += !in_fraction;
    }
    while (count && digits[count - 1] == '0') count--;
    if (*text == 'e') exponent += (int32_t)strtol(text + 1, NULL, 10);
    out->exponent = count ? exponent : 0;
    out->negative &= count > 0;
    out->num_digits = (uint32_t)count;
    return true;
}

bool schema_decimal_read(struct schema_reader *reader, const json_t *value,
                         struct schema_decimal *out) {
    const char *big = jread_big_integer(value);
    if (big) return parse(reader, big, out);
    char text[NUMBER_TEXT_MAX];
    if (json_is_integer(value)) {
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    } else {
        print_real(json_real_value(value), text);
    }
    return parse(reader, text, out);
}

static int compare_magnitudes(const struct schema_decimal *a, const struct schema_decimal *b) {
    if (!a->num_digits || !b->num_digits) return (a->num_digits > 0) - (b->num_digits > 0);
    if (a->exponent != b->exponent) return a->exponent < b->exponent ? -1 : 1;
    size_t common = a->num_digits < b->num_digits ? a->num_digits : b->num_digits;
    int order = memcmp(a->digits, b->digits, common);
    if (order) return order < 0 ? -1 : 1;
    return (a->num_digits > b->num_digits) - (a->num_digits < b->num_digits);
}

int schema_decimal_compare(const struct schema_decimal *a, const struct schema_decimal *b) {
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    int order = compare_magnitudes(a, b);
    return a->negative ? -order : order;
}

const char *schema_decimal_text(struct schema_reader *reader, const struct schema_decimal *value,
                                size_t *len) {
    size_t exponent = (size_t)abs(value->exponent);
    char *text = schema_alloc(reader, value->num_digits + exponent + 4);
    *len = 0;
    if (!text) return "";
    char *out = text;
    if (value->negative) *out++ = '-';
    if (value->exponent <= 0) *out++ = '0';
    for (int32_t i = 0; i < value->exponent; i++) {
        *out++ = (uint32_t)i < value->num_digits ? value->digits[i] : '0';
    }
    if ((int64_t)value->num_digits > value->exponent) {
        *out++ = '.';
        for (int32_t i = value->exponent; i < 0; i++) *out++ = '0';
        uint32_t from = value->exponent > 0 ? (uint32_t)value->exponent : 0;
        memcpy(out, value->digits + from, value->num_digits - from);
        out += value->num_digits - from;
    }
    *out = '\0';
    *len = (size_t)(out - text);
    return text;
}

void schema_limit_number(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *value, bool is_upper, bool exclusive) {
    struct schema_decimal *number = schema_alloc(reader, sizeof *number);
    if (!number || !schema_decimal_read(reader, value, number)) return;
    struct schema_bound *bound = is_upper ? &branch->upper : &branch->lower;
    int order = bound->value ? schema_decimal_compare(number, bound->value) : 0;
    bool is_tighter = !bound->value || (is_upper ? order < 0 : order > 0);
    if (is_tighter) *bound = (struct schema_bound){number, exclusive};
    if (bound->value && !is_tighter && order == 0) bound->exclusive |= exclusive;
    if (!branch->lower.value || !branch->upper.value) return;
    order = schema_decimal_compare(branch->lower.value, branch->upper.value);
    bool is_open = branch->lower.exclusive || branch->upper.exclusive;
    if (order > 0 || (order == 0 && is_open)) branch->types &= ~(unsigned)SCHEMA_NUMBER;
}
