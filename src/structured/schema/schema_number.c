/* Numbers: limits and multiples as expressions over digits.
 *
 * A number with limits has no exponent, except in two forms that are surely inside: 2.5e-7 where
 * all of [0, 1] is allowed, and 2.5e7 where there is no upper limit. A multiple is read digit by
 * digit; the state is the remainder. */
#include <string.h>

#include "base/compiler.h"
#include "structured/schema/schema_internal.h"

enum {
    DIGITS_MAX = 15, // of multiples whose divisor has other factors than 2 and 5
    DIVISOR_MAX = 1024, // without its factors of 10
    GUARD_DIGITS = 15, // a double tells numbers apart that differ in one of these
};

// ---- small parts ----

static uint32_t digit_range(struct exprs *exprs, char first, char last) {
    if (first > last) return EXPR_NOTHING;
    return expr_byte_range(exprs, (unsigned char)first, (unsigned char)last);
}

static uint32_t digits(struct exprs *exprs, uint32_t min, uint32_t max) {
    return expr_repeat(exprs, digit_range(exprs, '0', '9'), min, max);
}

static uint32_t zeros(struct exprs *exprs, uint32_t min) {
    return expr_repeat(exprs, digit_range(exprs, '0', '0'), min, EXPR_FOREVER);
}

static uint32_t join(struct exprs *exprs, uint32_t a, uint32_t b) {
    return expr_concat(exprs, a, b);
}

static uint32_t dot(struct exprs *exprs, uint32_t rest) {
    return join(exprs, expr_string(exprs, "."), rest);
}

// A fraction that is not zero; after the point. Not so small that a double would be zero.
static uint32_t nonzero_digits(struct exprs *exprs) {
    uint32_t rest = join(exprs, digit_range(exprs, '1', '9'), digits(exprs, 0, EXPR_FOREVER));
    return join(exprs, expr_repeat(exprs, digit_range(exprs, '0', '0'), 0, 290), rest);
}

static uint32_t whole(struct exprs *exprs) { // 0, or without a leading zero
    return expr_alt(exprs, digit_range(exprs, '0', '0'),
                    join(exprs, digit_range(exprs, '1', '9'), digits(exprs, 0, EXPR_FOREVER)));
}

static uint32_t any_fraction(struct exprs *exprs) {
    return expr_optional(exprs, dot(exprs, digits(exprs, 1, EXPR_FOREVER)));
}

static uint32_t power_of_ten(struct exprs *exprs, uint32_t sign, uint32_t size) {
    static const uint64_t letters[4] = {0, 1ull << ('e' - 64) | 1ull << ('E' - 64)};
    return join(exprs, expr_byte_set(exprs, letters), join(exprs, sign, size));
}

// Up to 305.
static uint32_t exponent(struct exprs *exprs, uint32_t sign) {
    uint32_t large = join(exprs, digit_range(exprs, '1', '2'), digits(exprs, 2, 2));
    uint32_t largest = join(exprs, expr_string(exprs, "30"), digit_range(exprs, '0', '5'));
    uint32_t size = expr_alt(exprs, digits(exprs, 1, 2), expr_alt(exprs, large, largest));
    return power_of_ten(exprs, sign, size);
}

// A number without limits: 12345.5e-2, and 123e305, but not 1234e305, which is beyond all doubles.
// Only a number with more than 200 digits can be beyond them too.
static uint32_t any_number(struct exprs *exprs) {
    uint32_t signs = expr_alt(exprs, expr_string(exprs, "+"), expr_string(exprs, "-"));
    signs = expr_optional(exprs, signs);
    uint32_t lead = join(exprs, digit_range(exprs, '1', '9'), digits(exprs, 0, 2));
    lead = expr_alt(exprs, digit_range(exprs, '0', '0'), lead);
    uint32_t large = join(exprs, any_fraction(exprs), exponent(exprs, signs));
    uint32_t small = expr_optional(exprs, power_of_ten(exprs, signs, digits(exprs, 1, 2)));
    small = join(exprs, whole(exprs), join(exprs, any_fraction(exprs), small));
    uint32_t all = expr_alt(exprs, small, join(exprs, lead, large));
    return join(exprs, expr_optional(exprs, expr_string(exprs, "-")), all);
}

// ---- limits of magnitudes ----

// The parts of a magnitude's text: 12.5 is "12" and "5".
struct parts {
    const char *whole; // [whole_len], "0" at least
    size_t whole_len;
    const char *fraction; // [fraction_len], no zero at the end
    size_t fraction_len;
    bool is_integer; // texts have no fraction
    bool exclusive;
};

// What follows a whole part that is equal to the limit's. At least: the fraction is not smaller.
static uint32_t fraction_at_least(struct exprs *exprs, const struct parts *parts) {
    if (parts->is_integer) {
        return parts->fraction_len || parts->exclusive ? EXPR_NOTHING : EXPR_EPSILON;
    }
    if (!parts->fraction_len) {
        return parts->exclusive ? dot(exprs, nonzero_digits(exprs)) : any_fraction(exprs);
    }
    uint32_t any = digits(exprs, 0, EXPR_FOREVER);
    uint32_t rest = parts->exclusive ? nonzero_digits(exprs) : any;
    for (size_t i = parts->fraction_len; i-- > 0;) {
        char digit = parts->fraction[i];
        uint32_t larger = join(exprs, digit_range(exprs, (char)(digit + 1), '9'), any);
        rest = expr_alt(exprs, larger, join(exprs, digit_range(exprs, digit, digit), rest));
    }
    return dot(exprs, rest);
}

static uint32_t fraction_at_most(struct exprs *exprs, const struct parts *parts) {
    if (parts->is_integer) {
        return !parts->fraction_len && parts->exclusive ? EXPR_NOTHING : EXPR_EPSILON;
    }
    if (!parts->fraction_len) {
        if (parts->exclusive) return EXPR_NOTHING;
        return expr_optional(exprs, dot(exprs, zeros(exprs, 1)));
    }
    uint32_t any = digits(exprs, 0, EXPR_FOREVER);
    uint32_t rest = parts->exclusive ? EXPR_NOTHING : zeros(exprs, 0);
    for (size_t i = parts->fraction_len; i-- > 0;) {
        char digit = parts->fraction[i];
        uint32_t smaller = join(exprs, digit_range(exprs, '0', (char)(digit - 1)), any);
        rest = expr_alt(exprs, smaller, join(exprs, digit_range(exprs, digit, digit), rest));
        if (i) rest = expr_optional(exprs, rest); // a shorter fraction is smaller
    }
    return expr_optional(exprs, dot(exprs, rest));
}

static uint32_t at_least(struct exprs *exprs, const struct parts *parts) {
    uint32_t tail = parts->is_integer ? EXPR_EPSILON : any_fraction(exprs);
    uint32_t rest = fraction_at_least(exprs, parts);
    size_t len = parts->whole_len;
    for (size_t i = len; i-- > 0;) {
        char digit = parts->whole[i];
        uint32_t more = digits(exprs, (uint32_t)(len - i - 1), (uint32_t)(len - i - 1));
        uint32_t larger = join(exprs, digit_range(exprs, (char)(digit + 1), '9'), more);
        rest = expr_alt(exprs, join(exprs, larger, tail),
                        join(exprs, digit_range(exprs, digit, digit), rest));
    }
    uint32_t longer =
        join(exprs, digit_range(exprs, '1', '9'), digits(exprs, (uint32_t)len, EXPR_FOREVER));
    return expr_alt(exprs, rest, join(exprs, longer, tail));
}

static uint32_t at_most(struct exprs *exprs, const struct parts *parts) {
    uint32_t tail = parts->is_integer ? EXPR_EPSILON : any_fraction(exprs);
    uint32_t rest = fraction_at_most(exprs, parts);
    size_t len = parts->whole_len;
    for (size_t i = len; i-- > 0;) {
        char digit = parts->whole[i], first = i == 0 && len > 1 ? '1' : '0';
        uint32_t more = digits(exprs, (uint32_t)(len - i - 1), (uint32_t)(len - i - 1));
        uint32_t smaller = join(exprs, digit_range(exprs, first, (char)(digit - 1)), more);
        rest = expr_alt(exprs, join(exprs, smaller, tail),
                        join(exprs, digit_range(exprs, digit, digit), rest));
    }
    if (len == 1) return rest;
    uint32_t shorter =
        join(exprs, digit_range(exprs, '1', '9'), digits(exprs, 0, (uint32_t)(len - 2)));
    shorter = expr_alt(exprs, digit_range(exprs, '0', '0'), shorter);
    return expr_alt(exprs, rest, join(exprs, shorter, tail));
}

// One unit beyond the first GUARD_DIGITS digits, away from or towards zero: a double that differs
// from the limit in a later digit may be equal to it.
static struct schema_decimal next_decimal(struct schema_reader *reader,
                                          const struct schema_decimal *limit, bool away) {
    struct schema_decimal next = *limit;
    char *text = schema_alloc(reader, GUARD_DIGITS + 1);
    if (!text || limit->num_digits > GUARD_DIGITS) return next;
    text[0] = '0'; // for a carry
    memset(text + 1, '0', GUARD_DIGITS);
    memcpy(text + 1, limit->digits, limit->num_digits);
    size_t i = GUARD_DIGITS;
    while (text[i] == (away ? '9' : '0')) text[i--] = away ? '0' : '9';
    text[i] = (char)(text[i] + (away ? 1 : -1));
    next.digits = text + 1;
    next.num_digits = GUARD_DIGITS;
    if (text[0] == '1') {
        next.digits = text;
        next.exponent++;
    }
    for (; next.num_digits && *next.digits == '0'; next.num_digits--) {
        next.digits++;
        next.exponent--;
    }
    while (next.num_digits && next.digits[next.num_digits - 1] == '0') next.num_digits--;
    return next;
}

// The magnitudes on the inner side of a limit other than 0.
static uint32_t limit_magnitude(struct schema_reader *reader, const struct schema_bound *bound,
                                bool is_minimum, bool is_integer) {
    struct schema_decimal limit = *bound->value;
    limit.negative = false;
    struct parts parts = {.is_integer = is_integer, .exclusive = bound->exclusive};
    if (parts.exclusive && !is_integer && limit.num_digits <= GUARD_DIGITS) {
        limit = next_decimal(reader, &limit, is_minimum);
        parts.exclusive = false;
    }
    size_t len;
    const char *text = schema_decimal_text(reader, &limit, &len);
    const char *point = memchr(text, '.', len);
    parts.whole = text;
    parts.whole_len = point ? (size_t)(point - text) : len;
    parts.fraction = point ? point + 1 : "";
    parts.fraction_len = point ? len - parts.whole_len - 1 : 0;
    if (!len) return EXPR_NOTHING;
    return is_minimum ? at_least(reader->exprs, &parts) : at_most(reader->exprs, &parts);
}

static int sign_of(const struct schema_bound *bound) {
    if (!bound->value->num_digits) return 0;
    return bound->value->negative ? -1 : 1;
}

// The magnitudes of the numbers of one sign; `inner` is the limit nearer to minus infinity for
// positive numbers.
static uint32_t limit_sign(struct schema_reader *reader, const struct schema_bound *inner,
                           const struct schema_bound *outer, int sign, bool is_integer) {
    struct exprs *exprs = reader->exprs;
    uint32_t all = join(exprs, whole(exprs), is_integer ? EXPR_EPSILON : any_fraction(exprs));
    int outer_sign = outer->value ? sign * sign_of(outer) : 1;
    int inner_sign = inner->value ? sign * sign_of(inner) : -1;
    if (outer_sign < 0) return EXPR_NOTHING;
    if (outer_sign == 0) { // zero alone, written without a sign
        if (outer->exclusive || sign < 0) return EXPR_NOTHING;
        uint32_t none = is_integer ? EXPR_EPSILON : zeros(exprs, 1);
        none = is_integer ? none : expr_optional(exprs, dot(exprs, none));
        all = join(exprs, digit_range(exprs, '0', '0'), none);
    } else if (outer->value) {
        all = limit_magnitude(reader, outer, false, is_integer);
    }
    if (inner_sign > 0) {
        all = expr_and(exprs, all, limit_magnitude(reader, inner, true, is_integer));
    } else if (inner_sign == 0 && (inner->exclusive || sign < 0)) { // not zero
        uint32_t large = join(exprs, digit_range(exprs, '1', '9'),
                              join(exprs, digits(exprs, 0, EXPR_FOREVER),
                                   is_integer ? EXPR_EPSILON : any_fraction(exprs)));
        uint32_t small = join(exprs, expr_string(exprs, "0."), nonzero_digits(exprs));
        all = expr_and(exprs, all, is_integer ? large : expr_alt(exprs, large, small));
    }
    return all;
}

// Whether all numbers from 0 up to 1, or down to -1, are inside the limit.
static bool reaches_one(const struct schema_bound *outer, bool negative) {
    if (!outer->value) return true;
    const struct schema_decimal one = {negative, 1, 1, "1"};
    int order = schema_decimal_compare(outer->value, &one);
    return negative ? order <= 0 : order >= 0;
}

// Numbers with exponents that are surely inside the limits of one sign.
static uint32_t with_exponent(struct schema_reader *reader, const struct schema_bound *inner,
                              const struct schema_bound *outer, bool negative) {
    struct exprs *exprs = reader->exprs;
    uint32_t mantissa = join(exprs, digit_range(exprs, '1', '9'), any_fraction(exprs));
    int sign = negative ? -1 : 1;
    int inner_sign = inner->value ? sign * sign_of(inner) : -1;
    uint32_t found = EXPR_NOTHING;
    if (inner_sign <= 0 && reaches_one(outer, negative)) {
        static const uint64_t letters[4] = {0, 1ull << ('e' - 64) | 1ull << ('E' - 64)};
        uint32_t power = join(exprs, expr_repeat(exprs, digit_range(exprs, '0', '0'), 0, 1),
                              digit_range(exprs, '1', '9'));
        power =
            expr_alt(exprs, power, join(exprs, digit_range(exprs, '1', '9'), digits(exprs, 1, 1)));
        power = join(exprs, expr_string(exprs, "-"), power);
        power = join(exprs, expr_byte_set(exprs, letters), power);
        found = join(exprs, mantissa, power);
    }
    if (inner_sign <= 0 && !outer->value) {
        uint32_t plus = expr_optional(exprs, expr_string(exprs, "+"));
        found = expr_alt(exprs, found, join(exprs, mantissa, exponent(exprs, plus)));
    }
    return found;
}

// ---- multiples ----

struct multiple {
    struct exprs *exprs;
    uint32_t divisor; // without factors of 10
    uint32_t num_zeros; // that follow a multiple of `divisor`
    uint32_t num_decimals; // digits behind the point that count
    bool is_integer; // texts have no fraction
    uint32_t
        *memo; // [DIGITS_MAX + 1][divisor], by digits that may follow and remainder; 0: unknown
    uint32_t *decimals; // the same by digits that count behind the point, [num_decimals + 1]
};

static uint32_t zero_fraction(const struct multiple *m) {
    if (m->is_integer) return EXPR_EPSILON;
    return expr_optional(m->exprs, dot(m->exprs, zeros(m->exprs, 1)));
}

// The digits behind the point; `left` of them count.
static uint32_t decimals(const struct multiple *m, uint32_t remainder, uint32_t left, bool first) {
    uint32_t *known = &m->decimals[left * m->divisor + remainder], all = EXPR_NOTHING;
    if (!first && *known) return *known - 1;
    uint32_t power = 1 % m->divisor;
    for (uint32_t i = 0; i < left; i++) power = power * 10 % m->divisor;
    bool may_end = remainder * power % m->divisor == 0;
    if (!left) return may_end ? zeros(m->exprs, 0) : EXPR_NOTHING;
    for (uint32_t digit = 0; digit < 10; digit++) {
        uint32_t rest = decimals(m, (remainder * 10 + digit) % m->divisor, left - 1, false);
        char c = (char)('0' + digit);
        all = expr_alt(m->exprs, all, join(m->exprs, digit_range(m->exprs, c, c), rest));
    }
    if (first) return all; // at least one digit
    if (may_end) all = expr_optional(m->exprs, all);
    *known = all + 1;
    return all;
}

// What may follow the last digit of a whole part with this remainder.
static uint32_t end_of_whole(const struct multiple *m, uint32_t remainder) {
    struct exprs *exprs = m->exprs;
    if (!m->num_decimals) {
        if (remainder) return EXPR_NOTHING;
        uint32_t tail =
            expr_repeat(exprs, digit_range(exprs, '0', '0'), m->num_zeros, m->num_zeros);
        return join(exprs, tail, zero_fraction(m));
    }
    uint32_t power = 1 % m->divisor;
    for (uint32_t i = 0; i < m->num_decimals; i++) power = power * 10 % m->divisor;
    uint32_t bare = remainder * power % m->divisor == 0 ? EXPR_EPSILON : EXPR_NOTHING;
    if (m->is_integer) return bare;
    return expr_alt(exprs, bare, dot(exprs, decimals(m, remainder, m->num_decimals, true)));
}

// Up to `left` digits (exactly as many, if `exact`) behind a number with this remainder.
static uint32_t more_digits(struct multiple *m, uint32_t remainder, uint32_t left, bool exact) {
    uint32_t *known = &m->memo[left * m->divisor + remainder];
    if (*known) return *known - 1;
    uint32_t all = exact && left ? EXPR_NOTHING : end_of_whole(m, remainder);
    for (uint32_t digit = 0; left && digit < 10; digit++) {
        uint32_t rest = more_digits(m, (remainder * 10 + digit) % m->divisor, left - 1, exact);
        char c = (char)('0' + digit);
        all = expr_alt(m->exprs, all, join(m->exprs, digit_range(m->exprs, c, c), rest));
    }
    *known = all + 1;
    return all;
}

// Magnitudes that are multiples. `*is_exact` is false where only DIGITS_MAX digits are read.
static uint32_t multiple_magnitude(struct schema_reader *reader, struct multiple *m,
                                   bool *is_exact) {
    struct exprs *exprs = m->exprs;
    uint32_t rest = m->divisor, num_last = 0; // the last digits decide, for factors of 2 and 5
    for (; rest % 2 == 0 || rest % 5 == 0; num_last++) {
        if (rest % 2 == 0) rest /= 2;
        if (rest % 5 == 0) rest /= 5;
    }
    *is_exact = rest == 1;
    size_t memo_bytes = (DIGITS_MAX + 1) * m->divisor * sizeof *m->memo;
    size_t decimals_bytes = (m->num_decimals + 1) * m->divisor * sizeof *m->decimals;
    m->decimals = schema_alloc(reader, decimals_bytes);
    if (!m->decimals) return EXPR_NOTHING;
    memset(m->decimals, 0, decimals_bytes);
    uint32_t zero = join(exprs, digit_range(exprs, '0', '0'), zero_fraction(m));
    if (m->num_decimals) {
        zero = join(exprs, digit_range(exprs, '0', '0'), end_of_whole(m, 0));
    }
    uint32_t *memos = schema_alloc(reader, 2 * memo_bytes);
    if (!memos) return EXPR_NOTHING;
    memset(memos, 0, 2 * memo_bytes);
    uint32_t all = zero;
    uint32_t limit = *is_exact ? (num_last ? num_last - 1 : 0) : DIGITS_MAX - 1;
    for (uint32_t digit = 1; digit < 10; digit++) {
        m->memo = memos;
        uint32_t tail = more_digits(m, digit % m->divisor, limit, false);
        char c = (char)('0' + digit);
        all = expr_alt(exprs, all, join(exprs, digit_range(exprs, c, c), tail));
    }
    if (!*is_exact) return all;
    m->memo = (uint32_t *)((char *)memos + memo_bytes);
    uint32_t last = join(exprs, digits(exprs, 0, EXPR_FOREVER), more_digits(m, 0, num_last, true));
    return expr_alt(exprs, all, join(exprs, digit_range(exprs, '1', '9'), last));
}

static uint32_t multiple_expr(struct schema_reader *reader, const struct schema_decimal *step,
                              bool is_integer, bool *is_exact) {
    struct multiple m = {.exprs = reader->exprs, .is_integer = is_integer};
    uint64_t divisor = 0;
    for (uint32_t i = 0; i < step->num_digits && divisor <= DIVISOR_MAX; i++) {
        divisor = divisor * 10 + (uint64_t)(step->digits[i] - '0');
    }
    int64_t scale = (int64_t)step->exponent - step->num_digits;
    *is_exact = true;
    if (divisor > DIVISOR_MAX || scale > 300 || scale < -12) {
        size_t len;
        const char *text = schema_decimal_text(reader, step, &len);
        schema_refuse(reader, schema_say(reader, reader->refs.root,
                                         "keyword \"multipleOf\" cannot be enforced: %.40s", text));
        return EXPR_NOTHING;
    }
    m.divisor = (uint32_t)divisor;
    m.num_zeros = scale > 0 ? (uint32_t)scale : 0;
    m.num_decimals = scale < 0 ? (uint32_t)-scale : 0;
    uint32_t magnitude = multiple_magnitude(reader, &m, is_exact);
    return join(m.exprs, expr_optional(m.exprs, expr_string(m.exprs, "-")), magnitude);
}

// ---- all together ----

static uint32_t excluded_number(struct schema_reader *reader, const json_t *value) {
    struct exprs *exprs = reader->exprs;
    struct schema_decimal number;
    if (!schema_decimal_read(reader, value, &number)) return EXPR_NOTHING;
    size_t len;
    const char *text = schema_decimal_text(reader, &number, &len);
    uint32_t expr = expr_literal(exprs, text, len);
    bool has_point = memchr(text, '.', len) != NULL;
    uint32_t tail = has_point ? zeros(exprs, 0) : expr_optional(exprs, dot(exprs, zeros(exprs, 1)));
    uint32_t sign = EXPR_EPSILON;
    if (!number.num_digits) sign = expr_optional(exprs, expr_string(exprs, "-"));
    return join(exprs, sign, join(exprs, expr, tail));
}

static uint32_t apply_lists(struct schema_reader *reader, const struct schema_branch *branch,
                            uint32_t expr, bool is_integer) {
    struct exprs *exprs = reader->exprs;
    bool is_exact;
    for (const struct schema_decimals *at = branch->multiples; at; at = at->next) {
        expr = expr_and(exprs, expr, multiple_expr(reader, &at->value, is_integer, &is_exact));
    }
    for (const struct schema_decimals *at = branch->not_multiples; at; at = at->next) {
        uint32_t multiple = multiple_expr(reader, &at->value, is_integer, &is_exact);
        expr = expr_minus(exprs, expr, multiple);
        if (is_exact) continue;
        uint32_t short_ones = join(exprs, expr_optional(exprs, expr_string(exprs, "-")),
                                   join(exprs, digits(exprs, 1, DIGITS_MAX), any_fraction(exprs)));
        expr = expr_and(exprs, expr, short_ones);
    }
    const struct schema_value_set *excluded = branch->excluded;
    for (size_t i = 0; excluded && i < excluded->num_values; i++) {
        if (!(schema_type_of(excluded->values[i]) & SCHEMA_NUMBER)) continue;
        expr = expr_minus(exprs, expr, excluded_number(reader, excluded->values[i]));
    }
    return expr;
}

// Numbers that a double tells apart: whole ones of any length (many readers have integers of any
// size), others of at most DIGITS_MAX digits. One with more digits may be read as another number,
// which is whole or a multiple.
static uint32_t tell_apart(struct exprs *exprs) {
    static const uint64_t digits_and_dot[4] = {UINT64_C(0x3ff) << '0' | UINT64_C(1) << '.'};
    uint32_t some = expr_repeat(exprs, expr_byte_set(exprs, digits_and_dot), 1, DIGITS_MAX + 1);
    uint32_t all = expr_alt(exprs, some, digits(exprs, 1, EXPR_FOREVER));
    return join(exprs, expr_optional(exprs, expr_string(exprs, "-")), all);
}

static bool excludes_numbers(const struct schema_branch *branch) {
    const struct schema_value_set *excluded = branch->excluded;
    for (size_t i = 0; excluded && i < excluded->num_values; i++) {
        if (schema_type_of(excluded->values[i]) & SCHEMA_NUMBER) return true;
    }
    return false;
}

uint32_t schema_number_expr(struct schema_reader *reader, const struct schema_branch *branch) {
    struct exprs *exprs = reader->exprs;
    bool is_integer = !(branch->types & SCHEMA_FRACTION);
    bool has_lists = branch->multiples || branch->not_multiples || excludes_numbers(branch);
    bool may_have_exponent = !has_lists && (branch->types & SCHEMA_NUMBER) == SCHEMA_NUMBER;
    const struct schema_bound *lower = &branch->lower, *upper = &branch->upper;
    uint32_t minus = expr_string(exprs, "-");
    if (!lower->value && !upper->value && may_have_exponent) {
        return any_number(exprs);
    }
    uint32_t positive = limit_sign(reader, lower, upper, 1, is_integer);
    uint32_t negative = limit_sign(reader, upper, lower, -1, is_integer);
    if (may_have_exponent) {
        if (positive != EXPR_NOTHING) {
            positive = expr_alt(exprs, positive, with_exponent(reader, lower, upper, false));
        }
        if (negative != EXPR_NOTHING) {
            negative = expr_alt(exprs, negative, with_exponent(reader, upper, lower, true));
        }
    }
    uint32_t all = expr_alt(exprs, positive, join(exprs, minus, negative));
    if (!(branch->types & SCHEMA_INTEGER)) { // a digit behind the point is not zero
        uint32_t any = digits(exprs, 0, EXPR_FOREVER);
        uint32_t tail = join(exprs, any, join(exprs, digit_range(exprs, '1', '9'), any));
        uint32_t form = join(exprs, expr_optional(exprs, minus), whole(exprs));
        all = expr_and(exprs, all, join(exprs, form, dot(exprs, tail)));
    }
    bool must_tell = !is_integer && (has_lists || !(branch->types & SCHEMA_INTEGER));
    if (must_tell) all = expr_and(exprs, all, tell_apart(exprs));
    return apply_lists(reader, branch, all, is_integer);
}
