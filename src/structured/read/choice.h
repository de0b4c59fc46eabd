/* A list of texts, of which the answer is one. */
#ifndef STRUCTURED_CHOICE_H
#define STRUCTURED_CHOICE_H

#include "structured/grammar/grammar.h"

// Adds a rule whose texts are `texts`. ERR_INVALID: there is none, or one is not UTF-8.
MUST_USE enum status choice_add(struct grammar *grammar, const struct expr_text *texts,
                                size_t num_texts, uint32_t *rule, struct err *err);

#endif
