/* Statements. The caller's frame is kept in a local variable while a scope is open. After an error
 * it is not put back, because the render ends. */
#include "jinja/src/run/exec.h"

#include "jinja/src/library/library.h"
#include "jinja/src/run/call.h"
#include "jinja/src/run/eval.h"
#include "jinja/src/run/loop.h"
#include "jinja/src/run/scope.h"

// ---- output ----

enum status jinja_exec_captured(struct jinja_run *run, const struct jinja_block *block,
                                enum jinja_flow *flow, struct jinja_value *out) {
    struct jinja_text *saved = run->out;
    struct jinja_text text = {0};
    run->out = &text;
    enum status status = jinja_exec_block(run, block, flow);
    if (status) return status;
    run->out = saved;
    *out = jinja_value_none();
    return *flow != JINJA_FLOW_ON ? OK : jinja_text_finish(run, &text, out);
}

// What a call block or filter block gives goes out as it is: it must be a string.
static enum status print_string(struct jinja_run *run, struct jinja_value value) {
    if (value.type != JINJA_STRING) {
        return jinja_run_fail(run, "sequence item 0: expected str instance, %s found",
                              jinja_value_type_name(value));
    }
    return jinja_text_append_string(run, run->out, value.string);
}

// ---- assignment ----

// Namespaces are the only values that a template changes; the sandbox refuses all others.
static enum status assign_attribute(struct jinja_run *run, const struct jinja_target *target,
                                    struct jinja_value value) {
    struct jinja_value object;
    enum status status = jinja_scope_get(run, target->name, &object);
    if (status) return status;
    if (object.type != JINJA_NAMESPACE)
        return jinja_run_fail(run, "cannot assign attribute on non-namespace object");
    return jinja_dict_set(run, object.attributes, jinja_value_of_string(target->attribute), value);
}

static enum status assign_items(struct jinja_run *run, const struct jinja_target *target,
                                struct jinja_value value) {
    if (!jinja_value_is_iterable(value)) {
        return jinja_run_fail(run, "cannot unpack non-iterable %s object",
                              jinja_value_type_name(value));
    }
    const struct jinja_list *items;
    enum status status = jinja_value_items(run, value, &items);
    if (status) return status;
    if (items->len > target->num_items)
        return jinja_run_fail(run, "too many values to unpack (expected %zu)", target->num_items);
    if (items->len < target->num_items) {
        return jinja_run_fail(run, "not enough values to unpack (expected %zu, got %zu)",
                              target->num_items, items->len);
    }
    for (size_t i = 0; i < target->num_items && !status; ++i)
        status = jinja_exec_assign(run, target->items[i], items->items[i]);
    return status;
}

enum status jinja_exec_assign(struct jinja_run *run, const struct jinja_target *target,
                              struct jinja_value value) {
    switch (target->type) {
    case JINJA_TARGET_NAME:
        return jinja_scope_set(run, target->name, value);
    case JINJA_TARGET_ATTRIBUTE:
        return assign_attribute(run, target, value);
    case JINJA_TARGET_TUPLE:
        break;
    }
    return assign_items(run, target, value);
}

// ---- loops ----

// All turns of a loop use one frame, as in Python. So a macro that was made in an earlier turn sees
// the variables of the present one.
static enum status run_turn(struct jinja_run *run, struct jinja_loop *loop,
                            const struct jinja_string *loop_name, enum jinja_flow *flow) {
    const struct jinja_for_stmt *stmt = loop->stmt;
    enum status status = jinja_scope_reset(run, &stmt->body);
    if (status) return status;
    status = jinja_exec_assign(run, stmt->target, loop->current);
    if (status) return status;
    status =
        jinja_scope_set(run, loop_name, (struct jinja_value){.type = JINJA_LOOP, .loop = loop});
    if (status) return status;
    return jinja_exec_block(run, &stmt->body, flow);
}

enum status jinja_exec_loop(struct jinja_run *run, struct jinja_loop *loop, enum jinja_flow *flow) {
    static const struct jinja_string loop_name = {.data = "loop", .len = 4, .num_chars = 4};
    struct jinja_frame *saved = run->frame;
    enum status status = jinja_scope_enter(run, loop->frame, &loop->stmt->body);
    if (status) return status;
    // As in Jinja, `else` runs unless some turn reached the end of the body. So it also runs after
    // `continue` in every turn, and after `break` in the first.
    bool has_completed = false;
    *flow = JINJA_FLOW_ON;
    while (*flow != JINJA_FLOW_BREAK) {
        bool found;
        status = jinja_loop_next(run, loop, &found);
        if (status) return status;
        if (!found) break;
        status = run_turn(run, loop, &loop_name, flow);
        if (status) return status;
        if (*flow == JINJA_FLOW_ON) has_completed = true;
    }
    *flow = JINJA_FLOW_ON; // break and continue ended here
    jinja_scope_leave(run, saved); // `else` sees neither the target nor `loop`
    const struct jinja_block *otherwise = &loop->stmt->otherwise;
    if (has_completed || !otherwise->num_stmts) return OK;
    status = jinja_scope_enter(run, loop->frame, otherwise);
    if (status) return status;
    status = jinja_exec_block(run, otherwise, flow);
    if (status) return status;
    jinja_scope_leave(run, saved);
    return OK;
}

static enum status exec_for(struct jinja_run *run, const struct jinja_for_stmt *stmt,
                            enum jinja_flow *flow) {
    struct jinja_value iterable;
    enum status status = jinja_eval(run, stmt->iterable, &iterable);
    if (status) return status;
    struct jinja_loop *loop;
    status = jinja_loop_create(run, stmt, iterable, &loop);
    if (status) return status;
    return jinja_exec_loop(run, loop, flow);
}

// ---- the other statements ----

static enum status exec_if(struct jinja_run *run, const struct jinja_stmt *stmt,
                           enum jinja_flow *flow) {
    for (size_t i = 0; i < stmt->if_.num_branches; ++i) {
        const struct jinja_branch *branch = &stmt->if_.branches[i];
        if (branch->condition) {
            struct jinja_value condition;
            enum status status = jinja_eval(run, branch->condition, &condition);
            if (status) return status;
            if (!jinja_value_is_true(condition)) continue;
        }
        return jinja_exec_block(run, &branch->body, flow);
    }
    return OK;
}

// Jinja looks whether the targets are namespaces before it evaluates the value.
static enum status check_attributes(struct jinja_run *run, const struct jinja_target *target) {
    if (target->type == JINJA_TARGET_ATTRIBUTE) {
        struct jinja_value object;
        enum status status = jinja_scope_get(run, target->name, &object);
        if (status || object.type == JINJA_NAMESPACE) return status;
        return jinja_run_fail(run, "cannot assign attribute on non-namespace object");
    }
    if (target->type == JINJA_TARGET_NAME) return OK;
    enum status status = OK;
    for (size_t i = 0; i < target->num_items && !status; ++i)
        status = check_attributes(run, target->items[i]);
    return status;
}

static enum status exec_set(struct jinja_run *run, const struct jinja_stmt *stmt) {
    enum status status = check_attributes(run, stmt->target);
    if (status) return status;
    struct jinja_value value;
    status = jinja_eval(run, stmt->expr, &value);
    if (status) return status;
    return jinja_exec_assign(run, stmt->target, value);
}

// Runs the body in a scope of its own and the filters, if any, in that scope too.
static enum status capture_filtered(struct jinja_run *run, const struct jinja_stmt *stmt,
                                    enum jinja_flow *flow, struct jinja_value *out) {
    struct jinja_frame *saved = run->frame;
    enum status status = jinja_scope_enter(run, saved, &stmt->body);
    if (status) return status;
    status = jinja_exec_captured(run, &stmt->body, flow, out);
    if (status) return status;
    if (stmt->expr && *flow == JINJA_FLOW_ON) {
        status = jinja_eval_filters(run, stmt->expr, *out, out);
        if (status) return status;
    }
    jinja_scope_leave(run, saved);
    return OK;
}

static enum status exec_set_block(struct jinja_run *run, const struct jinja_stmt *stmt,
                                  enum jinja_flow *flow) {
    struct jinja_value value;
    enum status status = capture_filtered(run, stmt, flow, &value);
    if (status || *flow != JINJA_FLOW_ON) return status;
    return jinja_exec_assign(run, stmt->target, value);
}

static enum status exec_filter(struct jinja_run *run, const struct jinja_stmt *stmt,
                               enum jinja_flow *flow) {
    struct jinja_value value;
    enum status status = capture_filtered(run, stmt, flow, &value);
    if (status || *flow != JINJA_FLOW_ON) return status;
    return print_string(run, value);
}

static enum status exec_macro(struct jinja_run *run, const struct jinja_macro_decl *decl) {
    struct jinja_value macro;
    enum status status = jinja_macro_create(run, decl, false, &macro);
    if (status) return status;
    return jinja_scope_set(run, decl->name, macro);
}

static enum status exec_call(struct jinja_run *run, const struct jinja_stmt *stmt) {
    struct jinja_value caller, value;
    enum status status = jinja_macro_create(run, stmt->macro, true, &caller);
    if (status) return status;
    status = jinja_eval_call_with(run, stmt->expr, caller, &value);
    if (status) return status;
    return print_string(run, value);
}

// The values are the outer scope's, also those that follow a target of the same name.
static enum status exec_with(struct jinja_run *run, const struct jinja_stmt *stmt,
                             enum jinja_flow *flow) {
    struct jinja_frame *outer = run->frame;
    enum status status = jinja_scope_enter(run, outer, &stmt->body);
    if (status) return status;
    struct jinja_frame *inner = run->frame;
    for (size_t i = 0; i < stmt->with.count; ++i) {
        struct jinja_value value;
        run->frame = outer;
        status = jinja_eval(run, stmt->with.values[i], &value);
        if (status) return status;
        run->frame = inner;
        status = jinja_exec_assign(run, stmt->with.targets[i], value);
        if (status) return status;
    }
    status = jinja_exec_block(run, &stmt->body, flow);
    if (status) return status;
    jinja_scope_leave(run, outer);
    return OK;
}

// To Jinja, the body of a generation block is that of a macro called without arguments.
static enum status set_no_arguments(struct jinja_run *run) {
    static const struct jinja_string caller = {.data = "caller", .len = 6, .num_chars = 6};
    static const struct jinja_string kwargs = {.data = "kwargs", .len = 6, .num_chars = 6};
    static const struct jinja_string varargs = {.data = "varargs", .len = 7, .num_chars = 7};
    static const struct jinja_string reason = {
        .data = "No caller defined", .len = 17, .num_chars = 17};
    static const struct jinja_list no_values = {0};
    static const struct jinja_dict no_names = {0};
    enum status status = jinja_scope_set(
        run, &caller, (struct jinja_value){.type = JINJA_UNDEFINED, .hint = &reason});
    if (!status) status = jinja_scope_set(run, &kwargs, jinja_value_of_dict(&no_names));
    if (!status) status = jinja_scope_set(run, &varargs, jinja_value_of_tuple(&no_values));
    return status;
}

enum status jinja_exec_set_self(struct jinja_run *run) {
    static const struct jinja_string name = {.data = "self", .len = 4, .num_chars = 4};
    return jinja_scope_set(run, &name, (struct jinja_value){.type = JINJA_SELF, .self = run->ast});
}

// A body in a scope below `parent`.
static enum status exec_scope(struct jinja_run *run, struct jinja_frame *parent,
                              const struct jinja_stmt *stmt, enum jinja_flow *flow) {
    struct jinja_frame *saved = run->frame;
    enum status status = jinja_scope_enter(run, parent, &stmt->body);
    if (status) return status;
    run->frame->is_isolated = stmt->type == JINJA_STMT_BLOCK;
    if (stmt->type == JINJA_STMT_GENERATION) status = set_no_arguments(run);
    if (stmt->type == JINJA_STMT_BLOCK && stmt->block.uses_self) status = jinja_exec_set_self(run);
    if (status) return status;
    status = jinja_exec_block(run, &stmt->body, flow);
    if (status) return status;
    jinja_scope_leave(run, saved);
    return OK;
}

enum status jinja_exec_block_tag(struct jinja_run *run, const struct jinja_stmt *stmt,
                                 struct jinja_value *out) {
    struct jinja_text *saved = run->out;
    struct jinja_text text = {0};
    enum jinja_flow flow; // no break leads out of a block
    run->out = &text;
    enum status status = exec_scope(run, run->root, stmt, &flow);
    if (status) return status;
    run->out = saved;
    return jinja_text_finish(run, &text, out);
}

static enum status exec_print(struct jinja_run *run, const struct jinja_expr *expr) {
    struct jinja_value value;
    enum status status = jinja_eval(run, expr, &value);
    if (status) return status;
    return jinja_value_print(run, value, run->out);
}

static enum status exec_stmt(struct jinja_run *run, const struct jinja_stmt *stmt,
                             enum jinja_flow *flow) {
    switch (stmt->type) {
    case JINJA_STMT_TEXT:
        return jinja_text_append_string(run, run->out, stmt->text);
    case JINJA_STMT_PRINT:
        return exec_print(run, stmt->expr);
    case JINJA_STMT_IF:
        return exec_if(run, stmt, flow);
    case JINJA_STMT_FOR:
        return exec_for(run, stmt->loop, flow);
    case JINJA_STMT_SET:
        return exec_set(run, stmt);
    case JINJA_STMT_SET_BLOCK:
        return exec_set_block(run, stmt, flow);
    case JINJA_STMT_MACRO:
        return exec_macro(run, stmt->macro);
    case JINJA_STMT_CALL:
        return exec_call(run, stmt);
    case JINJA_STMT_FILTER:
        return exec_filter(run, stmt, flow);
    case JINJA_STMT_WITH:
        return exec_with(run, stmt, flow);
    case JINJA_STMT_BLOCK:
        return exec_scope(run, run->root, stmt, flow);
    case JINJA_STMT_GENERATION:
        return exec_scope(run, run->frame, stmt, flow);
    case JINJA_STMT_BREAK:
        *flow = JINJA_FLOW_BREAK;
        return OK;
    case JINJA_STMT_CONTINUE:
        break;
    }
    *flow = JINJA_FLOW_CONTINUE;
    return OK;
}

enum status jinja_exec_block(struct jinja_run *run, const struct jinja_block *block,
                             enum jinja_flow *flow) {
    *flow = JINJA_FLOW_ON;
    enum status status = jinja_run_enter(run);
    if (status) return status;
    for (size_t i = 0; i < block->num_stmts && *flow == JINJA_FLOW_ON; ++i) {
        const struct jinja_stmt *stmt = block->stmts[i];
        run->line = stmt->line;
        status = jinja_run_pay(run, 1);
        if (status) return status;
        status = exec_stmt(run, stmt, flow);
        if (status) return status;
    }
    jinja_run_leave(run);
    return OK;
}
