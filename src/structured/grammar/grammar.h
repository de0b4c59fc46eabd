/* A grammar: what readers of JSON schemas, GBNF and the like build, and automaton.h runs.
 *
 * Rules are made of items. An item is a terminal (an expression, expr.h), a call of a rule, a
 * sequence, a choice, or a repetition of items. Rules may call each other and themselves. Choices
 * need not exclude each other: all ways to read a text are followed at the same time. There is no
 * lexer: a terminal may end wherever its expression has a match, and the next item begins there. So
 * a text belongs to the grammar exactly where some derivation in the usual sense produces it.
 *
 * What needs no recursion is better one expression than many items: fewer stacks, and only
 * expressions have intersection, complement and a question for emptiness.
 *
 * Refused when compiled, with a sentence that names the rule: a rule that is not defined, left
 * recursion, a start rule that has no text. A choice of a rule that has no text is dropped.
 *
 *     struct grammar *grammar;
 *     status = grammar_create(&grammar, NULL, err);
 *     struct exprs *exprs = grammar_exprs(grammar);
 *     uint32_t list = grammar_rule(grammar, "list");
 *     uint32_t items[] = {grammar_terminal(grammar, expr_string(exprs, "(")),
 *                         grammar_repeat(grammar, grammar_call(grammar, list), 0, EXPR_FOREVER),
 *                         grammar_terminal(grammar, expr_string(exprs, ")"))};
 *     grammar_define(grammar, list, grammar_sequence(grammar, items, 3));
 *     grammar_start(grammar, list);
 *     status = grammar_status(grammar, err);
 *
 * Errors are sticky as in expr.h. Items and rules are uint32_t, valid in their grammar; an item may
 * be used in several places. One thread builds; a grammar has no lock. */
#ifndef STRUCTURED_GRAMMAR_H
#define STRUCTURED_GRAMMAR_H

#include "structured/expr/expr.h"

struct grammar;

enum { GRAMMAR_EMPTY = 0 }; // the item that is the empty text; also returned after an error

struct grammar_limits {
    struct expr_limits exprs;
    uint32_t num_items_max; // items, and their places in lists; 0: 4 M
    uint32_t num_rules_max; // 0: 100,000
};

// Allocates. `limits` may be NULL.
MUST_USE enum status grammar_create(struct grammar **out, const struct grammar_limits *limits,
                                    struct err *err);
void grammar_destroy(struct grammar *grammar); // NULL is fine
// OK, or the first error of a constructor of the grammar or of its expressions.
MUST_USE enum status grammar_status(const struct grammar *grammar, struct err *err);
struct exprs *grammar_exprs(struct grammar *grammar); // owned by the grammar

// A new rule; `name` is copied and only serves in errors. Two rules may have one name.
uint32_t grammar_rule(struct grammar *grammar, const char *name);
// Each rule is defined once.
void grammar_define(struct grammar *grammar, uint32_t rule, uint32_t item);
// The rule that whole texts belong to.
void grammar_start(struct grammar *grammar, uint32_t rule);

uint32_t grammar_terminal(struct grammar *grammar, uint32_t expr);
uint32_t grammar_call(struct grammar *grammar, uint32_t rule);
// Neighbours that are terminals become one terminal.
uint32_t grammar_sequence(struct grammar *grammar, const uint32_t *items, size_t num_items);
// Terminals become one terminal.
uint32_t grammar_choice(struct grammar *grammar, const uint32_t *items, size_t num_items);
// A counter, not copies. max >= min or EXPR_FOREVER.
uint32_t grammar_repeat(struct grammar *grammar, uint32_t item, uint32_t min, uint32_t max);
uint32_t grammar_optional(struct grammar *grammar, uint32_t item);
// Items in any order. Each of `items` comes at most once,
// `other` any number of times. Each begins with a terminal that is not empty.
struct grammar_members {
    const uint32_t *items; // [num_items]; the first num_required of them must come
    uint32_t num_items, num_required;
    uint32_t other; // GRAMMAR_EMPTY: none
    uint32_t extra; // must come, once; GRAMMAR_EMPTY: none
    uint32_t first, comma; // expressions: before the first item, and before each other one
    uint32_t min, max; // of all items that come
};
uint32_t grammar_members(struct grammar *grammar, const struct grammar_members *members);
// No text. A JSON value that follows at once is an item of an array with unique items
// (unique/unique.h): matchers take it only where the array has none that is equal.
uint32_t grammar_unique(struct grammar *grammar);
// No text. An object that follows at once, and those inside it, have no key twice.
uint32_t grammar_unique_keys(struct grammar *grammar);
// Whether the item is a terminal or GRAMMAR_EMPTY; then *expr is its expression.
bool grammar_as_expr(const struct grammar *grammar, uint32_t item, uint32_t *expr);
// The same for the item of a rule that is defined.
bool grammar_rule_as_expr(const struct grammar *grammar, uint32_t rule, uint32_t *expr);

#endif
