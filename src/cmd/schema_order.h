/* The members of a text's objects in the order that answers have. */
#ifndef CMD_SCHEMA_ORDER_H
#define CMD_SCHEMA_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "structured/automaton/automaton.h"

// Looks for another order in which the text fits. *fits: `out` has it so, without white space. A
// text for which that takes long, and one that is not JSON, do not fit. `out` is empty before.
MUST_USE enum status schema_order_text(struct automaton *automaton, const char *text, size_t len,
                                       struct buf *out, bool *fits, struct err *err);

#endif
