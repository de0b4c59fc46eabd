/* Static scopes: finds the names that a scope sets before it reads them (scope.h tells why). */
#ifndef TEXT_TEMPLATE_SYMBOLS_H
#define TEXT_TEMPLATE_SYMBOLS_H

#include "text/template/ast.h"

// Fills `unset` of every block below `root` that has a scope of its own, and root's; the lists are
// the arena's. Only ERR_NOMEM.
MUST_USE enum status symbols_resolve(struct block *root, struct arena *arena, struct err *err);

#endif
