/* Binding and checking the arguments of built-in filters, tests, functions and methods.
 *
 * The sentences name the callee and the argument; they are not Python's, which differ between what
 * is written in C and in Python. `given` is a bit per parameter: no callee has more than a few. */
#include <string.h>

#include "jinja/src/library/library_parts.h"

enum status jinja_args_bind(struct jinja_run *run, const char *callee,
                            const struct jinja_call_args *args, const char *const *params,
                            size_t num_params, size_t num_required, struct jinja_value *values) {
    if (args->num_values > num_params)
        return jinja_run_fail(run, "%s takes at most %zu arguments, not %zu", callee, num_params,
                              args->num_values);
    for (size_t i = 0; i < args->num_values; i++) values[i] = args->values[i];
    uint64_t given = ((uint64_t)1 << args->num_values) - 1;
    for (size_t i = 0; i < args->num_names; i++) {
        const struct jinja_string *name = args->names[i];
        size_t p = 0;
        while (p < num_params && !jinja_string_is(name, params[p])) p++;
        if (p == num_params)
            return jinja_run_fail(run, "%s has no argument '%.*s'", callee, (int)name->len,
                                  name->data);
        if (given >> p & 1)
            return jinja_run_fail(run, "%s got the argument '%s' twice", callee, params[p]);
        given |= (uint64_t)1 << p;
        values[p] = args->named[i];
    }
    for (size_t p = 0; p < num_required; p++) {
        if (!(given >> p & 1))
            return jinja_run_fail(run, "%s wants the argument '%s'", callee, params[p]);
    }
    return OK;
}

enum status jinja_args_positional(struct jinja_run *run, const char *callee,
                                  const struct jinja_call_args *args, size_t num_min,
                                  size_t num_max, struct jinja_value *values) {
    if (args->num_names) return jinja_run_fail(run, "%s takes no keyword arguments", callee);
    if (args->num_values < num_min || args->num_values > num_max) {
        if (num_min == num_max)
            return jinja_run_fail(run, "%s takes %zu arguments, not %zu", callee, num_min,
                                  args->num_values);
        return jinja_run_fail(run, "%s takes %zu to %zu arguments, not %zu", callee, num_min,
                              num_max, args->num_values);
    }
    for (size_t i = 0; i < args->num_values; i++) values[i] = args->values[i];
    return OK;
}

enum status jinja_args_int(struct jinja_run *run, const char *callee, const char *param,
                           struct jinja_value value, int64_t *out) {
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type == JINJA_BIG_INT) return jinja_run_fail_big(run);
    if (value.type == JINJA_INT)
        *out = value.integer;
    else if (value.type == JINJA_BOOL)
        *out = value.boolean;
    else
        return jinja_run_fail(run, "%s wants an integer as %s, not %s", callee, param,
                              jinja_value_type_name(value));
    return OK;
}

enum status jinja_args_string(struct jinja_run *run, const char *callee, const char *param,
                              struct jinja_value value, const struct jinja_string **out) {
    if (value.type == JINJA_UNDEFINED) return jinja_run_fail_undefined(run, value);
    if (value.type != JINJA_STRING)
        return jinja_run_fail(run, "%s wants a string as %s, not %s", callee, param,
                              jinja_value_type_name(value));
    *out = value.string;
    return OK;
}
