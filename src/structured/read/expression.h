/* A regular expression of ECMA-262 that the whole answer must match, as vLLM's guided_regex.
 *
 * Its syntax and what is refused are those of "pattern" in a JSON schema (schema/schema.h), which
 * is the one reader of expressions. There an expression may match anywhere in a text; here it
 * begins with the answer and ends with it, with or without ^ and $. */
#ifndef STRUCTURED_EXPRESSION_H
#define STRUCTURED_EXPRESSION_H

#include "structured/grammar/grammar.h"

enum { EXPRESSION_BYTES_MAX = 1 << 16 };

// Adds a rule whose texts match `text` [len]. ERR_FORMAT: it is no expression; the message has the
// place. ERR_UNSUPPORTED: it has a part that is not regular, which the message names.
MUST_USE enum status expression_add(struct grammar *grammar, const char *text, size_t len,
                                    uint32_t *rule, struct err *err);

#endif
