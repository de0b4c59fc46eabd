/* Binding follows jinja2.runtime.Macro: positional arguments first, then keywords; what is left goes
 * to `caller`, `kwargs` and `varargs` where the body names them, and is an error where it does not.
 * A parameter that was not given hides outer names even while the defaults are evaluated. */
#include "jinja/src/call.h"

#include <stdio.h>

#include "jinja/src/eval.h"
#include "jinja/src/exec.h"
#include "jinja/src/library.h"
#include "jinja/src/loop.h"
#include "jinja/src/scope.h"

enum { KEYWORDS_PER_STEP = 16 };

static const struct string caller_name = {.data = "caller", .len = 6, .num_chars = 6};
static const struct string kwargs_name = {.data = "kwargs", .len = 6, .num_chars = 6};
static const struct string varargs_name = {.data = "varargs", .len = 7, .num_chars = 7};

enum status macro_create(struct run *run, const struct macro_decl *decl, bool is_anonymous,
                         struct value *out) {
    struct macro *macro = run_alloc(run, sizeof(*macro));
    if (!macro) return run_status(run);
    *macro = (struct macro){.decl = decl, .frame = run->frame, .is_anonymous = is_anonymous};
    scope_capture(run);
    *out = (struct value){.type = VALUE_MACRO, .macro = macro};
    return OK;
}

static bool has_param(const struct macro_decl *decl, const struct string *name) {
    for (size_t i = 0; i < decl->num_params; ++i)
        if (string_equal(decl->params[i], name)) return true;
    return false;
}

// ---- attributes ----

static enum status list_params(struct run *run, const struct macro_decl *decl, struct value *out) {
    struct list *names;
    enum status status = list_create(run, decl->num_params, &names);
    for (size_t i = 0; i < decl->num_params && !status; ++i)
        status = list_append(run, names, value_of_string(decl->params[i]));
    if (!status) *out = value_of_tuple(names);
    return status;
}

enum status macro_attribute(struct run *run, const struct macro *macro, const struct string *name,
                            bool *found, struct value *out) {
    const struct macro_decl *decl = macro->decl;
    *found = true;
    if (string_is(name, "name")) {
        *out = macro->is_anonymous ? value_none() : value_of_string(decl->name);
    } else if (string_is(name, "arguments")) {
        return list_params(run, decl, out);
    } else if (string_is(name, "catch_kwargs")) {
        *out = value_bool(decl->uses_kwargs);
    } else if (string_is(name, "catch_varargs")) {
        *out = value_bool(decl->uses_varargs);
    } else if (string_is(name, "caller")) {
        *out = value_bool(decl->uses_caller);
    } else if (string_is(name, "explicit_caller")) {
        *out = value_bool(has_param(decl, &caller_name));
    } else {
        *found = false;
    }
    return OK;
}

enum status self_attribute(struct run *run, const struct ast *ast, const struct string *name,
                           bool *found, struct value *out) {
    const struct stmt *stmt = ast->blocks;
    size_t num_searched = 0;
    for (; stmt && !string_equal(stmt->block.name, name); stmt = stmt->block.next) num_searched++;
    *found = stmt;
    enum status status = run_pay(run, num_searched / KEYWORDS_PER_STEP);
    if (status || !stmt) return status;
    struct block_reference *block = run_alloc(run, sizeof(*block));
    if (!block) return run_status(run);
    *block = (struct block_reference){.stmt = stmt};
    *out = (struct value){.type = VALUE_BLOCK, .block = block};
    return OK;
}

// ---- binding ----

// Arguments on their way into a macro's scope.
struct binding {
    const struct macro *macro;
    const struct macro_decl *decl;
    const struct call_args *args;
    bool *is_taken; // [args->num_names] keywords that went to a parameter
};

static enum status fail_binding(struct run *run, const struct binding *binding, const char *reason,
                                const struct string *name) {
    static const struct string no_name = {.data = "None", .len = 4, .num_chars = 4};
    bool is_named = !binding->macro->is_anonymous;
    const struct string *macro = is_named ? binding->decl->name : &no_name;
    const char *quote = is_named ? "'" : "";
    return run_fail(run, "macro %s%.*s%s %s%.*s%s", quote, (int)macro->len, macro->data, quote,
                    reason, name ? (int)name->len : 0, name ? name->data : "", name ? "'" : "");
}

static const struct value *take_keyword(struct binding *binding, const struct string *name) {
    const struct call_args *args = binding->args;
    for (size_t i = 0; i < args->num_names; ++i) {
        if (!string_equal(args->names[i], name)) continue;
        binding->is_taken[i] = true;
        return &args->named[i];
    }
    return NULL;
}

static enum status bind_params(struct run *run, struct binding *binding) {
    const struct macro_decl *decl = binding->decl;
    const struct call_args *args = binding->args;
    for (size_t i = 0; i < decl->num_params; ++i) {
        const struct string *name = decl->params[i];
        enum status status = run_pay(run, 1 + args->num_names / KEYWORDS_PER_STEP);
        if (status) return status;
        const struct value *value =
            i < args->num_values ? &args->values[i] : take_keyword(binding, name);
        status = value ? scope_set(run, name, *value) : scope_set_unset(run, name);
        if (status) return status;
    }
    return OK;
}

// `caller` is there even without a call block; only calling it fails then.
static enum status bind_caller(struct run *run, struct binding *binding) {
    const struct value *given = take_keyword(binding, &caller_name);
    struct value caller;
    if (given && given->type != VALUE_NONE) {
        caller = *given;
    } else {
        enum status status = value_undefined(run, &caller, "No caller defined");
        if (status) return status;
    }
    return scope_set(run, &caller_name, caller);
}

// Keywords that went to no parameter.
static enum status bind_kwargs(struct run *run, struct binding *binding) {
    const struct call_args *args = binding->args;
    struct dict *rest = NULL;
    if (binding->decl->uses_kwargs) {
        enum status status = dict_create(run, 0, &rest);
        if (status) return status;
    }
    const struct string *first = NULL;
    for (size_t i = 0; i < args->num_names; ++i) {
        if (binding->is_taken[i]) continue;
        if (!rest && string_equal(args->names[i], &caller_name)) {
            return fail_binding(run, binding,
                                "was invoked with two values for the special caller argument. "
                                "This is most likely a bug.",
                                NULL);
        }
        if (!first) first = args->names[i];
        if (!rest) continue;
        enum status status = dict_set(run, rest, value_of_string(args->names[i]), args->named[i]);
        if (status) return status;
    }
    if (rest) return scope_set(run, &kwargs_name, value_of_dict(rest));
    return first ? fail_binding(run, binding, "takes no keyword argument '", first) : OK;
}

static enum status bind_varargs(struct run *run, const struct binding *binding) {
    const struct call_args *args = binding->args;
    size_t num_params = binding->decl->num_params;
    if (!binding->decl->uses_varargs) {
        if (args->num_values <= num_params) return OK;
        char reason[64];
        snprintf(reason, sizeof(reason), "takes not more than %zu argument(s)", num_params);
        return fail_binding(run, binding, reason, NULL);
    }
    struct list *rest;
    enum status status = list_create(run, 0, &rest);
    for (size_t i = num_params; i < args->num_values && !status; ++i)
        status = list_append(run, rest, args->values[i]);
    if (status) return status;
    return scope_set(run, &varargs_name, value_of_tuple(rest));
}

// Parameters that were not given; a default sees those before it and those given.
static enum status bind_defaults(struct run *run, const struct binding *binding) {
    const struct macro_decl *decl = binding->decl;
    for (size_t i = 0; i < decl->num_params; ++i) {
        const struct string *name = decl->params[i];
        bool is_given = i < binding->args->num_values;
        for (size_t j = 0; j < binding->args->num_names && !is_given; ++j)
            is_given = string_equal(binding->args->names[j], name);
        if (is_given) continue;
        struct value value;
        enum status status = decl->defaults[i]
                                 ? eval(run, decl->defaults[i], &value)
                                 : value_undefined(run, &value, "parameter '%.*s' was not provided",
                                                   name_shown_len(name), name->data);
        if (status) return status;
        status = scope_set(run, name, value);
        if (status) return status;
    }
    return OK;
}

static enum status bind(struct run *run, const struct macro *macro, const struct call_args *args) {
    struct binding binding = {.macro = macro, .decl = macro->decl, .args = args};
    bool few[8] = {false}; // enough for nearly every call
    binding.is_taken = few;
    if (args->num_names > ARRAY_LEN(few)) {
        binding.is_taken = run_alloc_array(run, args->num_names, sizeof(bool));
        if (!binding.is_taken) return run_status(run);
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

static enum status call_macro(struct run *run, const struct macro *macro,
                              const struct call_args *args, struct value *out) {
    struct frame *saved = run->frame;
    enum status status = scope_enter(run, macro->frame, &macro->decl->body);
    if (status) return status;
    status = bind(run, macro, args);
    if (status) return status;
    enum flow flow; // no break leads out of a macro
    status = exec_captured(run, &macro->decl->body, &flow, out);
    if (status) return status;
    scope_leave(run, saved);
    return OK;
}

static enum status dispatch(struct run *run, struct value callee, const struct call_args *args,
                            struct value *out) {
    switch (callee.type) {
    case VALUE_MACRO:
        return call_macro(run, callee.macro, args, out);
    case VALUE_FUNCTION:
        return callee.function->run(run, args, out);
    case VALUE_METHOD:
        if (!callee.method->run)
            return run_fail(run, "method '%s' of Python's str is not supported",
                            callee.method->name);
        return callee.method->run(run, callee.method->self, args, out);
    case VALUE_LOOP:
        return loop_call(run, callee.loop, args, out);
    case VALUE_BLOCK:
        if (args->num_values || args->num_names) return run_fail(run, "a block takes no arguments");
        return exec_block_tag(run, callee.block->stmt, out);
    case VALUE_UNDEFINED:
        return run_fail_undefined(run, callee);
    default:
        return run_fail(run, "'%s' object is not callable", value_type_name(callee));
    }
}

enum status run_call(struct run *run, struct value callee, const struct call_args *args,
                     struct value *out) {
    enum status status = run_enter(run);
    if (status) return status;
    uint32_t line = run->line;
    status = dispatch(run, callee, args, out);
    if (status) return status;
    run->line = line;
    run_leave(run);
    return OK;
}

enum status run_filter(struct run *run, const struct string *name, struct value value,
                       const struct call_args *args, struct value *out) {
    const struct filter *filter = library_filter(name);
    if (!filter) return run_fail(run, "No filter named '%.*s' found.", (int)name->len, name->data);
    if (!filter->run) return run_fail(run, "filter '%s' of Jinja2 is not supported", filter->name);
    enum status status = run_enter(run);
    if (status) return status;
    status = filter->run(run, value, args, out);
    if (status) return status;
    run_leave(run);
    return OK;
}

enum status run_test(struct run *run, const struct string *name, struct value value,
                     const struct call_args *args, bool *out) {
    const struct test *test = library_test(name);
    if (!test) return run_fail(run, "No test named '%.*s' found.", (int)name->len, name->data);
    enum status status = run_enter(run);
    if (status) return status;
    status = test->run(run, value, args, out);
    if (status) return status;
    run_leave(run);
    return OK;
}
