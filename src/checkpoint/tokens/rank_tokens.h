/* Byte-level BPE by ranks (tiktoken): of all neighbours that make a token, those whose token has
 * the lowest rank are joined first, and a word that is a token is that token. So tokenizer.json
 * gets all pairs as merges, in the order of their tokens' ranks. The order within one token's pairs
 * is open: tiktoken joins the leftmost of the text. Two of them overlap only in a row such as
 * "aa a aa", which joins of lower ranks hardly ever leave. transformers converts the same way. */
#ifndef CHECKPOINT_TOKENS_RANK_TOKENS_H
#define CHECKPOINT_TOKENS_RANK_TOKENS_H

#include <stdint.h>

#include "checkpoint/tokens/token_json.h"

enum { RANK_IDS_MAX = 1 << 22 }; // tokens of all kinds

struct rank_tokens {
    struct token_text *tokens; // [count_max], by rank
    size_t count_max, count;
    char *bytes; // [bytes_max], of all tokens
    size_t bytes_max, num_bytes;
    const char *what; // the source, for errors
};

struct special_token {
    const char *text; // [len]; NULL: the filler's text, which has the number `filler` in it
    size_t len;
    uint64_t filler;
    bool is_plain; // a decoding that skips special tokens keeps it
};

struct special_tokens {
    const struct special_token *items; // [count]
    size_t count;
    uint64_t first_id;
    const char *filler_begin, *filler_end; // the text of a filler, around its number
};

// For ranks below count_max, with at most bytes_max bytes in all.
MUST_USE enum status rank_tokens_init(struct rank_tokens *tokens, size_t count_max,
                                      size_t bytes_max, const char *what, struct err *err);
void rank_tokens_fini(struct rank_tokens *tokens); // all-zero is fine
// Adds the token of base64 text. ERR_FORMAT: bad base64, an empty token, a rank that is taken.
MUST_USE enum status rank_tokens_add(struct rank_tokens *tokens, uint64_t rank, const char *base64,
                                     size_t len, struct err *err);
// Writes tokenizer.json. The ids are the ranks + first_id. bos: the id of a special token with a
// text of its own that is put before each text; -1: none. A byte without a token is ERR_FORMAT.
MUST_USE enum status rank_tokens_write(struct rank_tokens *tokens, uint64_t first_id,
                                       const struct special_tokens *special, const char *pattern,
                                       int64_t bos, struct json_out *out, struct err *err);

#endif
