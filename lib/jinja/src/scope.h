/* Scopes: which variable a name means. A frame holds the names that one scope sets; lookups lead
 * from the innermost frame outwards to the variables of the render and the built-in functions.
 *
 * Jinja decides at compile time which scope a name belongs to. What differs from plain dynamic
 * lookup is only a name that a scope sets before it reads it: it is undefined from the scope's
 * beginning, even where the variables have one of that name. symbols_resolve lists these names,
 * scope_enter marks them. */
#ifndef JINJA_SCOPE_H
#define JINJA_SCOPE_H

#include "jinja/src/run.h"

struct frame_entry {
    const struct string *name;
    struct value value;
    uint32_t key; // of the name, to compare few names as a whole
    bool is_unset; // the name is this scope's but has no value yet
};

struct frame {
    struct frame *parent; // NULL: the variables of the render follow
    struct frame_entry *entries; // [len]
    size_t len, capacity;
    bool is_captured; // a macro keeps it: never used again for another scope
    bool is_isolated; // a block tag's: unset names outside do not hide the variables
};

// A new innermost frame below `parent` with the block's unset names. The caller keeps the old
// innermost frame and hands it to scope_leave.
MUST_USE enum status scope_enter(struct run *run, struct frame *parent, const struct block *block);
void scope_leave(struct run *run, struct frame *outer);
// Empties the innermost frame for the next turn of a loop.
MUST_USE enum status scope_reset(struct run *run, const struct block *block);
// Keeps the innermost frame and all around it for a macro.
void scope_capture(struct run *run);

// Sets a name in the innermost frame.
MUST_USE enum status scope_set(struct run *run, const struct string *name, struct value value);
// Makes it the innermost frame's, without a value yet.
MUST_USE enum status scope_set_unset(struct run *run, const struct string *name);
// A name without a value gives an undefined value, "'x' is undefined".
MUST_USE enum status scope_get(struct run *run, const struct string *name, struct value *out);

#endif
