/* Arguments are bound as in jinja2.runtime.Macro: positional ones first, then keywords. Those that
 * are left go to `caller`, `kwargs` and `varargs` if the body names them, else they are an error. A
 * parameter that was not given hides outer names even while the defaults are evaluated. */
#include "jinja/src/run/call.h"

#include <stdio.h>

#include "jinja/src/library/library.h"
#include "jinja/src/run/eval.h"
#include "jinja/src/run/exec.h"
#include "jinja/src/run/loop.h"
#include "jinja/src/run/scope.h"

enum { KEYWORDS_PER_STEP = 16 };

static const struct jinja_string caller_name = {.data = "caller", .len = 6, .num_chars = 6};
static const struct jinja_string kwargs_name = {.data = "kwargs", .len = 6, .num_chars = 6};
static const struct jinja_string varargs_name = {.data = "varargs", .len = 7, .num_chars = 7};

enum status jinja_macro_create(struct jinja_run *run, const struct jinja_macro_decl *decl,
                               bool is_anonymous, struct jinja_value *out) {
    struct jinja_macro *macro = jinja_run_alloc(run, sizeof(*macro));
    if (!macro) return jinja_run_status(run);
    *macro = (struct jinja_macro){.decl = decl, .frame = run->frame, .is_anonymous = is_anonymous};
    jinja_scope_capture(run);
    *out = (struct jinja_value){.type = JINJA_MACRO, .macro = macro};
    return OK;
}

static bool has_param(const struct jinja_macro_decl *decl, const struct jinja_string *name) {
    for (size_t i = 0; i < decl->num_params; ++i)
        if (jinja_string_equal(decl->params[i], name)) return true;
    return false;
}

// ---- attributes ----

static enum status list_params(struct jinja_run *run, const struct jinja_macro_decl *decl,
                               struct jinja_value *out) {
    struct jinja_list *names;
    enum status status = jinja_list_create(run, decl->num_params, &names);
    for (size_t i = 0; i < decl->num_params && !status; ++i)
        status = jinja_list_append(run, names, jinja_value_of_string(decl->params[i]));
    if (!status) *out = jinja_value_of_tuple(names);
    return status;
}

enum status jinja_macro_attribute(struct jinja_run *run, const struct jinja_macro *macro,
                                  const struct jinja_string *name, bool *found,
                                  struct jinja_value *out) {
    const struct jinja_macro_decl *decl = macro->decl;
    *found = true;
    if (jinja_string_is(name, "name")) {
        *out = macro->is_anonymous ? jinja_value_none() : jinja_value_of_string(decl->name);
    } else if (jinja_string_is(name, "arguments")) {
        return list_params(run, decl, out);
    } else if (jinja_string_is(name, "catch_kwargs")) {
        *out = jinja_value_bool(decl->uses_kwargs);
    } else if (jinja_string_is(name, "catch_varargs")) {
        *out = jinja_value_bool(decl->uses_varargs);
    } else if (jinja_string_is(name, "caller")) {
        *out = jinja_value_bool(decl->uses_caller);
    } else if (jinja_string_is(name, "explicit_caller")) {
        *out = jinja_value_bool(has_param(decl, &caller_name));
    } else {
        *found = false;
    }
    return OK;
}

enum status jinja_self_attribute(struct jinja_run *run, const struct jinja_ast *ast,
                                 const struct jinja_string *name, bool *found,
                                 struct jinja_value *out) {
    const struct jinja_stmt *stmt = ast->blocks;
    size_t num_searched = 0;
    for (; stmt && !jinja_string_equal(stmt->block.name, name); stmt = stmt->block.next)
        num_searched++;
    *found = stmt;
    enum status status = jinja_run_pay(run, num_searched / KEYWORDS_PER_STEP);
    if (status || !stmt) return status;
    struct jinja_block_reference *block = jinja_run_alloc(run, sizeof(*block));
    if (!block) return jinja_run_status(run);
    *block = (struct jinja_block_reference){.stmt = stmt};
    *out = (struct jinja_value){.type = JINJA_BLOCK, .block = block};
    return OK;
}

// ---- binding ----

// Arguments on their way into a macro's scope.
struct binding {
    const struct jinja_macro *macro;
    const struct jinja_macro_decl *decl;
    const struct jinja_call_args *args;
    bool *is_taken; // [args->num_names] keywords that went to a parameter
};

static enum status fail_binding(struct jinja_run *run, const struct binding *binding,
                                const char *reason, const struct jinja_string *name) {
    static const struct jinja_string no_name = {.data = "None", .len = 4, .num_chars = 4};
    bool is_named = !binding->macro->is_anonymous;
    const struct jinja_string *macro = is_named ? binding->decl->name : &no_name;
    const char *quote = is_named ? "'" : "";
    return jinja_run_fail(run, "macro %s%.*s%s %s%.*s%s", quote, (int)macro->len, macro->data,
                          quote, reason, name ? (int)name->len : 0, name ? name->data : "",
                          name ? "'" : "");
}

static const struct jinja_value *take_keyword(struct binding *binding,
                                              const struct jinja_string *name) {
    const struct jinja_call_args *args = binding->args;
    for (size_t i = 0; i < args->num_names; ++i) {
        if (!jinja_string_equal(args->names[i], name)) continue;
        binding->is_taken[i] = true;
        return &args->named[i];
    }
    return NULL;
}

static enum status bind_params(struct jinja_run *run, struct binding *binding) {
    const struct jinja_macro_decl *decl = binding->decl;
    const struct jinja_call_args *args = binding->args;
    for (size_t i = 0; i < decl->num_params; ++i) {
        const struct jinja_string *name = decl->params[i];
        enum status status = jinja_run_pay(run, 1 + args->num_names / KEYWORDS_PER_STEP);
        if (status) return status;
        const struct jinja_value *value =
            i < args->num_values ? &args->values[i] : take_keyword(binding, name);
        status = value ? jinja_scope_set(run, name, *value) : jinja_scope_set_unset(run, name);
        if (status) return status;
    }
    return OK;
}

// `caller` exists even without a call block; then only calling it fails.
static enum status bind_caller(struct jinja_run *run, struct binding *binding) {
    const struct jinja_value *given = take_keyword(binding, &caller_name);
    struct jinja_value caller;
    if (given && given->type != JINJA_NONE) {
        caller = *given;
    } else {
        enum status status = jinja_value_undefined(run, &caller, "No caller defined");
        if (status) return status;
    }
    return jinja_scope_set(run, &caller_name, caller);
}

// Keywords that went to no parameter.
static enum status bind_kwargs(struct jinja_run *run, struct binding *binding) {
    const struct jinja_call_args *args = binding->args;
    struct jinja_dict *rest = NULL;
    if (binding->decl->uses_kwargs) {
        enum status status = jinja_dict_create(run, 0, &rest);
        if (status) return status;
    }
    const struct jinja_string *first = NULL;
    for (size_t i = 0; i < args->num_names; ++i) {
        if (binding->is_taken[i]) continue;
        if (!rest && jinja_string_equal(args->names[i], &caller_name)) {
            return fail_binding(run, binding,
                                "was invoked with two values for the special caller argument. "
                                "This is most likely a bug.",
                                NULL);
        }
        if (!first) first = args->names[i];
        if (!rest) continue;
        enum status status =
            jinja_dict_set(run, rest, jinja_value_of_string(args->names[i]), args->named[i]);
        if (status) return status;
    }
    if (rest) return jinja_scope_set(run, &kwargs_name, jinja_value_of_dict(rest));
    return first ? fail_binding(run, binding, "takes no keyword argument '", first) : OK;
}

static enum status bind_varargs(struct jinja_run *run, const struct binding *binding) {
    const struct jinja_call_args *args = binding->args;
    size_t num_params = binding->decl->num_params;
    if (!binding->decl->uses_varargs) {
        if (args->num_values <= num_params) return OK;
        char reason[64];
        snprintf(reason, sizeof(reason), "takes not more than %zu argument(s)", num_params);
        return fail_binding(run, binding, reason, NULL);
    }
    struct jinja_list *rest;
    enum status status = jinja_list_create(run, 0, &rest);
    for (size_t i = num_params; i < args->num_values && !status; ++i)
        status = jinja_list_append(run, rest, args->values[i]);
    if (status) return status;
    return jinja_scope_set(run, &varargs_name, jinja_value_of_tuple(rest));
}

// Parameters that were not given; a default sees those before it and those given.
static enum status bind_defaults(struct jinja_run *run, const struct binding *binding) {
    const struct jinja_macro_decl *decl = binding->decl;
    for (size_t i = 0; i < decl->num_params; ++i) {
        const struct jinja_string *name = decl->params[i];
        bool is_given = i < binding->args->num_values;
        for (size_t j = 0; j < binding->args->num_names && !is_given; ++j)
            is_given = jinja_string_equal(binding->args->names[j], name);
        if (is_given) continue;
        struct jinja_value value;
        enum status status =
            decl->defaults[i]
                ? jinja_eval(run, decl->defaults[i], &value)
                : jinja_value_undefined(run, &value, "parameter '%.*s' was not provided",
                                        jinja_name_shown_len(name), name->data);
        if (status) return status;
        status = jinja_scope_set(run, name, value);
        if (status) return status;
    }
    return OK;
}

static enum status bind(struct jinja_run *run, const struct jinja_macro *macro,
                        const struct jinja_call_args *args) {
    struct binding binding = {.macro = macro, .decl = macro->decl, .args = args};
    bool few[8] = {false}; // enough for nearly every call
    binding.is_taken = few;
    if (args->num_names > ARRAY_LEN(few)) {
        binding.is_taken = jinja_run_alloc_array(run, args->num_names, sizeof(bool));
        if (!binding.is_taken) return jinja_run_status(run);
        for (size_t i = 0; i < args->num_names; ++i) binding.is_taken[i] = false;
    }
    enum status status = bind_params(run, &binding);
    if (status) return status;
    if (macro->decl->uses_caller && !has_param(macro->decl, &caller_name)) {
        status = bind_caller(run, &binding);
        if (status) return status;
    }
    status = bind_kwargs(run, &binding);
    if (status) return status;
    status = bind_varargs(run, &binding);
    if (status) return status;
    return bind_defaults(run, &binding);
}

// ---- calls ----

static enum status call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                              const struct jinja_call_args *args, struct jinja_value *out) {
    struct jinja_frame *saved = run->frame;
    enum status status = jinja_scope_enter(run, macro->frame, &macro->decl->body);
    if (status) return status;
    status = bind(run, macro, args);
    if (status) return status;
    enum jinja_flow flow; // no break leads out of a macro
    status = jinja_exec_captured(run, &macro->decl->body, &flow, out);
    if (status) return status;
    jinja_scope_leave(run, saved);
    return OK;
}

static enum status dispatch(struct jinja_run *run, struct jinja_value callee,
                            const struct jinja_call_args *args, struct jinja_value *out) {
    switch (callee.type) {
    case JINJA_MACRO:
        return call_macro(run, callee.macro, args, out);
    case JINJA_FUNCTION:
        return callee.function->run(run, args, out);
    case JINJA_METHOD:
        if (!callee.method->run)
            return jinja_run_fail(run, "method '%s' of Python's str is not supported",
                                  callee.method->name);
        return callee.method->run(run, callee.method->self, args, out);
    case JINJA_LOOP:
        return jinja_loop_call(run, callee.loop, args, out);
    case JINJA_BLOCK:
        if (args->num_values || args->num_names)
            return jinja_run_fail(run, "a block takes no arguments");
        return jinja_exec_block_tag(run, callee.block->stmt, out);
    case JINJA_UNDEFINED:
        return jinja_run_fail_undefined(run, callee);
    default:
        return jinja_run_fail(run, "'%s' object is not callable", jinja_value_type_name(callee));
    }
}

enum status jinja_run_call(struct jinja_run *run, struct jinja_value callee,
                           const struct jinja_call_args *args, struct jinja_value *out) {
    enum status status = jinja_run_enter(run);
    if (status) return status;
    uint32_t line = run->line;
    status = dispatch(run, callee, args, out);
    if (status) return status;
    run->line = line;
    jinja_run_leave(run);
    return OK;
}

enum status jinja_run_filter(struct jinja_run *run, const struct jinja_string *name,
                             struct jinja_value value, const struct jinja_call_args *args,
                             struct jinja_value *out) {
    const struct jinja_filter *filter = jinja_library_filter(name);
    if (!filter)
        return jinja_run_fail(run, "No filter named '%.*s' found.", (int)name->len, name->data);
    if (!filter->run)
        return jinja_run_fail(run, "filter '%s' of Jinja2 is not supported", filter->name);
    enum status status = jinja_run_enter(run);
    if (status) return status;
    status = filter->run(run, value, args, out);
    if (status) return status;
    jinja_run_leave(run);
    return OK;
}

enum status jinja_run_test(struct jinja_run *run, const struct jinja_string *name,
                           struct jinja_value value, const struct jinja_call_args *args,
                           bool *out) {
    const struct jinja_test *test = jinja_library_test(name);
    if (!test)
        return jinja_run_fail(run, "No test named '%.*s' found.", (int)name->len, name->data);
    enum status status = jinja_run_enter(run);
    if (status) return status;
    status = test->run(run, value, args, out);
    if (status) return status;
    jinja_run_leave(run);
    return OK;
}
