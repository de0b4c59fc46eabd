/* Statements: running the syntax tree, writing to run->out. */
#ifndef JINJA_EXEC_H
#define JINJA_EXEC_H

#include "jinja/src/run.h"

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE }; // how a block of statements ended

struct loop;

// Runs the statements in the innermost scope until one ends the block.
MUST_USE enum status exec_block(struct run *run, const struct block *block, enum flow *flow);
// Runs them with their output kept apart, as a string; none after FLOW_BREAK and FLOW_CONTINUE,
// which leave the output behind.
MUST_USE enum status exec_captured(struct run *run, const struct block *block, enum flow *flow,
                                   struct value *out);
// What a block tag prints, called by its name: a string.
MUST_USE enum status exec_block_tag(struct run *run, const struct stmt *stmt, struct value *out);
// Gives the innermost scope the variable `self`.
MUST_USE enum status exec_set_self(struct run *run);
// All turns of a loop that was just created, and its else; *flow is how the else ended.
MUST_USE enum status exec_loop(struct run *run, struct loop *loop, enum flow *flow);
// target = value, in the innermost scope.
MUST_USE enum status exec_assign(struct run *run, const struct target *target, struct value value);

#endif
