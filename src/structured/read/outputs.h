/* What a request asks of its answer's form, as vLLM's structured_outputs: a JSON object with one of
 *
 *     "json": a JSON schema, or its text
 *     "json_object": true
 *     "regex": an expression that matches the whole answer
 *     "choice": a list of texts
 *     "grammar": GBNF or EBNF (gbnf.h)
 *     "structural_tag": {"structures": [{"begin", "schema", "end"}], "triggers": [...]}, or
 *                       {"format": ...} (tag_format.h), or the text of one of them
 *
 * Beside "json" and "json_object" may stand "whitespace_pattern", "disable_any_whitespace",
 * "disable_additional_properties" and "any_key_order". null is as good as absent. */
#ifndef STRUCTURED_OUTPUTS_H
#define STRUCTURED_OUTPUTS_H

#include <jansson.h>

#include "structured/grammar/grammar.h"
#include "structured/vocabulary/vocabulary.h"

// ERR_FORMAT, ERR_INVALID: the text is no such object, or its constraint has a fault;
// ERR_UNSUPPORTED: a part of it cannot be enforced. The message names the member. The tokens that
// it names must be in `vocabulary`; NULL: that is not checked.
MUST_USE enum status outputs_read(struct grammar **out, const char *text, size_t len,
                                  const struct vocabulary *vocabulary, struct err *err);
// Adds a rule for the texts of such an object that stands inside a structural_tag. It has none of
// its own.
MUST_USE enum status outputs_add(struct grammar *grammar, const json_t *object,
                                 const struct vocabulary *vocabulary, uint32_t *rule,
                                 struct err *err);

#endif
