/* The vocabulary of a tokenizer. */
#ifndef STRUCTURED_VOCABULARY_TOKENIZER_H
#define STRUCTURED_VOCABULARY_TOKENIZER_H

#include "structured/vocabulary/vocabulary.h"

struct tokenizer;

// The tokens of a model that generates ids below `vocab_size`. Ids without a token have no text.
MUST_USE enum status vocabulary_of_tokenizer(struct vocabulary **out,
                                             const struct tokenizer *tokenizer, uint32_t vocab_size,
                                             const int32_t *ending, uint32_t num_ending,
                                             struct err *err);

#endif
