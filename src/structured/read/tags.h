/* Structural tags: free text, with constraints between marks. For example text in which each
 * <function=NAME> is followed by arguments that fit the function's schema, and by </function>. */
#ifndef STRUCTURED_TAGS_H
#define STRUCTURED_TAGS_H

#include "structured/grammar/grammar.h"

struct tag {
    struct expr_text begin, end; // `end` may be empty
    bool special; // `begin` is a token of the tokenizer, not its text (expr_special_token)
    uint32_t content; // item of the grammar
};

struct tags_options {
    // Free text ends with the first of these; then a tag whose `begin` starts so must follow. Of
    // tags that begin with a token free text has no triggers at all. NULL: the texts that tags
    // begin with.
    const struct expr_text *triggers; // [num_triggers]
    size_t num_triggers;
    bool only_tags; // no free text before, between and behind tags
    struct expr_text separator; // between tags, with only_tags
    bool at_least_one;
    bool at_most_one; // nothing follows the first tag
};

// Adds a rule for the texts. Free text is UTF-8 in which no trigger occurs. ERR_INVALID: there is
// no tag, a tag has no beginning or starts with no trigger, a trigger starts no tag.
MUST_USE enum status tags_add(struct grammar *grammar, const struct tag *tags, size_t num_tags,
                              const struct tags_options *options, uint32_t *rule, struct err *err);

#endif
