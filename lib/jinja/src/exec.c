/* Statements. A scope is entered with the caller's frame kept in a local variable; after an error
 * nothing is put back, since the render ends. */
#include "jinja/src/exec.h"

#include "jinja/src/call.h"
#include "jinja/src/eval.h"
#include "jinja/src/library.h"
#include "jinja/src/loop.h"
#include "jinja/src/scope.h"

// ---- output ----

enum status exec_captured(struct run *run, const struct block *block, enum flow *flow,
                          struct value *out) {
    struct text *saved = run->out;
    struct text text = {0};
    run->out = &text;
    enum status status = exec_block(run, block, flow);
    if (status) return status;
    run->out = saved;
    *out = value_none();
    return *flow != FLOW_ON ? OK : text_finish(run, &text, out);
}

// What a call block or filter block gives goes out as it is: it must be a string.
static enum status print_string(struct run *run, struct value value) {
    if (value.type != VALUE_STRING) {
        return run_fail(run, "sequence item 0: expected str instance, %s found",
                        value_type_name(value));
    }
    return text_append_string(run, run->out, value.string);
}

// ---- assignment ----

// Namespaces are the only values that a template changes; the sandbox refuses all others.
static enum status assign_attribute(struct run *run, const struct target *target,
                                    struct value value) {
    struct value object;
    enum status status = scope_get(run, target->name, &object);
    if (status) return status;
    if (object.type != VALUE_NAMESPACE)
        return run_fail(run, "cannot assign attribute on non-namespace object");
    return dict_set(run, object.attributes, value_of_string(target->attribute), value);
}

static enum status assign_items(struct run *run, const struct target *target, struct value value) {
    if (!value_is_iterable(value)) {
        return run_fail(run, "cannot unpack non-iterable %s object", value_type_name(value));
    }
    const struct list *items;
    enum status status = value_items(run, value, &items);
    if (status) return status;
    if (items->len > target->num_items)
        return run_fail(run, "too many values to unpack (expected %zu)", target->num_items);
    if (items->len < target->num_items) {
        return run_fail(run, "not enough values to unpack (expected %zu, got %zu)",
                        target->num_items, items->len);
    }
    for (size_t i = 0; i < target->num_items && !status; ++i)
        status = exec_assign(run, target->items[i], items->items[i]);
    return status;
}

enum status exec_assign(struct run *run, const struct target *target, struct value value) {
    switch (target->type) {
    case TARGET_NAME:
        return scope_set(run, target->name, value);
    case TARGET_ATTRIBUTE:
        return assign_attribute(run, target, value);
    case TARGET_TUPLE:
        break;
    }
    return assign_items(run, target, value);
}

// ---- loops ----

// The frame is emptied and used again, as Python uses the variables of a loop again: a macro made in
// an earlier turn sees the present one.
static enum status run_turn(struct run *run, struct loop *loop, const struct string *loop_name,
                            enum flow *flow) {
    const struct for_stmt *stmt = loop->stmt;
    enum status status = scope_reset(run, &stmt->body);
    if (status) return status;
    status = exec_assign(run, stmt->target, loop->current);
    if (status) return status;
    status = scope_set(run, loop_name, (struct value){.type = VALUE_LOOP, .loop = loop});
    if (status) return status;
    return exec_block(run, &stmt->body, flow);
}

enum status exec_loop(struct run *run, struct loop *loop, enum flow *flow) {
    static const struct string loop_name = {.data = "loop", .len = 4, .num_chars = 4};
    struct frame *saved = run->frame;
    enum status status = scope_enter(run, loop->frame, &loop->stmt->body);
    if (status) return status;
    // Jinja runs `else` unless some turn reached the end of the body: after `continue` in every
    // turn, and after `break` in the first, too.
    bool has_completed = false;
    *flow = FLOW_ON;
    while (*flow != FLOW_BREAK) {
        bool found;
        status = loop_next(run, loop, &found);
        if (status) return status;
        if (!found) break;
        status = run_turn(run, loop, &loop_name, flow);
        if (status) return status;
        if (*flow == FLOW_ON) has_completed = true;
    }
    *flow = FLOW_ON; // break and continue ended here
    scope_leave(run, saved); // `else` sees neither the target nor `loop`
    const struct block *otherwise = &loop->stmt->otherwise;
    if (has_completed || !otherwise->num_stmts) return OK;
    status = scope_enter(run, loop->frame, otherwise);
    if (status) return status;
    status = exec_block(run, otherwise, flow);
    if (status) return status;
    scope_leave(run, saved);
    return OK;
}

static enum status exec_for(struct run *run, const struct for_stmt *stmt, enum flow *flow) {
    struct value iterable;
    enum status status = eval(run, stmt->iterable, &iterable);
    if (status) return status;
    struct loop *loop;
    status = loop_create(run, stmt, iterable, &loop);
    if (status) return status;
    return exec_loop(run, loop, flow);
}

// ---- the other statements ----

static enum status exec_if(struct run *run, const struct stmt *stmt, enum flow *flow) {
    for (size_t i = 0; i < stmt->if_.num_branches; ++i) {
        const struct branch *branch = &stmt->if_.branches[i];
        if (branch->condition) {
            struct value condition;
            enum status status = eval(run, branch->condition, &condition);
            if (status) return status;
            if (!value_is_true(condition)) continue;
        }
        return exec_block(run, &branch->body, flow);
    }
    return OK;
}

// Jinja looks whether the targets are namespaces before it evaluates the value.
static enum status check_attributes(struct run *run, const struct target *target) {
    if (target->type == TARGET_ATTRIBUTE) {
        struct value object;
        enum status status = scope_get(run, target->name, &object);
        if (status || object.type == VALUE_NAMESPACE) return status;
        return run_fail(run, "cannot assign attribute on non-namespace object");
    }
    if (target->type == TARGET_NAME) return OK;
    enum status status = OK;
    for (size_t i = 0; i < target->num_items && !status; ++i)
        status = check_attributes(run, target->items[i]);
    return status;
}

static enum status exec_set(struct run *run, const struct stmt *stmt) {
    enum status status = check_attributes(run, stmt->target);
    if (status) return status;
    struct value value;
    status = eval(run, stmt->expr, &value);
    if (status) return status;
    return exec_assign(run, stmt->target, value);
}

// Runs the body in a scope of its own and the filters, if any, in that scope too.
static enum status capture_filtered(struct run *run, const struct stmt *stmt, enum flow *flow,
                                    struct value *out) {
    struct frame *saved = run->frame;
    enum status status = scope_enter(run, saved, &stmt->body);
    if (status) return status;
    status = exec_captured(run, &stmt->body, flow, out);
    if (status) return status;
    if (stmt->expr && *flow == FLOW_ON) {
        status = eval_filters(run, stmt->expr, *out, out);
        if (status) return status;
    }
    scope_leave(run, saved);
    return OK;
}

static enum status exec_set_block(struct run *run, const struct stmt *stmt, enum flow *flow) {
    struct value value;
    enum status status = capture_filtered(run, stmt, flow, &value);
    if (status || *flow != FLOW_ON) return status;
    return exec_assign(run, stmt->target, value);
}

static enum status exec_filter(struct run *run, const struct stmt *stmt, enum flow *flow) {
    struct value value;
    enum status status = capture_filtered(run, stmt, flow, &value);
    if (status || *flow != FLOW_ON) return status;
    return print_string(run, value);
}

static enum status exec_macro(struct run *run, const struct macro_decl *decl) {
    struct value macro;
    enum status status = macro_create(run, decl, false, &macro);
    if (status) return status;
    return scope_set(run, decl->name, macro);
}

static enum status exec_call(struct run *run, const struct stmt *stmt) {
    struct value caller, value;
    enum status status = macro_create(run, stmt->macro, true, &caller);
    if (status) return status;
    status = eval_call_with(run, stmt->expr, caller, &value);
    if (status) return status;
    return print_string(run, value);
}

// The values are the outer scope's, also those that follow a target of the same name.
static enum status exec_with(struct run *run, const struct stmt *stmt, enum flow *flow) {
    struct frame *outer = run->frame;
    enum status status = scope_enter(run, outer, &stmt->body);
    if (status) return status;
    struct frame *inner = run->frame;
    for (size_t i = 0; i < stmt->with.count; ++i) {
        struct value value;
        run->frame = outer;
        status = eval(run, stmt->with.values[i], &value);
        if (status) return status;
        run->frame = inner;
        status = exec_assign(run, stmt->with.targets[i], value);
        if (status) return status;
    }
    status = exec_block(run, &stmt->body, flow);
    if (status) return status;
    scope_leave(run, outer);
    return OK;
}

// The body of a generation block is a macro's, called without arguments: to Jinja's extension.
static enum status set_no_arguments(struct run *run) {
    static const struct string caller = {.data = "caller", .len = 6, .num_chars = 6};
    static const struct string kwargs = {.data = "kwargs", .len = 6, .num_chars = 6};
    static const struct string varargs = {.data = "varargs", .len = 7, .num_chars = 7};
    static const struct string reason = {.data = "No caller defined", .len = 17, .num_chars = 17};
    static const struct list no_values = {0};
    static const struct dict no_names = {0};
    enum status status =
        scope_set(run, &caller, (struct value){.type = VALUE_UNDEFINED, .hint = &reason});
    if (!status) status = scope_set(run, &kwargs, value_of_dict(&no_names));
    if (!status) status = scope_set(run, &varargs, value_of_tuple(&no_values));
    return status;
}

enum status exec_set_self(struct run *run) {
    static const struct string name = {.data = "self", .len = 4, .num_chars = 4};
    return scope_set(run, &name, (struct value){.type = VALUE_SELF, .self = run->ast});
}

// A body in a scope below `parent`.
static enum status exec_scope(struct run *run, struct frame *parent, const struct stmt *stmt,
                              enum flow *flow) {
    struct frame *saved = run->frame;
    enum status status = scope_enter(run, parent, &stmt->body);
    if (status) return status;
    run->frame->is_isolated = stmt->type == STMT_BLOCK;
    if (stmt->type == STMT_GENERATION) status = set_no_arguments(run);
    if (stmt->type == STMT_BLOCK && stmt->block.uses_self) status = exec_set_self(run);
    if (status) return status;
    status = exec_block(run, &stmt->body, flow);
    if (status) return status;
    scope_leave(run, saved);
    return OK;
}

enum status exec_block_tag(struct run *run, const struct stmt *stmt, struct value *out) {
    struct text *saved = run->out;
    struct text text = {0};
    enum flow flow; // no break leads out of a block
    run->out = &text;
    enum status status = exec_scope(run, run->root, stmt, &flow);
    if (status) return status;
    run->out = saved;
    return text_finish(run, &text, out);
}

static enum status exec_print(struct run *run, const struct expr *expr) {
    struct value value;
    enum status status = eval(run, expr, &value);
    if (status) return status;
    return value_print(run, value, run->out);
}

static enum status exec_stmt(struct run *run, const struct stmt *stmt, enum flow *flow) {
    switch (stmt->type) {
    case STMT_TEXT:
        return text_append_string(run, run->out, stmt->text);
    case STMT_PRINT:
        return exec_print(run, stmt->expr);
    case STMT_IF:
        return exec_if(run, stmt, flow);
    case STMT_FOR:
        return exec_for(run, stmt->loop, flow);
    case STMT_SET:
        return exec_set(run, stmt);
    case STMT_SET_BLOCK:
        return exec_set_block(run, stmt, flow);
    case STMT_MACRO:
        return exec_macro(run, stmt->macro);
    case STMT_CALL:
        return exec_call(run, stmt);
    case STMT_FILTER:
        return exec_filter(run, stmt, flow);
    case STMT_WITH:
        return exec_with(run, stmt, flow);
    case STMT_BLOCK:
        return exec_scope(run, run->root, stmt, flow);
    case STMT_GENERATION:
        return exec_scope(run, run->frame, stmt, flow);
    case STMT_BREAK:
        *flow = FLOW_BREAK;
        return OK;
    case STMT_CONTINUE:
        break;
    }
    *flow = FLOW_CONTINUE;
    return OK;
}

enum status exec_block(struct run *run, const struct block *block, enum flow *flow) {
    *flow = FLOW_ON;
    enum status status = run_enter(run);
    if (status) return status;
    for (size_t i = 0; i < block->num_stmts && *flow == FLOW_ON; ++i) {
        const struct stmt *stmt = block->stmts[i];
        run->line = stmt->line;
        status = run_pay(run, 1);
        if (status) return status;
        status = exec_stmt(run, stmt, flow);
        if (status) return status;
    }
    run_leave(run);
    return OK;
}
