/* Expressions: evaluation of the syntax tree. The operators are eval_binary.c, slices
 * eval_slice.c, attributes and items eval_access.c; what others call of them is in run.h. */
#ifndef JINJA_EVAL_H
#define JINJA_EVAL_H

#include "jinja/src/run/run.h"

MUST_USE enum status jinja_eval(struct jinja_run *run, const struct jinja_expr *expr,
                                struct jinja_value *out);
// A chain of filters whose innermost has no operand of its own: that of a filter block or of a
// block set, over the block's text.
MUST_USE enum status jinja_eval_filters(struct jinja_run *run, const struct jinja_expr *expr,
                                        struct jinja_value text, struct jinja_value *out);
// A JINJA_EXPR_CALL with one more keyword argument: `caller`, of a call block.
MUST_USE enum status jinja_eval_call_with(struct jinja_run *run, const struct jinja_expr *expr,
                                          struct jinja_value caller, struct jinja_value *out);
MUST_USE enum status jinja_eval_unary(struct jinja_run *run, enum jinja_unary_op op,
                                      struct jinja_value operand, struct jinja_value *out);
// value[start:stop:step]; bounds not given are none.
MUST_USE enum status jinja_eval_slice(struct jinja_run *run, struct jinja_value value,
                                      const struct jinja_value bounds[3], struct jinja_value *out);

#endif
