/* A grammar that runs over bytes, and the masks of a vocabulary for its states.
 *
 * A state is a set of threads: each is an expression, which says what may follow in the terminal at
 * hand, and a set of stacks, which say what comes behind it. Equal states have one id. A state,
 * what follows it by a byte, and its mask are made when they are first asked for, then remembered.
 * So most masks are a look-up and a copy.
 *
 * An automaton is shared: its functions lock it. Sequences hold ids of states only (matcher.h).
 * Memory, and the steps of each call, are limited. A call that exceeds a limit returns ERR_CAPACITY
 * with a sentence, and the automaton stays usable as far as its memory allows. */
#ifndef STRUCTURED_AUTOMATON_H
#define STRUCTURED_AUTOMATON_H

#include "structured/grammar/grammar.h"
#include "structured/vocabulary/vocabulary.h"

struct automaton;
struct unique_log;
struct unique_position;

// 0 in a field: its default.
struct automaton_limits {
    uint64_t steps_max; // of one call, default 1 M
    size_t mask_bytes_max; // of remembered masks, default 16 MiB; then all are made again
    size_t row_bytes_max; // of remembered steps by a byte, likewise
    uint64_t search_steps_max; // for new items of one answer (unique items), default 16 M
};

// Takes `grammar`, also when it fails. Borrows the vocabulary, which must live longer. Refuses what
// grammar.h says. `limits` may be NULL. The caller holds the result once.
MUST_USE enum status automaton_create(struct automaton **out, struct grammar *grammar,
                                      const struct vocabulary *vocabulary,
                                      const struct automaton_limits *limits, struct err *err);
// One more holder. The last release destroys it; NULL is fine.
void automaton_hold(struct automaton *automaton);
void automaton_release(struct automaton *automaton);

enum {
    AUTOMATON_DEAD = 0
}; // the state of texts that cannot be continued to any text of the grammar

uint32_t automaton_start(const struct automaton *automaton);
// The state behind `bytes`. AUTOMATON_DEAD where they do not fit.
MUST_USE enum status automaton_advance(struct automaton *automaton, uint32_t state,
                                       const char *bytes, size_t len, uint32_t *next,
                                       struct err *err);
// Whether the text may end in the state.
bool automaton_can_end(struct automaton *automaton, uint32_t state);
// Writes the tokens that may come next: words[vocabulary->num_words], bit id % 32 of word id / 32.
// Ending tokens are allowed where the text may end. *num_allowed (may be NULL) is 0 or more than 0.
MUST_USE enum status automaton_mask(struct automaton *automaton, uint32_t state, uint32_t *words,
                                    bool *any_allowed, struct err *err);
// Whether some array has unique items. Then a state does not say all: what its text has in such
// arrays is beside it (unique/unique.h), and the next two functions are for such automata.
bool automaton_has_unique(const struct automaton *automaton);
// Reads `bytes`. *fits = false, and nothing has changed: they do not fit, or an array has an item
// twice, or has one begun that can only end as one that it has.
MUST_USE enum status automaton_advance_unique(struct automaton *automaton, uint32_t *state,
                                              struct unique_log *log,
                                              struct unique_position *position, const char *bytes,
                                              size_t len, bool *fits, struct err *err);
// automaton_mask, without the tokens that do not fit by that. The log is as before.
MUST_USE enum status automaton_mask_unique(struct automaton *automaton, uint32_t state,
                                           struct unique_log *log,
                                           const struct unique_position *position, uint32_t *words,
                                           bool *any_allowed, struct err *err);
// Appends to `out` the bytes that must come next: where one byte only may follow and the text may
// not end. At most `bytes_max`.
struct buf;
MUST_USE enum status automaton_forced(struct automaton *automaton, uint32_t state, size_t bytes_max,
                                      struct buf *out, struct err *err);

// Whether a token fits that begins with `bytes` and is longer. `state` is the one behind the bytes.
MUST_USE enum status automaton_has_longer(struct automaton *automaton, uint32_t state,
                                          const char *bytes, size_t len, bool *has,
                                          struct err *err);

// Whether half of its memory is used. It serves its sequences on, but whoever keeps automata for
// later requests makes a new one.
bool automaton_is_worn(struct automaton *automaton);

struct automaton_stats {
    uint64_t num_states, num_exprs, num_stacks;
    uint64_t num_masks, num_masks_made; // asked for, and not remembered
    double mask_seconds; // of making them
    size_t bytes;
};
void automaton_stats(struct automaton *automaton, struct automaton_stats *out);
const struct vocabulary *automaton_vocabulary(const struct automaton *automaton);

#endif
