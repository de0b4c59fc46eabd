/* The form of an answer as a tree of parts: the "format" of a structural tag, as xgrammar and vLLM
 * have it. Each part is an object whose "type" is one of
 *
 *     const_string {value}, regex {pattern}, grammar {grammar}
 *     json_schema {json_schema, name, best_effort}: a schema or its text; `name` is for messages;
 *         with best_effort any object does where the schema cannot be enforced
 *     structured_outputs {structured_outputs}: what this object asks for (outputs.h)
 *     any_text {excludes}: free text in which none of the texts of the list occurs
 *     any_tokens: the same, and any added tokens in it
 *     token {token}: one added token of the tokenizer, by its text
 *     sequence {elements}, or {elements}, optional {content}
 *     tag {begin, content, end}: `begin` is a text or a token
 *     triggered_tags {triggers, tags, at_least_one, stop_after_first}: tags in free text
 *     tags_with_separator {tags, separator, at_least_one, stop_after_first}: nothing but tags */
#ifndef STRUCTURED_TAG_FORMAT_H
#define STRUCTURED_TAG_FORMAT_H

#include <jansson.h>

#include "structured/schema/schema.h"
#include "structured/vocabulary/vocabulary.h"

// Adds a rule for the texts of `format`. The message of a fault names the part's place in it. The
// names of tokens must be in `vocabulary`; NULL: that is not checked.
MUST_USE enum status tag_format_add(struct grammar *grammar, const json_t *format,
                                    const struct schema_options *schema,
                                    const struct vocabulary *vocabulary, uint32_t *rule,
                                    struct err *err);
// Refuses an object that has a member which is not in the list. `members` ends with NULL.
MUST_USE enum status tag_format_check_members(const json_t *object, const char *const *members,
                                              const char *what, struct err *err);

#endif
