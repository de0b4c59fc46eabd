/* The state of one render and its budget. Everything that evaluates takes a `struct run *`: memory
 * comes from its arena (freed when the render ends, nothing sooner), and steps, memory and depth
 * are counted down, so that an untrusted template always ends: after seconds at most, whatever its
 * input is, and earlier where the caller's interrupt says so.
 *
 * Functions return enum status; the sentence is in run->err, written by run_fail with the line
 * where evaluation is. */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/compiler.h"
#include "jinja/jinja.h"
#include "jinja/src/ast.h"
#include "jinja/src/value.h"

// What a render may use. Steps and memory grow with the variables, since honest work does; steps up
// to a ceiling, which 17,000 values or 8 MiB of text reach.
enum {
    RUN_STEPS_BASE = 500000, // about one per node evaluated, item visited or 64 bytes copied
    RUN_STEPS_PER_INPUT_VALUE = 2000,
    RUN_STEPS_PER_INPUT_BYTE = 4, // a loop over the characters of a message
    RUN_STEPS_MAX = 1 << 25, // a second or two
    RUN_STEPS_PER_ASK = 1 << 17, // between two looks at the interrupt: milliseconds
    RUN_MEMORY_BASE = 64 << 20, // bytes
    RUN_MEMORY_PER_INPUT_BYTE = 16,
    RUN_DEPTH_MAX = 600, // nested evaluations, calls, values being printed or compared
};

struct frame;

struct run {
    struct arena arena;
    size_t memory_left; // bytes
    uint64_t steps_left;
    uint64_t ask_below; // the interrupt is asked when fewer steps are left
    uint32_t depth_left;
    uint32_t line; // of the node being evaluated, from 1
    const char *what; // the template's name in errors
    const struct ast *ast; // of the template
    const struct template_render_options *options;
    struct value variables; // of the render, a dict; the built-in functions are behind them
    struct frame *root; // the template's own scope
    struct frame *frame; // innermost scope (scope.h)
    struct frame *spare_frames; // left scopes, to be used again
    struct text *out; // where output goes now: the render's, a macro's, a block's
    struct err *err; // not NULL
};

// Memory of the render, 16-byte aligned, uninitialised. NULL: the error is written, return
// run_status(run).
MUST_USE void *run_alloc(struct run *run, size_t size);
// The same for count * size bytes, also safe against overflow.
MUST_USE void *run_alloc_array(struct run *run, size_t count, size_t size);
// ERR_NOMEM or ERR_INVALID, whichever the failed run_alloc wrote.
static inline enum status run_status(const struct run *run) {
    return run->err->status == ERR_NOMEM ? ERR_NOMEM : ERR_INVALID;
}
// Pays for work; ERR_INVALID when the steps are used up, ERR_INTERRUPTED.
MUST_USE enum status run_pay(struct run *run, uint64_t steps);
// Around every recursion: a run_enter that returned OK is paired with a run_leave.
MUST_USE enum status run_enter(struct run *run);
void run_leave(struct run *run);
// "<what>: line <n>: <sentence>", ERR_INVALID.
enum status run_fail(struct run *run, const char *format, ...) PRINTF_LIKE(2, 3);
// The error of what is not done with a BIG_INT.
enum status run_fail_big(struct run *run);
// ERR_INVALID with the undefined value's own reason ("'x' is undefined").
enum status run_fail_undefined(struct run *run, struct value undefined);

// ---- calling, for macros, functions, methods and the filters that call other filters ----

// Lent for the call: who keeps arguments copies them.
struct call_args {
    const struct value *values; // [num_values] positional
    size_t num_values;
    const struct string *const *names; // [num_names] keywords
    const struct value *named; // [num_names]
    size_t num_names;
};

// callee(...): macros, functions, methods; anything else is an error.
MUST_USE enum status run_call(struct run *run, struct value callee, const struct call_args *args,
                              struct value *out);
// value | name(args). Unknown names are found at parse time, but map("name") brings them at run time.
MUST_USE enum status run_filter(struct run *run, const struct string *name, struct value value,
                                const struct call_args *args, struct value *out);
// value is name(args).
MUST_USE enum status run_test(struct run *run, const struct string *name, struct value value,
                              const struct call_args *args, bool *out);

// ---- access and operators, with Jinja's and Python's rules ----

// value.name: a method or other attribute first, else an item. A missing one is undefined, not an error.
MUST_USE enum status run_attribute(struct run *run, struct value value, const struct string *name,
                                   struct value *out);
// value[key]: an item first, else, for a string key, an attribute.
MUST_USE enum status run_item(struct run *run, struct value value, struct value key,
                              struct value *out);
// Any operator but OP_CONCAT, which eval.c joins without texts in between.
MUST_USE enum status run_binary(struct run *run, enum binary_op op, struct value left,
                                struct value right, struct value *out);

#endif
