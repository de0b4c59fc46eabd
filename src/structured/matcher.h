/* One sequence under a constraint: the state behind each of its tokens. Taking tokens back is
 * forgetting states, and a copy for another output of the same prompt copies their ids.
 *
 * One thread at a time uses a matcher; matchers of one automaton may be in different threads. */
#ifndef STRUCTURED_MATCHER_H
#define STRUCTURED_MATCHER_H

#include "base/text/buf.h"
#include "structured/automaton/automaton.h"
#include "structured/unique/unique.h"

struct matcher {
    struct automaton *automaton; // held
    uint32_t *states; // [num_tokens + 1]; states[0] is the start
    uint32_t num_tokens, capacity;
    // Of an automaton with arrays of unique items: what the text has in them; otherwise NULL.
    struct unique_position *positions; // [num_tokens + 1]
    struct unique_log *log;
    bool ended; // the last token was an ending one
};

// All-zero is empty. Holds the automaton.
MUST_USE enum status matcher_init(struct matcher *matcher, struct automaton *automaton,
                                  struct err *err);
MUST_USE enum status matcher_copy(struct matcher *out, const struct matcher *from, struct err *err);
void matcher_fini(struct matcher *matcher);

// The sequence has one more token. ERR_INVALID: the token does not fit, and nothing has changed.
// An ending token fits where the text may end; nothing fits behind it.
MUST_USE enum status matcher_take(struct matcher *matcher, int32_t token, struct err *err);
// The same for a part of a token, `bytes` [len], which counts as one.
MUST_USE enum status matcher_take_bytes(struct matcher *matcher, const char *bytes, size_t len,
                                        struct err *err);
// How many of the tokens fit one behind the other. Changes nothing: for drafts.
MUST_USE enum status matcher_fitting(const struct matcher *matcher, const int32_t *tokens,
                                     uint32_t num_tokens, uint32_t *num_fitting, struct err *err);
// Takes back tokens, so that `num_tokens` are left.
void matcher_rewind(struct matcher *matcher, uint32_t num_tokens);

bool matcher_can_end(const struct matcher *matcher);
// The tokens that may come next (automaton_mask). After an ending token these are the ending
// tokens.
MUST_USE enum status matcher_mask(const struct matcher *matcher, uint32_t *words, bool *any_allowed,
                                  struct err *err);
// The bytes that must come next (automaton_forced).
MUST_USE enum status matcher_forced(const struct matcher *matcher, size_t bytes_max,
                                    struct buf *out, struct err *err);

#endif
