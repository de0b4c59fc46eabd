/* The built-in functions, filters, tests and methods. Each kind is a table of names; the parser
 * asks whether a filter or test exists, the evaluator runs it.
 *
 * A row whose `run` is NULL is a name that Jinja2 or Python has and this library has not. Whoever
 * is about to run it refuses it by that name. library_refused.c lists them all. */
#ifndef JINJA_LIBRARY_H
#define JINJA_LIBRARY_H

#include "jinja/src/run.h"

typedef enum status (*filter_fn)(struct run *run, struct value value, const struct call_args *args,
                                 struct value *out);
typedef enum status (*test_fn)(struct run *run, struct value value, const struct call_args *args,
                               bool *out);
typedef enum status (*function_fn)(struct run *run, const struct call_args *args,
                                   struct value *out);
typedef enum status (*method_fn)(struct run *run, struct value self, const struct call_args *args,
                                 struct value *out);

struct filter {
    const char *name;
    filter_fn run;
};
struct test {
    const char *name;
    test_fn run;
};
struct function {
    const char *name;
    function_fn run;
};
struct method { // bound
    const char *name;
    method_fn run;
    struct value self;
};

const struct filter *library_filter(const struct string *name); // NULL: none of that name
const struct test *library_test(
    const struct string *name); // NULL: none; "in", "==" and the like included
const struct function *library_function(const struct string *name); // global functions; NULL: none
// The method `name` of value's type, bound to it. *found false: the type has none. Those that would
// change the value (list.append) are none: run_attribute refuses them, as the sandbox does.
MUST_USE enum status library_method(struct run *run, struct value value, const struct string *name,
                                    bool *found, struct value *out);

// A Markup's escaping of & < > ' ".
MUST_USE enum status library_escape(struct run *run, struct value value, struct value *out);

// ---- reading arguments, Python's rules: positional, then by keyword ----

// Binds args to params ["name", ...][num_params]; values[i] stays VALUE_UNDEFINED with type set to
// its default by the caller beforehand. Too many, unknown or double arguments and missing ones
// among the first num_required are errors that name the callee and the argument.
MUST_USE enum status args_bind(struct run *run, const char *callee, const struct call_args *args,
                               const char *const *params, size_t num_params, size_t num_required,
                               struct value *values);
// The value as the type wanted, or an error that names callee and parameter.
MUST_USE enum status args_int(struct run *run, const char *callee, const char *param,
                              struct value value, int64_t *out); // bool counts as 0 or 1
MUST_USE enum status args_string(struct run *run, const char *callee, const char *param,
                                 struct value value, const struct string **out);

#endif
