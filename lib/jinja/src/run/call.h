/* Macros and calls. A call goes by the type of what is called. A macro binds its arguments and runs
 * its body in a new scope, below the scope of its definition. */
#ifndef JINJA_CALL_H
#define JINJA_CALL_H

#include "jinja/src/run/run.h"

struct jinja_macro {
    const struct jinja_macro_decl *decl;
    struct jinja_frame *frame; // where it was defined: what its body sees
    bool is_anonymous; // the body of a call block; prints as <Macro anonymous>
};

// The value of self.name. Each access makes a new one, as in Python.
struct jinja_block_reference {
    const struct jinja_stmt *stmt;
};

// A macro over the innermost scope, which is kept for it.
MUST_USE enum status jinja_macro_create(struct jinja_run *run, const struct jinja_macro_decl *decl,
                                        bool is_anonymous, struct jinja_value *out);
// macro.name, .arguments, .catch_kwargs, ...; *found false: no such attribute.
MUST_USE enum status jinja_macro_attribute(struct jinja_run *run, const struct jinja_macro *macro,
                                           const struct jinja_string *name, bool *found,
                                           struct jinja_value *out);
// self.NAME is the block of that name; *found false: there is none.
MUST_USE enum status jinja_self_attribute(struct jinja_run *run, const struct jinja_ast *ast,
                                          const struct jinja_string *name, bool *found,
                                          struct jinja_value *out);

#endif
