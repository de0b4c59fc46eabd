/* Tokens that give an array with unique items one that it has: shared by automaton_ways.c, which
 * searches ways out, and automaton_unique.c, which makes the masks. */
#ifndef STRUCTURED_AUTOMATON_UNIQUE_H
#define STRUCTURED_AUTOMATON_UNIQUE_H

#include "structured/automaton/automaton_internal.h"
#include "structured/unique/unique.h"

// Where a text stands.
struct place {
    uint32_t state;
    struct unique_position at;
};

// One call.
struct try {
    struct automaton *automaton;
    struct unique_log *log;
    struct place origin; // of the mask
    bool should_end; // the mask begins no further item
    uint32_t *words;
    bool banned_any;
    struct place *path; // [token_bytes_max + 2] of a walk; NULL: not needed so far
    // The search.
    struct search_step {
        struct place place;
        uint32_t next; // to try next: an index of the choices, or a node of the log
        bool any_lives; // of those that were tried
        bool is_over;
        bool in_own_escape; // which the search began
    } * steps; // [capacity]
    uint32_t capacity;
    // Ways out that were found: from the state, between values, a string is opened that can become
    // a new one, by num_bytes bytes (UINT32_MAX: it is endless). So all tokens that lead to the
    // state are searched for once.
    struct known_way {
        uint32_t state, depth, num_bytes;
        uint8_t expects;
    } known[8]; // [num_known]
    uint32_t num_known;
    // Places of searches, and what these have found: many tokens lead to the same place.
    struct searched {
        struct place place;
        bool found;
    } searched[16]; // the last of num_searched
    uint32_t num_searched;
};

void ways_begin(struct try *try); // locks the automaton
// Whether a mask at try->origin should begin no further item: the answer has few steps left.
bool ways_should_end(struct try *try);
static inline bool ways_failed(const struct try *try) {
    return try->automaton->exprs->err.status || try->log->err.status;
}
// Whether the byte may follow the state.
bool ways_lives(struct try *try, uint32_t state, unsigned char byte);
// Goes on by one byte. False: the byte does not fit.
bool ways_step(struct try *try, struct place *place, unsigned char byte);
// Whether an item that is new can come, or none must.
bool ways_has_way_out(struct try *try, const struct place *place);
// The same whatever items the array has. True: there is a way out in each case.
bool ways_always_has_way_out(struct try *try, const struct place *place);

// The memo of a state and of its position without the log; NULL after an error.
struct unique_memo *ways_memo(struct try *try, const struct place *place);
// From here on unique_log.watch says whether a step behind the place looks at what is before it.
void ways_watch(struct try *try, const struct place *place);
void ways_end_watch(struct try *try, struct unique_keys *absent); // the keys that were looked for
// Whether the object at hand has none of the keys.
bool ways_holds(struct try *try, const struct place *place, const struct unique_keys *absent);

#endif
