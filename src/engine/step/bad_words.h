/* Words that a request must not generate, as tokens. As in vLLM, a word's last token is banned
 * where the output ends with all its other tokens. So a word may still come as other tokens.
 * Allocates only in init. */
#ifndef ENGINE_BAD_WORDS_H
#define ENGINE_BAD_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

struct bad_word { // its tokens are ids[start, start + len)
    uint32_t start, len;
};

struct bad_words {
    int32_t *ids; // of all words
    struct bad_word *words; // [num_words], each of at least two tokens; sorted by the last but one
    size_t num_words;
};

// Encodes each word of `texts` [num_texts] as vLLM does: alone and behind a space. The second form
// is kept if it has as many tokens and another first token. Words of one token are banned at once
// in `always`, a mask as in token_mask.h.
MUST_USE enum status bad_words_init(struct bad_words *bad, const char *const *texts,
                                    size_t num_texts, const struct tokenizer *tokenizer,
                                    uint32_t *always, struct err *err);
void bad_words_fini(struct bad_words *bad); // all-zero is fine

// Bans in `mask` the tokens that must not follow `generated` [num_generated]. Returns whether there
// are any. `mask` NULL: only looks.
bool bad_words_ban(const struct bad_words *bad, const int32_t *generated, uint32_t num_generated,
                   uint32_t *mask);

#endif
