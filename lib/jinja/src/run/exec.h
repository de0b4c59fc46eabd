/* Statements: running the syntax tree, writing to run->out. */
#ifndef JINJA_EXEC_H
#define JINJA_EXEC_H

#include "jinja/src/run/run.h"

// How a block of statements ended.
enum jinja_flow { JINJA_FLOW_ON, JINJA_FLOW_BREAK, JINJA_FLOW_CONTINUE };

struct jinja_loop;

// Runs the statements in the innermost scope until one ends the block.
MUST_USE enum status jinja_exec_block(struct jinja_run *run, const struct jinja_block *block,
                                      enum jinja_flow *flow);
// Runs them, and returns their output as a string instead of printing it. If they end by
// JINJA_FLOW_BREAK or JINJA_FLOW_CONTINUE, the output is lost and *out is none.
MUST_USE enum status jinja_exec_captured(struct jinja_run *run, const struct jinja_block *block,
                                         enum jinja_flow *flow, struct jinja_value *out);
// Returns as a string what the block tag prints.
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
