/* Statements: running the syntax tree, writing to run->out. */
#ifndef JINJA_EXEC_H
#define JINJA_EXEC_H

#include "jinja/src/run.h"

enum jinja_flow {
    JINJA_FLOW_ON,
    JINJA_FLOW_BREAK,
    JINJA_FLOW_CONTINUE
}; // how a block of statements ended

struct jinja_loop;

// Runs the statements in the innermost scope until one ends the block.
MUST_USE enum status jinja_exec_block(struct jinja_run *run, const struct jinja_block *block,
                                      enum jinja_flow *flow);
// Runs them with their output kept apart, as a string; none after JINJA_FLOW_BREAK and
// JINJA_FLOW_CONTINUE, which leave the output behind.
MUST_USE enum status jinja_exec_captured(struct jinja_run *run, const struct jinja_block *block,
                                         enum jinja_flow *flow, struct jinja_value *out);
// What a block tag prints, called by its name: a string.
MUST_USE enum status jinja_exec_block_tag(struct jinja_run *run, const struct jinja_stmt *stmt,
                                          struct jinja_value *out);
// Gives the innermost scope the variable `self`.
MUST_USE enum status jinja_exec_set_self(struct jinja_run *run);
// All turns of a loop that was just created, and its else; *flow is how the else ended.
MUST_USE enum status jinja_exec_loop(struct jinja_run *run, struct jinja_loop *loop,
                                     enum jinja_flow *flow);
// target = value, in the innermost scope.
MUST_USE enum status jinja_exec_assign(struct jinja_run *run, const struct jinja_target *target,
                                       struct jinja_value value);

#endif
