// The tests of `value is NAME`.
#include "jinja/src/library/library_parts.h"
#include "jinja/src/value/chars.h"
#include "jinja/src/value/str_ops.h"

static enum status no_args(struct jinja_run *run, const char *callee,
                           const struct jinja_call_args *args) {
    return jinja_args_bind(run, callee, args, NULL, 0, 0, NULL);
}

static enum status one_arg(struct jinja_run *run, const char *callee,
                           const struct jinja_call_args *args, const char *param,
                           struct jinja_value *out) {
    return jinja_args_bind(run, callee, args, &param, 1, 1, out);
}

// ---- by type ----

// A test without arguments that cannot fail: the name of the function is that of the test.
static enum status of_type(struct jinja_run *run, const char *callee,
                           const struct jinja_call_args *args, bool result, bool *out) {
    *out = result;
    return no_args(run, callee, args);
}

static enum status test_defined(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, bool *out) {
    return of_type(run, "defined", args, value.type != JINJA_UNDEFINED, out);
}

static enum status test_undefined(struct jinja_run *run, struct jinja_value value,
                                  const struct jinja_call_args *args, bool *out) {
    return of_type(run, "undefined", args, value.type == JINJA_UNDEFINED, out);
}

static enum status test_none(struct jinja_run *run, struct jinja_value value,
                             const struct jinja_call_args *args, bool *out) {
    return of_type(run, "none", args, value.type == JINJA_NONE, out);
}

static enum status test_boolean(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, bool *out) {
    return of_type(run, "boolean", args, value.type == JINJA_BOOL, out);
}

static enum status test_true(struct jinja_run *run, struct jinja_value value,
                             const struct jinja_call_args *args, bool *out) {
    return of_type(run, "true", args, value.type == JINJA_BOOL && value.boolean, out);
}

static enum status test_false(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, bool *out) {
    return of_type(run, "false", args, value.type == JINJA_BOOL && !value.boolean, out);
}

static enum status test_integer(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, bool *out) {
    return of_type(run, "integer", args, value.type == JINJA_INT || value.type == JINJA_BIG_INT,
                   out);
}

static enum status test_float(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, bool *out) {
    return of_type(run, "float", args, value.type == JINJA_FLOAT, out);
}

static enum status test_number(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, bool *out) {
    bool is_number = value.type == JINJA_INT || value.type == JINJA_BIG_INT ||
                     value.type == JINJA_FLOAT || value.type == JINJA_BOOL;
    return of_type(run, "number", args, is_number, out);
}

static enum status test_string(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, bool *out) {
    return of_type(run, "string", args, value.type == JINJA_STRING, out);
}

static enum status test_mapping(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, bool *out) {
    return of_type(run, "mapping", args, value.type == JINJA_DICT, out);
}

static enum status test_escaped(struct jinja_run *run, struct jinja_value value,
                                const struct jinja_call_args *args, bool *out) {
    return of_type(run, "escaped", args, value.type == JINJA_STRING && value.string->is_markup,
                   out);
}

static enum status test_iterable(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, bool *out) {
    return of_type(run, "iterable", args, jinja_value_is_iterable(value), out);
}

// Has a length and items by index or key; an undefined value has both, the latter failing.
static enum status test_sequence(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, bool *out) {
    bool is_sequence = value.type == JINJA_UNDEFINED || value.type == JINJA_STRING ||
                       value.type == JINJA_LIST || value.type == JINJA_TUPLE ||
                       value.type == JINJA_DICT || value.type == JINJA_RANGE;
    return of_type(run, "sequence", args, is_sequence, out);
}

static enum status test_callable(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_call_args *args, bool *out) {
    bool is_callable = value.type == JINJA_MACRO || value.type == JINJA_FUNCTION ||
                       value.type == JINJA_METHOD || value.type == JINJA_LOOP ||
                       value.type == JINJA_BLOCK || value.type == JINJA_UNDEFINED;
    return of_type(run, "callable", args, is_callable, out);
}

// ---- by number ----

// value % divisor == wanted.
static enum status has_rest(struct jinja_run *run, struct jinja_value value,
                            struct jinja_value divisor, int64_t wanted, bool *out) {
    struct jinja_value rest;
    enum status status = jinja_run_binary(run, JINJA_OP_MOD, value, divisor, &rest);
    if (status) return status;
    return jinja_value_equal(run, rest, jinja_value_int(wanted), out);
}

static enum status test_odd(struct jinja_run *run, struct jinja_value value,
                            const struct jinja_call_args *args, bool *out) {
    enum status status = no_args(run, "odd", args);
    if (status) return status;
    return has_rest(run, value, jinja_value_int(2), 1, out);
}

static enum status test_even(struct jinja_run *run, struct jinja_value value,
                             const struct jinja_call_args *args, bool *out) {
    enum status status = no_args(run, "even", args);
    if (status) return status;
    return has_rest(run, value, jinja_value_int(2), 0, out);
}

static enum status test_divisibleby(struct jinja_run *run, struct jinja_value value,
                                    const struct jinja_call_args *args, bool *out) {
    struct jinja_value divisor;
    enum status status = one_arg(run, "divisibleby", args, "num", &divisor);
    if (status) return status;
    return has_rest(run, value, divisor, 0, out);
}

// ---- by text ----

// str.islower and str.isupper: a cased character, and none of another case.
static enum status is_one_case(struct jinja_run *run, struct jinja_value value, bool want_lower,
                               bool *out) {
    const struct jinja_string *string;
    enum status status = jinja_value_to_string(run, value, &string);
    if (!status) status = jinja_str_pay_chars(run, string->len);
    if (status) return status;
    bool is_cased = false;
    *out = false;
    for (size_t at = 0; at < string->len;) {
        uint32_t c = jinja_str_next(string, &at);
        bool is_lower = jinja_char_is_lower(c);
        if (jinja_char_is_title(c) || (want_lower ? jinja_char_is_upper(c) : is_lower)) return OK;
        is_cased |= want_lower ? is_lower : jinja_char_is_upper(c);
    }
    *out = is_cased;
    return OK;
}

static enum status test_lower(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, bool *out) {
    enum status status = no_args(run, "lower", args);
    return status ? status : is_one_case(run, value, true, out);
}

static enum status test_upper(struct jinja_run *run, struct jinja_value value,
                              const struct jinja_call_args *args, bool *out) {
    enum status status = no_args(run, "upper", args);
    return status ? status : is_one_case(run, value, false, out);
}

// Names are looked for in a dict, so the value must be fit for a key.
static enum status hashable(struct jinja_run *run, struct jinja_value value) {
    if (value.type != JINJA_LIST && value.type != JINJA_DICT) return OK;
    return jinja_run_fail(run, "unhashable type: '%s'", jinja_value_type_name(value));
}

static enum status test_filter(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, bool *out) {
    enum status status = no_args(run, "filter", args);
    if (!status) status = hashable(run, value);
    const struct jinja_filter *filter =
        value.type == JINJA_STRING ? jinja_library_filter(value.string) : NULL;
    *out = filter && filter->run;
    return status;
}

static enum status test_test(struct jinja_run *run, struct jinja_value value,
                             const struct jinja_call_args *args, bool *out) {
    enum status status = no_args(run, "test", args);
    if (!status) status = hashable(run, value);
    *out = value.type == JINJA_STRING && jinja_library_test(value.string);
    return status;
}

// ---- by comparison ----

static enum status test_sameas(struct jinja_run *run, struct jinja_value value,
                               const struct jinja_call_args *args, bool *out) {
    struct jinja_value other;
    enum status status = one_arg(run, "sameas", args, "other", &other);
    if (!status) *out = jinja_value_is_same(value, other);
    return status;
}

static enum status test_in(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    struct jinja_value container;
    enum status status = one_arg(run, "in", args, "seq", &container);
    if (status) return status;
    return jinja_value_contains(run, container, value, out);
}

static enum status test_eq(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    struct jinja_value other;
    enum status status = one_arg(run, "eq", args, "b", &other);
    if (status) return status;
    return jinja_value_equal(run, value, other, out);
}

static enum status test_ne(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    struct jinja_value other;
    bool is_equal = false;
    enum status status = one_arg(run, "ne", args, "b", &other);
    if (!status) status = jinja_value_equal(run, value, other, &is_equal);
    *out = !is_equal;
    return status;
}

static enum status order_of(struct jinja_run *run, const char *callee, struct jinja_value value,
                            const struct jinja_call_args *args, int *order, bool *unordered) {
    struct jinja_value other;
    enum status status = one_arg(run, callee, args, "b", &other);
    if (status) return status;
    return jinja_value_compare(run, value, other, order, unordered);
}

static enum status test_gt(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "gt", value, args, &order, &unordered);
    *out = !unordered && order > 0;
    return status;
}

static enum status test_ge(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "ge", value, args, &order, &unordered);
    *out = !unordered && order >= 0;
    return status;
}

static enum status test_lt(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "lt", value, args, &order, &unordered);
    *out = !unordered && order < 0;
    return status;
}

static enum status test_le(struct jinja_run *run, struct jinja_value value,
                           const struct jinja_call_args *args, bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "le", value, args, &order, &unordered);
    *out = !unordered && order <= 0;
    return status;
}

const struct jinja_test jinja_library_tests[] = {
    {"defined", test_defined},
    {"undefined", test_undefined},
    {"none", test_none},
    {"boolean", test_boolean},
    {"true", test_true},
    {"false", test_false},
    {"integer", test_integer},
    {"float", test_float},
    {"number", test_number},
    {"string", test_string},
    {"mapping", test_mapping},
    {"sequence", test_sequence},
    {"iterable", test_iterable},
    {"callable", test_callable},
    {"escaped", test_escaped},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisibleby},
    {"lower", test_lower},
    {"upper", test_upper},
    {"filter", test_filter},
    {"test", test_test},
    {"sameas", test_sameas},
    {"in", test_in},
    {"==", test_eq},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"!=", test_ne},
    {"ne", test_ne},
    {">", test_gt},
    {"gt", test_gt},
    {"greaterthan", test_gt},
    {"ge", test_ge},
    {">=", test_ge},
    {"<", test_lt},
    {"lt", test_lt},
    {"lessthan", test_lt},
    {"<=", test_le},
    {"le", test_le},
    {0},
};
