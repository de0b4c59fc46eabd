/* Which tokens must come next, where the form leaves only one text.
 *
 * A text can be divided into tokens in many ways, and all of them are legal. Models are trained on
 * the tokenizer's own way. So where the next bytes are certain, only the tokens of that way are
 * allowed, as long as no longer token, reaching beyond the certain bytes, could stand in their
 * place. */
#ifndef STRUCTURED_FORCED_TOKENS_H
#define STRUCTURED_FORCED_TOKENS_H

#include "structured/matcher.h"
#include "text/tokenizer/tokenizer.h"

enum { FORCED_TOKENS_MAX = 64 };

// Writes the tokens, one behind the other; *num_tokens is 0 where the next one is not certain. The
// vocabulary is the tokenizer's. Changes nothing.
MUST_USE enum status forced_tokens(const struct matcher *matcher, const struct tokenizer *tokenizer,
                                   int32_t tokens[FORCED_TOKENS_MAX], uint32_t *num_tokens,
                                   struct err *err);

#endif
