/* The state of a for loop: where its items come from and what `loop` says about them.
 *
 * Items are taken one at a time, as Jinja's generators do, so that a loop's `if` sees what the body
 * has done. loop.last, loop.nextitem and loop.length take items before the body reaches them. */
#ifndef JINJA_LOOP_H
#define JINJA_LOOP_H

#include "jinja/src/run/run.h"

struct jinja_loop {
    const struct jinja_for_stmt *stmt;
    struct jinja_frame *frame; // around the statement: parent of the body's
    struct jinja_value iterable;
    const struct jinja_list *items; // what is left to take when not a range or an iterator
    size_t position; // in items or the range
    bool is_filtered; // stmt->filter decides about what is taken
    bool is_length_known;
    size_t length; // valid if known
    size_t num_taken; // loop.index
    size_t depth0; // of recursion
    bool has_after;
    struct jinja_value before, current, after; // after: taken ahead
    struct jinja_value changed; // the tuple of loop.changed's last call; undefined: none
};

// A loop over `iterable` that begins in the innermost scope. ERR_INVALID: not iterable.
MUST_USE enum status jinja_loop_create(struct jinja_run *run, const struct jinja_for_stmt *stmt,
                                       struct jinja_value iterable, struct jinja_loop **out);
// The next item becomes loop->current; *found false: there is none.
MUST_USE enum status jinja_loop_next(struct jinja_run *run, struct jinja_loop *loop, bool *found);
// loop.length; takes all items when it cannot be known otherwise.
MUST_USE enum status jinja_loop_length(struct jinja_run *run, struct jinja_loop *loop,
                                       size_t *length);
// loop.index, .last, .cycle, ...; *found false: no such attribute.
MUST_USE enum status jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop,
                                          const struct jinja_string *name, bool *found,
                                          struct jinja_value *out);
// loop(iterable), for a recursive loop: the text of its body over other items.
MUST_USE enum status jinja_loop_call(struct jinja_run *run, struct jinja_loop *loop,
                                     const struct jinja_call_args *args, struct jinja_value *out);

#endif
