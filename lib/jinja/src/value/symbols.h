/* Static scopes: finds the names that a scope sets before it reads them (scope.h tells why). */
#ifndef JINJA_SYMBOLS_H
#define JINJA_SYMBOLS_H

#include "jinja/src/parse/ast.h"

// Fills `unset` of every block below `root` that has a scope of its own, and root's; the lists are
// the arena's. Only ERR_NOMEM.
MUST_USE enum status jinja_symbols_resolve(struct jinja_block *root, struct arena *arena,
                                           struct err *err);

#endif
