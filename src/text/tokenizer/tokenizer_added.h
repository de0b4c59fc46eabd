/* Added tokens: texts such as <|im_start|> that are cut out before the rest is encoded. The
 * leftmost is cut out first, and of those that begin at the same place the longest. Tokens matched
 * before normalisation and tokens matched after it are two separate sets. */
#ifndef TEXT_TOKENIZER_ADDED_H
#define TEXT_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/effort.h"

struct added_token {
    const char *text; // [len], the text to find
    size_t len;
    int32_t id;
    bool single_word; // matches only without a word character before or after it
    bool lstrip, rstrip; // takes along the white space before or after it
    bool normalized; // matched in the normalised text
};

struct added_set {
    struct added_token *tokens; // [num_tokens], by text
    size_t num_tokens, capacity;
    uint32_t first[257]; // tokens that begin with byte b are first[b] to first[b + 1] - 1
    int only_byte; // the byte that all tokens begin with; -1 when they differ
    const uint8_t *flags; // [UNICODE_END], borrowed
};

// Adds a token with a copy of its text, of at least one byte.
MUST_USE enum status added_set_put(struct added_set *set, const struct added_token *token,
                                   struct err *err);
// Call after the last put. *duplicate is a token that stands twice in the set, or NULL.
void added_set_finish(struct added_set *set, const uint8_t *flags,
                      const struct added_token **duplicate);
void added_set_fini(struct added_set *set); // all-zero is fine

// Cuts a text into pieces: plain ones (id -1) and added tokens. Start with the first four members
// set and all others zero.
struct added_cursor {
    const char *text; // [len]
    size_t len;
    struct effort *effort; // the search spends from the budget of patterns
    struct err *err; // may be NULL
    enum status status; // why added_next returned false; OK: the text is over
    size_t search; // where the search for the next token continues
    size_t done; // text before here has been handed out
    bool queued; // the next piece is an added token, with
    size_t queued_end; // this end
    int32_t queued_id; // and this id
    size_t start, end; // the piece
    int32_t id;
};
// The next piece. False: there are no more, or cursor->status is an error.
bool added_next(const struct added_set *set, struct added_cursor *cursor);

#endif
