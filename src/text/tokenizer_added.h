/* Added tokens: texts such as <|im_start|> that are cut out before anything else is done, the
 * leftmost first and of those that begin at the same place the longest. Tokens that are matched
 * before normalisation and those matched after it are two separate sets. */
#ifndef TEXT_TOKENIZER_ADDED_H
#define TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/effort.h"

struct added_token {
    const char *text; // [len], what is looked for
    size_t len;
    int32_t id;
    bool single_word; // not when a word character stands beside it
    bool lstrip, rstrip; // takes the white space before or after it
    bool normalized; // looked for in the normalised text
};

struct added_set {
    struct added_token *tokens; // [num_tokens], by text
    size_t num_tokens, capacity;
    uint32_t first[257]; // tokens that begin with byte b are first[b] to first[b + 1] - 1
    int only_byte; // the byte that all begin with, -1 when they differ
    const uint8_t *flags; // [UNICODE_END], borrowed
};

// Adds a token with a copy of its text, of at least one byte.
MUST_USE enum status added_set_put(struct added_set *set, const struct added_token *token,
                                   struct err *err);
// After the last put. *duplicate is a token that another one equals, NULL when there is none.
void added_set_finish(struct added_set *set, const uint8_t *flags,
                      const struct added_token **duplicate);
void added_set_fini(struct added_set *set); // all-zero is fine

// Cuts a text into pieces: plain ones (id -1) and added tokens. Start all-zero but these four.
struct added_cursor {
    const char *text; // [len]
    size_t len;
    struct effort *effort; // what looking for tokens takes is part of it, as patterns are
    struct err *err; // may be NULL
    enum status status; // not OK: added_next returned false because of it
    size_t search; // where to look for the next token
    size_t done; // text before here has been handed out
    size_t queued_end; // an added token that comes next: its end and
    int32_t queued_id; // its id
    bool queued;
    size_t start, end; // the piece
    int32_t id;
};
// False: there are no more, or cursor->status.
bool added_next(const struct added_set *set, struct added_cursor *cursor);

#endif
