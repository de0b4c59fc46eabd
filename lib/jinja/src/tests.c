// Tests: what `is` asks.
#include "jinja/src/chars.h"
#include "jinja/src/library_parts.h"
#include "jinja/src/str_ops.h"

static enum status no_args(struct run *run, const char *callee, const struct call_args *args) {
    return args_bind(run, callee, args, NULL, 0, 0, NULL);
}

static enum status one_arg(struct run *run, const char *callee, const struct call_args *args,
                           const char *param, struct value *out) {
    return args_bind(run, callee, args, &param, 1, 1, out);
}

// ---- by type ----

// A test without arguments that cannot fail: the name of the function is that of the test.
static enum status of_type(struct run *run, const char *callee, const struct call_args *args,
                           bool result, bool *out) {
    *out = result;
    return no_args(run, callee, args);
}

static enum status test_defined(struct run *run, struct value value, const struct call_args *args,
                                bool *out) {
    return of_type(run, "defined", args, value.type != VALUE_UNDEFINED, out);
}

static enum status test_undefined(struct run *run, struct value value, const struct call_args *args,
                                  bool *out) {
    return of_type(run, "undefined", args, value.type == VALUE_UNDEFINED, out);
}

static enum status test_none(struct run *run, struct value value, const struct call_args *args,
                             bool *out) {
    return of_type(run, "none", args, value.type == VALUE_NONE, out);
}

static enum status test_boolean(struct run *run, struct value value, const struct call_args *args,
                                bool *out) {
    return of_type(run, "boolean", args, value.type == VALUE_BOOL, out);
}

static enum status test_true(struct run *run, struct value value, const struct call_args *args,
                             bool *out) {
    return of_type(run, "true", args, value.type == VALUE_BOOL && value.boolean, out);
}

static enum status test_false(struct run *run, struct value value, const struct call_args *args,
                              bool *out) {
    return of_type(run, "false", args, value.type == VALUE_BOOL && !value.boolean, out);
}

static enum status test_integer(struct run *run, struct value value, const struct call_args *args,
                                bool *out) {
    return of_type(run, "integer", args, value.type == VALUE_INT || value.type == VALUE_BIG_INT,
                   out);
}

static enum status test_float(struct run *run, struct value value, const struct call_args *args,
                              bool *out) {
    return of_type(run, "float", args, value.type == VALUE_FLOAT, out);
}

static enum status test_number(struct run *run, struct value value, const struct call_args *args,
                               bool *out) {
    bool is_number = value.type == VALUE_INT || value.type == VALUE_BIG_INT ||
                     value.type == VALUE_FLOAT || value.type == VALUE_BOOL;
    return of_type(run, "number", args, is_number, out);
}

static enum status test_string(struct run *run, struct value value, const struct call_args *args,
                               bool *out) {
    return of_type(run, "string", args, value.type == VALUE_STRING, out);
}

static enum status test_mapping(struct run *run, struct value value, const struct call_args *args,
                                bool *out) {
    return of_type(run, "mapping", args, value.type == VALUE_DICT, out);
}

static enum status test_escaped(struct run *run, struct value value, const struct call_args *args,
                                bool *out) {
    return of_type(run, "escaped", args, value.type == VALUE_STRING && value.string->is_markup,
                   out);
}

static enum status test_iterable(struct run *run, struct value value, const struct call_args *args,
                                 bool *out) {
    return of_type(run, "iterable", args, value_is_iterable(value), out);
}

// Has a length and items by index or key; an undefined value has both, the latter failing.
static enum status test_sequence(struct run *run, struct value value, const struct call_args *args,
                                 bool *out) {
    bool is_sequence = value.type == VALUE_UNDEFINED || value.type == VALUE_STRING ||
                       value.type == VALUE_LIST || value.type == VALUE_TUPLE ||
                       value.type == VALUE_DICT || value.type == VALUE_RANGE;
    return of_type(run, "sequence", args, is_sequence, out);
}

static enum status test_callable(struct run *run, struct value value, const struct call_args *args,
                                 bool *out) {
    bool is_callable = value.type == VALUE_MACRO || value.type == VALUE_FUNCTION ||
                       value.type == VALUE_METHOD || value.type == VALUE_LOOP ||
                       value.type == VALUE_BLOCK || value.type == VALUE_UNDEFINED;
    return of_type(run, "callable", args, is_callable, out);
}

// ---- by number ----

// value % divisor == wanted.
static enum status has_rest(struct run *run, struct value value, struct value divisor,
                            int64_t wanted, bool *out) {
    struct value rest;
    enum status status = run_binary(run, OP_MOD, value, divisor, &rest);
    if (status) return status;
    return value_equal(run, rest, value_int(wanted), out);
}

static enum status test_odd(struct run *run, struct value value, const struct call_args *args,
                            bool *out) {
    enum status status = no_args(run, "odd", args);
    if (status) return status;
    return has_rest(run, value, value_int(2), 1, out);
}

static enum status test_even(struct run *run, struct value value, const struct call_args *args,
                             bool *out) {
    enum status status = no_args(run, "even", args);
    if (status) return status;
    return has_rest(run, value, value_int(2), 0, out);
}

static enum status test_divisibleby(struct run *run, struct value value,
                                    const struct call_args *args, bool *out) {
    struct value divisor;
    enum status status = one_arg(run, "divisibleby", args, "num", &divisor);
    if (status) return status;
    return has_rest(run, value, divisor, 0, out);
}

// ---- by text ----

// str.islower and str.isupper: a cased character, and none of another case.
static enum status is_one_case(struct run *run, struct value value, bool want_lower, bool *out) {
    const struct string *string;
    enum status status = value_to_string(run, value, &string);
    if (!status) status = str_pay_chars(run, string->len);
    if (status) return status;
    bool is_cased = false;
    *out = false;
    for (size_t at = 0; at < string->len;) {
        uint32_t c = str_next(string, &at);
        bool is_lower = char_is_lower(c);
        if (char_is_title(c) || (want_lower ? char_is_upper(c) : is_lower)) return OK;
        is_cased |= want_lower ? is_lower : char_is_upper(c);
    }
    *out = is_cased;
    return OK;
}

static enum status test_lower(struct run *run, struct value value, const struct call_args *args,
                              bool *out) {
    enum status status = no_args(run, "lower", args);
    return status ? status : is_one_case(run, value, true, out);
}

static enum status test_upper(struct run *run, struct value value, const struct call_args *args,
                              bool *out) {
    enum status status = no_args(run, "upper", args);
    return status ? status : is_one_case(run, value, false, out);
}

// Names are looked for in a dict, so the value must be fit for a key.
static enum status hashable(struct run *run, struct value value) {
    if (value.type != VALUE_LIST && value.type != VALUE_DICT) return OK;
    return run_fail(run, "unhashable type: '%s'", value_type_name(value));
}

static enum status test_filter(struct run *run, struct value value, const struct call_args *args,
                               bool *out) {
    enum status status = no_args(run, "filter", args);
    if (!status) status = hashable(run, value);
    const struct filter *filter = value.type == VALUE_STRING ? library_filter(value.string) : NULL;
    *out = filter && filter->run;
    return status;
}

static enum status test_test(struct run *run, struct value value, const struct call_args *args,
                             bool *out) {
    enum status status = no_args(run, "test", args);
    if (!status) status = hashable(run, value);
    *out = value.type == VALUE_STRING && library_test(value.string);
    return status;
}

// ---- by comparison ----

static enum status test_sameas(struct run *run, struct value value, const struct call_args *args,
                               bool *out) {
    struct value other;
    enum status status = one_arg(run, "sameas", args, "other", &other);
    if (!status) *out = value_is_same(value, other);
    return status;
}

static enum status test_in(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    struct value container;
    enum status status = one_arg(run, "in", args, "seq", &container);
    if (status) return status;
    return value_contains(run, container, value, out);
}

static enum status test_eq(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    struct value other;
    enum status status = one_arg(run, "eq", args, "b", &other);
    if (status) return status;
    return value_equal(run, value, other, out);
}

static enum status test_ne(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    struct value other;
    bool is_equal = false;
    enum status status = one_arg(run, "ne", args, "b", &other);
    if (!status) status = value_equal(run, value, other, &is_equal);
    *out = !is_equal;
    return status;
}

static enum status order_of(struct run *run, const char *callee, struct value value,
                            const struct call_args *args, int *order, bool *unordered) {
    struct value other;
    enum status status = one_arg(run, callee, args, "b", &other);
    if (status) return status;
    return value_compare(run, value, other, order, unordered);
}

static enum status test_gt(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "gt", value, args, &order, &unordered);
    *out = !unordered && order > 0;
    return status;
}

static enum status test_ge(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "ge", value, args, &order, &unordered);
    *out = !unordered && order >= 0;
    return status;
}

static enum status test_lt(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "lt", value, args, &order, &unordered);
    *out = !unordered && order < 0;
    return status;
}

static enum status test_le(struct run *run, struct value value, const struct call_args *args,
                           bool *out) {
    int order = 0;
    bool unordered = false;
    enum status status = order_of(run, "le", value, args, &order, &unordered);
    *out = !unordered && order <= 0;
    return status;
}

const struct test library_tests[] = {
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
