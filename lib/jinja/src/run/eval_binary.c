/* Arithmetic and joining, with Python's rules: bool is an int, `/` gives a float, `//` and `%`
 * round towards minus infinity, `**` of a negative exponent gives a float. */
#include <math.h>
#include <string.h>

#include "jinja/src/library/library.h"
#include "jinja/src/run/eval.h"

enum { JOIN_SPARE_MIN = 1024 }; // bytes from which on a string gets spare memory to grow

// ---- errors ----

static const char *const symbols[] = {
    [JINJA_OP_ADD] = "+",           [JINJA_OP_SUB] = "-",       [JINJA_OP_MUL] = "*",
    [JINJA_OP_DIV] = "/",           [JINJA_OP_FLOORDIV] = "//", [JINJA_OP_MOD] = "%",
    [JINJA_OP_POW] = "** or pow()",
};

static enum status fail_operands(struct jinja_run *run, enum jinja_binary_op op,
                                 struct jinja_value left, struct jinja_value right) {
    if (left.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, left);
    if (right.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, right);
    if (left.type == JINJA_BIG_INT || right.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    return jinja_run_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op],
                          jinja_value_type_name(left), jinja_value_type_name(right));
}

static enum status fail_large(struct jinja_run *run) {
    return jinja_run_fail(run, "integer result is too large");
}

// ---- numbers ----

static bool is_integer(struct jinja_value value) {
    return value.type == JINJA_INT || value.type == JINJA_BOOL;
}

static bool is_number(struct jinja_value value) {
    return is_integer(value) || value.type == JINJA_FLOAT;
}

static int64_t integer_of(struct jinja_value value) {
    return value.type == JINJA_BOOL ? value.boolean : value.integer;
}

static double float_of(struct jinja_value value) {
    return value.type == JINJA_FLOAT ? value.number : (double)integer_of(value);
}

static int64_t floor_mod(int64_t a, int64_t b) {
    if (b == -1) return 0; // INT64_MIN % -1 traps
    int64_t rest = a % b;
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}

static enum status power_integer(struct jinja_run *run, int64_t base, int64_t exponent,
                                 struct jinja_value *out) {
    int64_t result = 1;
    for (;;) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return fail_large(run);
        exponent >>= 1;
        if (!exponent) break;
        if (__builtin_mul_overflow(base, base, &base)) return fail_large(run);
    }
    *out = jinja_value_int(result);
    return OK;
}

// If both are exact as doubles, the quotient is rounded once, as in Python. Larger integers are
// divided as long doubles.
static double divide_integers(int64_t a, int64_t b) {
    const int64_t exact = (int64_t)1 << 53;
    if (a >= -exact && a <= exact && b >= -exact && b <= exact) return (double)a / (double)b;
    return (double)((long double)a / (long double)b);
}

static enum status on_integers(struct jinja_run *run, enum jinja_binary_op op, int64_t a, int64_t b,
                               struct jinja_value *out) {
    int64_t result = 0;
    bool is_large = false;
    switch (op) {
    case JINJA_OP_ADD:
        is_large = __builtin_add_overflow(a, b, &result);
        break;
    case JINJA_OP_SUB:
        is_large = __builtin_sub_overflow(a, b, &result);
        break;
    case JINJA_OP_MUL:
        is_large = __builtin_mul_overflow(a, b, &result);
        break;
    case JINJA_OP_DIV:
        if (!b) return jinja_run_fail(run, "division by zero");
        *out = jinja_value_float(divide_integers(a, b));
        return OK;
    case JINJA_OP_FLOORDIV:
        if (!b) return jinja_run_fail(run, "integer division or modulo by zero");
        if (b == -1) {
            is_large = __builtin_sub_overflow((int64_t)0, a, &result);
        } else {
            result = (a - floor_mod(a, b)) / b;
        }
        break;
    default: // JINJA_OP_MOD
        if (!b) return jinja_run_fail(run, "integer modulo by zero");
        result = floor_mod(a, b);
        break;
    }
    if (is_large) return fail_large(run);
    *out = jinja_value_int(result);
    return OK;
}

static enum status power_float(struct jinja_run *run, double base, double exponent,
                               struct jinja_value *out) {
    if (base == 0 && exponent < 0)
        return jinja_run_fail(run, "0.0 cannot be raised to a negative power");
    if (base < 0 && isfinite(base) && isfinite(exponent) && exponent != floor(exponent))
        return jinja_run_fail(run, "complex numbers are not supported");
    double result = pow(base, exponent);
    if (isinf(result) && isfinite(base) && isfinite(exponent))
        return jinja_run_fail(run, "(34, 'Numerical result out of range')");
    *out = jinja_value_float(result);
    return OK;
}

static double float_mod(double a, double b) {
    double rest = fmod(a, b);
    if (rest == 0) return copysign(0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}

// Works from the remainder, as CPython does, because floor(a / b) would be wrong: -5.0 // inf is
// -1.0.
static double float_floordiv(double a, double b) {
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign(0, a / b);
    double floored = floor(quotient);
    return quotient - floored > 0.5 ? floored + 1 : floored;
}

static enum status on_floats(struct jinja_run *run, enum jinja_binary_op op, double a, double b,
                             struct jinja_value *out) {
    switch (op) {
    case JINJA_OP_ADD:
        *out = jinja_value_float(a + b);
        return OK;
    case JINJA_OP_SUB:
        *out = jinja_value_float(a - b);
        return OK;
    case JINJA_OP_MUL:
        *out = jinja_value_float(a * b);
        return OK;
    case JINJA_OP_DIV:
        if (b == 0) return jinja_run_fail(run, "float division by zero");
        *out = jinja_value_float(a / b);
        return OK;
    case JINJA_OP_FLOORDIV:
        if (b == 0) return jinja_run_fail(run, "float floor division by zero");
        *out = jinja_value_float(float_floordiv(a, b));
        return OK;
    case JINJA_OP_MOD:
        if (b == 0) return jinja_run_fail(run, "float modulo");
        *out = jinja_value_float(float_mod(a, b));
        return OK;
    default:
        return power_float(run, a, b, out);
    }
}

static enum status on_numbers(struct jinja_run *run, enum jinja_binary_op op,
                              struct jinja_value left, struct jinja_value right,
                              struct jinja_value *out) {
    if (!is_integer(left) || !is_integer(right))
        return on_floats(run, op, float_of(left), float_of(right), out);
    int64_t a = integer_of(left), b = integer_of(right);
    if (op != JINJA_OP_POW) return on_integers(run, op, a, b, out);
    if (b < 0) return power_float(run, (double)a, (double)b, out);
    return power_integer(run, a, b, out);
}

// ---- strings and lists ----

// A string of `len` bytes to be filled.
static enum status make_string(struct jinja_run *run, uint64_t len, uint64_t num_chars,
                               bool is_markup, char **data, struct jinja_value *out) {
    if (len > UINT32_MAX) {
        jinja_run_fail(run, "a string of %llu bytes is too long", (unsigned long long)len);
        return ERR_INVALID; // as jinja_run_fail returns; this way the analyzer knows it
    }
    enum status status = jinja_run_pay(run, len / 64);
    if (status) return status;
    struct jinja_string *string = jinja_run_alloc(run, sizeof(*string) + (size_t)len);
    if (!string) return jinja_run_status(run);
    *data = (char *)(string + 1);
    *string = (struct jinja_string){.data = *data,
                                    .len = (uint32_t)len,
                                    .num_chars = (uint32_t)num_chars,
                                    .is_markup = is_markup};
    *out = jinja_value_of_string(string);
    return OK;
}

// A string with free memory behind it, where a later join may continue it.
struct joined {
    struct jinja_string string;
    struct jinja_string_spare spare;
};

// Joins in place: writes `b` to the spare memory behind `a`. The result shares the memory of `a`.
static enum status continue_string(struct jinja_run *run, const struct jinja_string *a,
                                   const struct jinja_string *b, struct jinja_value *out) {
    struct jinja_string *joined = jinja_run_alloc(run, sizeof(*joined));
    if (!joined) return jinja_run_status(run);
    memcpy(a->spare->end, b->data, b->len);
    a->spare->end += b->len;
    a->spare->len -= b->len;
    *joined = *a;
    joined->len += b->len;
    joined->num_chars += b->num_chars;
    *out = jinja_value_of_string(joined);
    return jinja_run_pay(run, b->len / 64);
}

// a + b, both Markup or none. A long text is expected to grow: it gets as much spare memory as it
// is long.
static enum status append(struct jinja_run *run, const struct jinja_string *a,
                          const struct jinja_string *b, struct jinja_value *out) {
    size_t len = (size_t)a->len + b->len;
    if (len > UINT32_MAX) return jinja_run_fail(run, "a string of %zu bytes is too long", len);
    bool is_end = a->spare && a->data + a->len == a->spare->end;
    if (is_end && b->len <= a->spare->len) return continue_string(run, a, b, out);
    size_t spare = a->len >= JOIN_SPARE_MIN && len < run->memory_left / 4 ? len : 0;
    enum status status = jinja_run_pay(run, len / 64);
    if (status) return status;
    struct joined *joined = jinja_run_alloc(run, sizeof(*joined) + len + spare);
    if (!joined) return jinja_run_status(run);
    char *data = (char *)(joined + 1);
    memcpy(data, a->data, a->len);
    memcpy(data + a->len, b->data, b->len);
    joined->spare = (struct jinja_string_spare){.end = data + len, .len = spare};
    joined->string = (struct jinja_string){.data = data,
                                           .len = (uint32_t)len,
                                           .num_chars = a->num_chars + b->num_chars,
                                           .is_markup = a->is_markup,
                                           .spare = spare ? &joined->spare : NULL};
    *out = jinja_value_of_string(&joined->string);
    return OK;
}

// A Markup escapes the plain string that is joined to it.
static enum status join_strings(struct jinja_run *run, struct jinja_value left,
                                struct jinja_value right, struct jinja_value *out) {
    bool is_markup = left.string->is_markup || right.string->is_markup;
    enum status status = OK;
    if (is_markup && !left.string->is_markup) status = jinja_library_escape(run, left, &left);
    if (is_markup && !status && !right.string->is_markup)
        status = jinja_library_escape(run, right, &right);
    return status ? status : append(run, left.string, right.string, out);
}

static enum status join_lists(struct jinja_run *run, struct jinja_value left,
                              struct jinja_value right, struct jinja_value *out) {
    struct jinja_list *joined;
    size_t len_left = left.list->len, len_right = right.list->len; // below 2^60: they are in memory
    enum status status = jinja_run_pay(run, len_left + len_right);
    if (!status) status = jinja_list_create(run, len_left + len_right, &joined);
    if (status) return status;
    if (len_left) memcpy(joined->items, left.list->items, len_left * sizeof(struct jinja_value));
    if (len_right)
        memcpy(joined->items + len_left, right.list->items, len_right * sizeof(struct jinja_value));
    joined->len = len_left + len_right;
    *out = left.type == JINJA_TUPLE ? jinja_value_of_tuple(joined) : jinja_value_of_list(joined);
    return OK;
}

static enum status add(struct jinja_run *run, struct jinja_value left, struct jinja_value right,
                       struct jinja_value *out) {
    if (left.type == JINJA_STRING && right.type == JINJA_STRING)
        return join_strings(run, left, right, out);
    bool is_list = left.type == JINJA_LIST || left.type == JINJA_TUPLE;
    if (is_list && right.type == left.type) return join_lists(run, left, right, out);
    bool is_plain = left.type == JINJA_STRING && !left.string->is_markup;
    if ((is_list || is_plain) && right.type != JINJA_UNDEFINED) {
        const char *name = jinja_value_type_name(left);
        return jinja_run_fail(run, "can only concatenate %s (not \"%s\") to %s", name,
                              jinja_value_type_name(right), name);
    }
    return fail_operands(run, JINJA_OP_ADD, left, right);
}

static enum status repeat_string(struct jinja_run *run, const struct jinja_string *string,
                                 uint64_t count, struct jinja_value *out) {
    uint64_t len;
    if (__builtin_mul_overflow(count, (uint64_t)string->len, &len)) len = UINT64_MAX;
    char *data = NULL;
    enum status status =
        make_string(run, len, string->num_chars * count, string->is_markup, &data, out);
    if (status || !len) return status;
    if (string->len == 1) {
        memset(data, string->data[0], (size_t)len);
        return OK;
    }
    // Each copy doubles the text, so there are few, however short the string is.
    memcpy(data, string->data, string->len);
    for (uint64_t done = string->len; done < len;) {
        uint64_t more = done < len - done ? done : len - done;
        memcpy(data + done, data, (size_t)more);
        done += more;
    }
    return OK;
}

static enum status repeat_list(struct jinja_run *run, struct jinja_value value, uint64_t count,
                               struct jinja_value *out) {
    uint64_t len;
    if (__builtin_mul_overflow(count, (uint64_t)value.list->len, &len)) len = UINT64_MAX;
    struct jinja_list *repeated;
    enum status status = jinja_run_pay(run, len);
    if (!status) status = jinja_list_create(run, (size_t)len, &repeated);
    if (status) return status;
    for (uint64_t i = 0; i < len; i += value.list->len)
        memcpy(repeated->items + i, value.list->items,
               value.list->len * sizeof(struct jinja_value));
    repeated->len = (size_t)len;
    *out =
        value.type == JINJA_TUPLE ? jinja_value_of_tuple(repeated) : jinja_value_of_list(repeated);
    return OK;
}

static bool is_repeatable(struct jinja_value value) {
    return value.type == JINJA_STRING || value.type == JINJA_LIST || value.type == JINJA_TUPLE;
}

static enum status multiply(struct jinja_run *run, struct jinja_value left,
                            struct jinja_value right, struct jinja_value *out) {
    struct jinja_value sequence = is_repeatable(left) ? left : right;
    struct jinja_value count = is_repeatable(left) ? right : left;
    if (!is_repeatable(sequence) || count.type == JINJA_UNDEFINED)
        return fail_operands(run, JINJA_OP_MUL, left, right);
    if (!is_integer(count)) {
        return jinja_run_fail(run, "can't multiply sequence by non-int of type '%s'",
                              jinja_value_type_name(count));
    }
    uint64_t times = integer_of(count) > 0 ? (uint64_t)integer_of(count) : 0;
    if (sequence.type == JINJA_STRING) return repeat_string(run, sequence.string, times, out);
    return repeat_list(run, sequence, times, out);
}

enum status jinja_run_binary(struct jinja_run *run, enum jinja_binary_op op,
                             struct jinja_value left, struct jinja_value right,
                             struct jinja_value *out) {
    if (is_number(left) && is_number(right)) return on_numbers(run, op, left, right, out);
    switch (op) {
    case JINJA_OP_ADD:
        return add(run, left, right, out);
    case JINJA_OP_MUL:
        return multiply(run, left, right, out);
    case JINJA_OP_MOD:
        if (left.type == JINJA_STRING) return jinja_format_percent(run, left.string, right, out);
        break;
    default:
        break;
    }
    return fail_operands(run, op, left, right);
}

enum status jinja_eval_unary(struct jinja_run *run, enum jinja_unary_op op,
                             struct jinja_value operand, struct jinja_value *out) {
    if (op == JINJA_OP_NOT) {
        *out = jinja_value_bool(!jinja_value_is_true(operand));
        return OK;
    }
    if (operand.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, operand);
    if (operand.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    if (!is_number(operand)) {
        return jinja_run_fail(run, "bad operand type for unary %s: '%s'",
                              op == JINJA_OP_NEG ? "-" : "+", jinja_value_type_name(operand));
    }
    if (operand.type == JINJA_FLOAT) {
        *out = jinja_value_float(op == JINJA_OP_NEG ? -operand.number : operand.number);
        return OK;
    }
    int64_t result = integer_of(operand);
    if (op == JINJA_OP_NEG && __builtin_sub_overflow((int64_t)0, result, &result))
        return fail_large(run);
    *out = jinja_value_int(result);
    return OK;
}
