/* The state of one render and its budget. All evaluation takes a `struct jinja_run *`. Memory comes
 * from its arena, which is freed as a whole when the render ends. Steps, memory and depth are
 * counted down from the limits of jinja.h. So an untrusted template always ends: after seconds at
 * most, and earlier if the caller's interrupt asks for it.
 *
 * Functions return enum status; the sentence is in run->err, written by jinja_run_fail with the
 * line where evaluation is. */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/compiler.h"
#include "jinja/jinja.h"
#include "jinja/src/parse/ast.h"
#include "jinja/src/value/value.h"

enum { JINJA_STEPS_PER_ASK = 1 << 17 }; // between two looks at the interrupt: milliseconds

struct jinja_frame;

struct jinja_run {
    struct arena arena;
    size_t memory_left; // bytes
    uint64_t steps_left;
    uint64_t ask_below; // the interrupt is asked when fewer steps are left
    uint32_t depth_left;
    uint32_t line; // of the node being evaluated, from 1
    const char *what; // the template's name in errors
    const struct jinja_ast *ast; // of the template
    const struct jinja_render_options *options;
    struct jinja_value variables; // of the render, a dict; the built-in functions are behind them
    struct jinja_frame *root; // the template's own scope
    struct jinja_frame *frame; // innermost scope (scope.h)
    struct jinja_frame *spare_frames; // left scopes, to be used again
    struct jinja_text *out; // where output goes now: the render's, a macro's, a block's
    struct err *err; // not NULL
};

// Memory of the render, 16-byte aligned, uninitialised. NULL: the error is written, and the caller
// returns jinja_run_status(run).
MUST_USE void *jinja_run_alloc(struct jinja_run *run, size_t size);
// The same for count * size bytes, also safe against overflow.
MUST_USE void *jinja_run_alloc_array(struct jinja_run *run, size_t count, size_t size);
// ERR_NOMEM or ERR_INVALID, whichever the failed jinja_run_alloc wrote.
static inline enum status jinja_run_status(const struct jinja_run *run) {
    return run->err->status == ERR_NOMEM ? ERR_NOMEM : ERR_INVALID;
}
// Pays for work; ERR_INVALID when the steps are used up, ERR_INTERRUPTED.
MUST_USE enum status jinja_run_pay(struct jinja_run *run, uint64_t steps);
// Every recursion is between these two. A jinja_run_enter that returned OK needs a jinja_run_leave.
MUST_USE enum status jinja_run_enter(struct jinja_run *run);
void jinja_run_leave(struct jinja_run *run);
// "<what>: line <n>: <sentence>", ERR_INVALID.
enum status jinja_run_fail(struct jinja_run *run, const char *format, ...) PRINTF_LIKE(2, 3);
// The error of an operation that a BIG_INT does not have.
enum status jinja_run_fail_big(struct jinja_run *run);
// ERR_INVALID with the undefined value's own reason ("'x' is undefined").
enum status jinja_run_fail_undefined(struct jinja_run *run, struct jinja_value undefined);

// ---- calling, for macros, functions, methods and the filters that call other filters ----

// Valid during the call. A callee that keeps arguments copies them.
struct jinja_call_args {
    const struct jinja_value *values; // [num_values] positional
    size_t num_values;
    const struct jinja_string *const *names; // [num_names] keywords
    const struct jinja_value *named; // [num_names]
    size_t num_names;
};

// callee(...): macros, functions, methods; anything else is an error.
MUST_USE enum status jinja_run_call(struct jinja_run *run, struct jinja_value callee,
                                    const struct jinja_call_args *args, struct jinja_value *out);
// value | name(args). The parser finds unknown names, but map("name") brings them at run time.
MUST_USE enum status jinja_run_filter(struct jinja_run *run, const struct jinja_string *name,
                                      struct jinja_value value, const struct jinja_call_args *args,
                                      struct jinja_value *out);
// value is name(args).
MUST_USE enum status jinja_run_test(struct jinja_run *run, const struct jinja_string *name,
                                    struct jinja_value value, const struct jinja_call_args *args,
                                    bool *out);

// ---- access and operators, with Jinja's and Python's rules ----

// value.name: a method or other attribute first, else an item. A missing one is undefined, which is
// no error.
MUST_USE enum status jinja_run_attribute(struct jinja_run *run, struct jinja_value value,
                                         const struct jinja_string *name, struct jinja_value *out);
// value[key]: an item first, else, for a string key, an attribute.
MUST_USE enum status jinja_run_item(struct jinja_run *run, struct jinja_value value,
                                    struct jinja_value key, struct jinja_value *out);
// Any operator but JINJA_OP_CONCAT, which eval.c joins without texts in between.
MUST_USE enum status jinja_run_binary(struct jinja_run *run, enum jinja_binary_op op,
                                      struct jinja_value left, struct jinja_value right,
                                      struct jinja_value *out);

#endif
