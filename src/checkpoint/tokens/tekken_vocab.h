/* The list "vocab" of tekken.json, read token by token (base/json/json_span.h says why). Nearly all
 * tokens are objects of a rank, the token's bytes and its text, which are read by hand. jansson
 * reads a token of any other form, and says what is wrong with it. */
#ifndef CHECKPOINT_TOKENS_TEKKEN_VOCAB_H
#define CHECKPOINT_TOKENS_TEKKEN_VOCAB_H

#include "base/json/json_span.h"

struct tekken_vocab {
    struct json_span list; // with its brackets; no text: there is none
    const char *what; // the source, for errors
    const char *p; // behind the last token; NULL: before the first
};

struct tekken_token {
    int64_t rank; // -1: none is given
    struct json_span bytes; // in base64, borrowed; no text: none are given
    json_t *item; // of jansson, or NULL
};

// The next token, for tekken_token_fini. *found = false after the last.
MUST_USE enum status tekken_vocab_next(struct tekken_vocab *vocab, struct tekken_token *token,
                                       bool *found, struct err *err);
void tekken_token_fini(struct tekken_token *token); // all-zero is fine

#endif
