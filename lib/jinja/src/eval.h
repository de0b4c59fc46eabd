/* Expressions: evaluation of the syntax tree. The operators are eval_binary.c, slices
 * eval_slice.c, attributes and items eval_access.c; what others call of them is in run.h. */
#ifndef JINJA_EVAL_H
#define JINJA_EVAL_H

#include "jinja/src/run.h"

MUST_USE enum status eval(struct run *run, const struct expr *expr, struct value *out);
// A chain of filters whose innermost has no operand of its own: that of a filter block or of a
// block set, over the block's text.
MUST_USE enum status eval_filters(struct run *run, const struct expr *expr, struct value text,
                                  struct value *out);
// An EXPR_CALL with one more keyword argument: `caller`, of a call block.
MUST_USE enum status eval_call_with(struct run *run, const struct expr *expr, struct value caller,
                                    struct value *out);
MUST_USE enum status eval_unary(struct run *run, enum unary_op op, struct value operand,
                                struct value *out);
// value[start:stop:step]; bounds not given are none.
MUST_USE enum status eval_slice(struct run *run, struct value value, const struct value bounds[3],
                                struct value *out);

#endif
