/* JSON Schema to a grammar: the texts of the rule are JSON texts that the schema allows.
 *
 * Reads draft 2020-12, and the forms of older drafts that people still write: definitions, lists in
 * items, dependencies, a boolean exclusiveMinimum. The keywords that it enforces are in
 * doc/structured.md. It never gives a text that the schema forbids: a keyword that cannot be
 * enforced is refused with a sentence that names it and its place.
 *
 * Keys come in the order in which the schema names them, each at most once, and the others behind
 * them. With any_key_order they come in any order. */
#ifndef STRUCTURED_SCHEMA_H
#define STRUCTURED_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

#include "structured/grammar/grammar.h"

enum schema_space {
    SCHEMA_SPACE_BOUNDED, // between tokens: a blank or two, or a line end and an indentation
    SCHEMA_SPACE_NONE, // {"a":1,"b":[2,3]}
};

// All-zero is the default.
struct schema_options {
    enum schema_space space;
    // An ECMA-262 expression for the white space between tokens, instead of `space`; NULL: none.
    const char *space_pattern;
    // Objects have only keys that the schema names, as if it said additionalProperties false
    // wherever it says nothing.
    bool no_additional_properties;
    bool any_key_order; // of objects; otherwise keys come in the order of the schema
    size_t bytes_max; // of memory for reading, beside the grammar; 0: 64 MiB
};

// One keyword that is not enforced.
struct schema_finding {
    bool refused; // the schema is refused for it; otherwise the standard lets readers ignore it
    char *text; // "#/properties/a: keyword "contains" ..."
};
// All-zero is empty.
struct schema_report {
    struct schema_finding *findings; // [num_findings]
    size_t num_findings, capacity;
};
void schema_report_fini(struct schema_report *report);

// Adds rules to `grammar`; the texts of *rule are those that `schema` allows. ERR_UNSUPPORTED: what
// cannot be enforced; the message is the first of report's refused findings. ERR_FORMAT: this is no
// schema. ERR_CAPACITY: it is too large. `options` and `report` may be NULL. A grammar that failed
// is of no further use.
MUST_USE enum status schema_add(struct grammar *grammar, const json_t *schema,
                                const struct schema_options *options, uint32_t *rule,
                                struct schema_report *report, struct err *err);

// The texts (decoded, in UTF-8) in which the ECMA-262 expression finds a match. Sets *expr;
// ERR_FORMAT: it is no expression, ERR_UNSUPPORTED: it has a part that is not regular.
MUST_USE enum status schema_pattern(struct exprs *exprs, const char *pattern, size_t len,
                                    uint32_t *expr, struct err *err);
// The texts that the expression matches from their first to their last character.
MUST_USE enum status schema_pattern_whole(struct exprs *exprs, const char *pattern, size_t len,
                                          uint32_t *expr, struct err *err);

#endif
