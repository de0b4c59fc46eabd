/* Macros and calls: binding arguments to a macro's parameters, running its body in a scope of its
 * own below the scope of its definition, and dispatching a call by the type of what is called. */
#ifndef JINJA_CALL_H
#define JINJA_CALL_H

#include "jinja/src/run.h"

struct macro {
    const struct macro_decl *decl;
    struct frame *frame; // where it was defined: what its body sees
    bool is_anonymous; // the body of a call block; prints as <Macro anonymous>
};

// self.name: made anew at each look, as in Python.
struct block_reference {
    const struct stmt *stmt;
};

// A macro over the innermost scope, which is kept for it.
MUST_USE enum status macro_create(struct run *run, const struct macro_decl *decl, bool is_anonymous,
                                  struct value *out);
// macro.name, .arguments, .catch_kwargs, ...; *found false: no such attribute.
MUST_USE enum status macro_attribute(struct run *run, const struct macro *macro,
                                     const struct string *name, bool *found, struct value *out);
// self.NAME is the block of that name; *found false: there is none.
MUST_USE enum status self_attribute(struct run *run, const struct ast *ast,
                                    const struct string *name, bool *found, struct value *out);

#endif
