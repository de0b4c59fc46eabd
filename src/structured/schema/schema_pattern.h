/* The tree of an ECMA-262 expression: made by schema_pattern_parse.c, read by schema_pattern.c. */
#ifndef STRUCTURED_SCHEMA_PATTERN_H
#define STRUCTURED_SCHEMA_PATTERN_H

#include "base/arena.h"
#include "base/compiler.h"
#include "structured/schema/schema.h"

enum pattern_kind {
    PATTERN_SET, // one character
    PATTERN_SEQUENCE, // of the children
    PATTERN_CHOICE, // of the children
    PATTERN_REPEAT, // of the child
    // The others match the empty text.
    PATTERN_START,
    PATTERN_END,
    PATTERN_WORD_EDGE,
    PATTERN_NO_WORD_EDGE,
    PATTERN_AHEAD, // the child matches what follows
    PATTERN_NOT_AHEAD,
    PATTERN_BEHIND, // the child matches what is before
    PATTERN_NOT_BEHIND,
};

struct pattern_node {
    enum pattern_kind kind;
    uint32_t set; // expression of one character
    bool has_word, has_other; // of the set: characters of \w, other characters
    uint32_t min, max;
    struct pattern_node *child, *next; // the first child; the next one of the parent
};

struct pattern {
    struct exprs *exprs;
    struct arena arena;
    const char *text, *p, *end; // the next character is at p
    size_t depth;
    uint32_t any_text, word;
    struct err *err;
    enum status status;
};

// NULL after an error, which is in pattern->status. The arena owns the tree.
struct pattern_node *pattern_parse(struct pattern *pattern);

#endif
