/* Items and rules: shared by the builder and the compiler of programs. */
#ifndef STRUCTURED_GRAMMAR_INTERNAL_H
#define STRUCTURED_GRAMMAR_INTERNAL_H

#include "structured/expr/expr_internal.h"
#include "structured/grammar/grammar.h"

enum item_kind {
    ITEM_EMPTY,
    ITEM_TERMINAL, // expression a
    ITEM_CALL, // of rule a
    ITEM_SEQUENCE, // lists[a .. a + b)
    ITEM_CHOICE, // lists[a .. a + b)
    ITEM_REPEAT, // item a, b to c times
    ITEM_MEMBERS, // members[a], the items lists[b .. b + c)
    ITEM_UNIQUE, // no text: a value that follows must differ from those before
    ITEM_UNIQUE_KEYS, // no text: an object that follows has no key twice
};

struct grammar_item {
    uint8_t kind;
    bool nullable_body; // of a repetition, once resolved
    uint16_t depth; // of items in each other
    uint32_t a, b, c;
};

struct grammar_rule {
    char *name;
    uint32_t item;
    bool defined;
};

struct grammar {
    struct exprs *exprs; // has the sticky error too
    struct grammar_members *members; // [num_members], without their lists
    uint32_t num_members, members_capacity;
    struct grammar_item *items; // [num_items]
    uint32_t num_items, items_capacity;
    uint32_t *lists; // [lists_len]
    uint32_t lists_len, lists_capacity;
    struct grammar_rule *rules; // [num_rules]
    uint32_t num_rules, rules_capacity;
    uint32_t num_items_max, num_rules_max;
    uint32_t start;
    bool has_start;
};

// Replaces calls of rules that need no recursion by their expressions. Makes the sticky error where
// a rule that is reached is not defined or is left-recursive, or the start rule has no text.
void grammar_resolve(struct grammar *grammar);

#endif
