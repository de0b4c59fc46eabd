/* Scopes: which variable a name means. A frame holds the names that one scope sets; lookups lead
 * from the innermost frame outwards to the variables of the render and the built-in functions.
 *
 * Jinja decides at compile time which scope a name belongs to. That differs from plain dynamic
 * lookup in one case: a scope sets a name before it reads it. Then the name is undefined from the
 * scope's beginning, even if an outer scope has it. jinja_symbols_resolve lists these names, and
 * jinja_scope_enter marks them. */
#ifndef JINJA_SCOPE_H
#define JINJA_SCOPE_H

#include "jinja/src/run/run.h"

struct jinja_frame_entry {
    const struct jinja_string *name;
    struct jinja_value value;
    uint32_t key; // of the name, to compare few names as a whole
    bool is_unset; // the name is this scope's but has no value yet
};

struct jinja_frame {
    struct jinja_frame *parent; // NULL: the variables of the render follow
    struct jinja_frame_entry *entries; // [len]
    size_t len, capacity;
    bool is_captured; // a macro keeps it: never used again for another scope
    bool is_isolated; // a block tag's: unset names outside do not hide the variables
};

// A new innermost frame below `parent` with the block's unset names. The caller keeps the old
// innermost frame and hands it to jinja_scope_leave.
MUST_USE enum status jinja_scope_enter(struct jinja_run *run, struct jinja_frame *parent,
                                       const struct jinja_block *block);
void jinja_scope_leave(struct jinja_run *run, struct jinja_frame *outer);
// Empties the innermost frame for the next turn of a loop.
MUST_USE enum status jinja_scope_reset(struct jinja_run *run, const struct jinja_block *block);
// Keeps the innermost frame and all around it for a macro.
void jinja_scope_capture(struct jinja_run *run);

// Sets a name in the innermost frame.
MUST_USE enum status jinja_scope_set(struct jinja_run *run, const struct jinja_string *name,
                                     struct jinja_value value);
// Gives the innermost frame the name, without a value yet.
MUST_USE enum status jinja_scope_set_unset(struct jinja_run *run, const struct jinja_string *name);
// A name without a value gives an undefined value, "'x' is undefined".
MUST_USE enum status jinja_scope_get(struct jinja_run *run, const struct jinja_string *name,
                                     struct jinja_value *out);

#endif
