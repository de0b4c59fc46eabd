/* Words that a request must not generate, as tokens. A word's last token is banned where the output
 * ends with all its other tokens, as in vLLM: a word may still come where it is cut into other
 * tokens. Allocates only in init. */
#ifndef ENGINE_BAD_WORDS_H
#define ENGINE_BAD_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tokenizer.h"

struct bad_word { // its tokens are ids[start, start + len)
    uint32_t start, len;
};

struct bad_words {
    int32_t *ids; // of all words
    struct bad_word *words; // [num_words] of two tokens and more, by their last token but one
    size_t num_words;
};

// Encodes each word of `texts` [num_texts] as vLLM does: alone and, where that is as many tokens of
// which the first is another, behind a space. Words of one token are banned in `always`, a mask as in
// token_mask.h, at once.
MUST_USE enum status bad_words_init(struct bad_words *bad, const char *const *texts,
                                    size_t num_texts, const struct tokenizer *tokenizer,
                                    uint32_t *always, struct err *err);
void bad_words_fini(struct bad_words *bad); // all-zero is fine

// Bans in `mask` what may not follow `generated` [num_generated]; whether that is anything. NULL: only
// looks.
bool bad_words_ban(const struct bad_words *bad, const int32_t *generated, uint32_t num_generated,
                   uint32_t *mask);

#endif
