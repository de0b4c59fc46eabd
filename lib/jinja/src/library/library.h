/* The built-in functions, filters, tests and methods. Each kind is a table of names; the parser
 * asks whether a filter or test exists, the evaluator runs it.
 *
 * A row whose `run` is NULL is a name that Jinja2 or Python has and this library has not. Whoever
 * is about to run it refuses it by that name. library_refused.c lists them all. */
#ifndef JINJA_LIBRARY_H
#define JINJA_LIBRARY_H

#include "jinja/src/run/run.h"

typedef enum status (*jinja_filter_fn)(struct jinja_run *run, struct jinja_value value,
                                       const struct jinja_call_args *args, struct jinja_value *out);
typedef enum status (*jinja_test_fn)(struct jinja_run *run, struct jinja_value value,
                                     const struct jinja_call_args *args, bool *out);
typedef enum status (*jinja_function_fn)(struct jinja_run *run, const struct jinja_call_args *args,
                                         struct jinja_value *out);
typedef enum status (*jinja_method_fn)(struct jinja_run *run, struct jinja_value self,
                                       const struct jinja_call_args *args, struct jinja_value *out);

struct jinja_filter {
    const char *name;
    jinja_filter_fn run;
};
struct jinja_test {
    const char *name;
    jinja_test_fn run;
};
struct jinja_function {
    const char *name;
    jinja_function_fn run;
};
struct jinja_method { // bound
    const char *name;
    jinja_method_fn run;
    struct jinja_value self;
};

// What has that name; NULL: nothing. Tests include "in", "==" and the like, functions are global.
const struct jinja_filter *jinja_library_filter(const struct jinja_string *name);
const struct jinja_test *jinja_library_test(const struct jinja_string *name);
const struct jinja_function *jinja_library_function(const struct jinja_string *name);
// The method `name` of value's type, bound to it. *found false: the type has none. Those that would
// change the value (list.append) are none: jinja_run_attribute refuses them, as the sandbox does.
MUST_USE enum status jinja_library_method(struct jinja_run *run, struct jinja_value value,
                                          const struct jinja_string *name, bool *found,
                                          struct jinja_value *out);

// `format % right`, of which a tuple has the values in order and a dict those by name.
MUST_USE enum status jinja_format_percent(struct jinja_run *run, const struct jinja_string *format,
                                          struct jinja_value right, struct jinja_value *out);
// A Markup's escaping of & < > ' ".
MUST_USE enum status jinja_library_escape(struct jinja_run *run, struct jinja_value value,
                                          struct jinja_value *out);

// ---- reading arguments, Python's rules: positional, then by keyword ----

// Binds args to params ["name", ...][num_params]; values[i] stays JINJA_UNDEFINED with type set to
// its default by the caller beforehand. Too many, unknown or double arguments and missing ones
// among the first num_required are errors that name the callee and the argument.
MUST_USE enum status jinja_args_bind(struct jinja_run *run, const char *callee,
                                     const struct jinja_call_args *args, const char *const *params,
                                     size_t num_params, size_t num_required,
                                     struct jinja_value *values);
// The value as the type wanted, or an error that names callee and parameter.
MUST_USE enum status jinja_args_int(struct jinja_run *run, const char *callee, const char *param,
                                    struct jinja_value value,
                                    int64_t *out); // bool counts as 0 or 1
MUST_USE enum status jinja_args_string(struct jinja_run *run, const char *callee, const char *param,
                                       struct jinja_value value, const struct jinja_string **out);

#endif
