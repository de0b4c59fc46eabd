#include "structured/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "structured/grammar/grammar_internal.h"

enum { ITEMS_MAX = 4 << 20, RULES_MAX = 100000, DEPTH_MAX = 500 };

enum status grammar_create(struct grammar **out, const struct grammar_limits *limits,
                           struct err *err) {
    struct grammar *grammar = calloc(1, sizeof *grammar);
    if (!grammar) return err_nomem(err, "structured output");
    grammar->num_items_max = limits && limits->num_items_max ? limits->num_items_max : ITEMS_MAX;
    grammar->num_rules_max = limits && limits->num_rules_max ? limits->num_rules_max : RULES_MAX;
    enum status status = exprs_create(&grammar->exprs, limits ? &limits->exprs : NULL, err);
    if (!status) {
        if (exprs_grow(grammar->exprs, &grammar->items, &grammar->items_capacity, 1,
                       sizeof *grammar->items)) {
            grammar->items[grammar->num_items++] = (struct grammar_item){.kind = ITEM_EMPTY};
        }
        status = grammar_status(grammar, err);
    }
    if (status) {
        grammar_destroy(grammar);
        return status;
    }
    *out = grammar;
    return OK;
}

void grammar_destroy(struct grammar *grammar) {
    if (!grammar) return;
    for (uint32_t i = 0; i < grammar->num_rules; i++) free(grammar->rules[i].name);
    free(grammar->rules);
    free(grammar->items);
    free(grammar->lists);
    free(grammar->members);
    exprs_destroy(grammar->exprs);
    free(grammar);
}

enum status grammar_status(const struct grammar *grammar, struct err *err) {
    return exprs_status(grammar->exprs, err);
}

struct exprs *grammar_exprs(struct grammar *grammar) {
    return grammar->exprs;
}

// ---- rules ----

uint32_t grammar_rule(struct grammar *grammar, const char *name) {
    if (grammar->exprs->err.status) return 0;
    if (grammar->num_rules == grammar->num_rules_max) {
        return exprs_fail(grammar->exprs, ERR_CAPACITY, "the grammar has more than %u rules",
                          grammar->num_rules_max);
    }
    if (!exprs_grow(grammar->exprs, &grammar->rules, &grammar->rules_capacity,
                    grammar->num_rules + 1, sizeof *grammar->rules)) {
        return 0;
    }
    char *copy = strdup(name);
    if (!copy) return exprs_fail(grammar->exprs, ERR_NOMEM, "out of memory: structured output");
    grammar->rules[grammar->num_rules] = (struct grammar_rule){.name = copy};
    return grammar->num_rules++;
}

void grammar_define(struct grammar *grammar, uint32_t rule, uint32_t item) {
    if (grammar->exprs->err.status) return;
    if (grammar->rules[rule].defined) {
        exprs_fail(grammar->exprs, ERR_INVALID, "the rule %.100s is defined twice",
                   grammar->rules[rule].name);
        return;
    }
    grammar->rules[rule].item = item;
    grammar->rules[rule].defined = true;
}

void grammar_start(struct grammar *grammar, uint32_t rule) {
    grammar->start = rule;
    grammar->has_start = true;
}

// ---- items ----

static uint32_t add_item(struct grammar *grammar, struct grammar_item item) {
    if (!exprs_count(grammar->exprs, 1)) return GRAMMAR_EMPTY;
    if (grammar->num_items + grammar->lists_len >= grammar->num_items_max) {
        return exprs_fail(grammar->exprs, ERR_CAPACITY, "the grammar has more than %u items",
                          grammar->num_items_max);
    }
    if (item.depth > DEPTH_MAX) {
        return exprs_fail(grammar->exprs, ERR_CAPACITY, "the grammar nests more than %d items",
                          DEPTH_MAX);
    }
    if (!exprs_grow(grammar->exprs, &grammar->items, &grammar->items_capacity,
                    grammar->num_items + 1, sizeof *grammar->items)) {
        return GRAMMAR_EMPTY;
    }
    grammar->items[grammar->num_items] = item;
    return grammar->num_items++;
}

uint32_t grammar_terminal(struct grammar *grammar, uint32_t expr) {
    if (expr == EXPR_EPSILON) return GRAMMAR_EMPTY;
    return add_item(grammar, (struct grammar_item){.kind = ITEM_TERMINAL, .a = expr});
}

uint32_t grammar_call(struct grammar *grammar, uint32_t rule) {
    return add_item(grammar, (struct grammar_item){.kind = ITEM_CALL, .a = rule});
}

bool grammar_as_expr(const struct grammar *grammar, uint32_t item, uint32_t *expr) {
    const struct grammar_item *node = &grammar->items[item];
    if (node->kind == ITEM_EMPTY) *expr = EXPR_EPSILON;
    if (node->kind == ITEM_TERMINAL) *expr = node->a;
    return node->kind <= ITEM_TERMINAL;
}

// Makes the list scratch[base ..] an item, and pops it.
static uint32_t add_list(struct grammar *grammar, enum item_kind kind, uint32_t base) {
    struct exprs *exprs = grammar->exprs;
    uint32_t len = exprs->scratch_len - base, result = GRAMMAR_EMPTY;
    bool fine = exprs->err.status == OK;
    if (fine && len == 1) {
        result = exprs->scratch[base];
    } else if (fine && len > 1 &&
               exprs_grow(exprs, &grammar->lists, &grammar->lists_capacity,
                          grammar->lists_len + len, sizeof *grammar->lists)) {
        struct grammar_item item = {.kind = (uint8_t)kind, .a = grammar->lists_len, .b = len};
        for (uint32_t i = 0; i < len; i++) {
            uint32_t child = exprs->scratch[base + i];
            grammar->lists[grammar->lists_len++] = child;
            uint16_t depth = (uint16_t)(grammar->items[child].depth + 1);
            if (depth > item.depth) item.depth = depth;
        }
        result = add_item(grammar, item);
    }
    exprs->scratch_len = base;
    return result;
}

bool grammar_rule_as_expr(const struct grammar *grammar, uint32_t rule, uint32_t *expr) {
    return grammar_as_expr(grammar, grammar->rules[rule].item, expr);
}

// Pushes an item of a sequence; a terminal behind a terminal joins it.
static bool push_next(struct grammar *grammar, uint32_t item, uint32_t base) {
    struct exprs *exprs = grammar->exprs;
    uint32_t expr = 0, before = 0;
    if (item == GRAMMAR_EMPTY) return true;
    if (exprs->scratch_len > base && grammar_as_expr(grammar, item, &expr) &&
        grammar_as_expr(grammar, exprs->scratch[exprs->scratch_len - 1], &before)) {
        exprs->scratch_len--;
        item = grammar_terminal(grammar, expr_concat(exprs, before, expr));
    }
    return exprs_push(exprs, item);
}

uint32_t grammar_sequence(struct grammar *grammar, const uint32_t *items, size_t num_items) {
    uint32_t base = grammar->exprs->scratch_len;
    for (size_t i = 0; i < num_items; i++) {
        struct grammar_item node = grammar->items[items[i]];
        bool fits = true;
        if (node.kind != ITEM_SEQUENCE) {
            fits = push_next(grammar, items[i], base);
        }
        for (uint32_t k = 0; node.kind == ITEM_SEQUENCE && k < node.b && fits; k++) {
            fits = push_next(grammar, grammar->lists[node.a + k], base);
        }
        if (!fits) break;
    }
    return add_list(grammar, ITEM_SEQUENCE, base);
}

uint32_t grammar_choice(struct grammar *grammar, const uint32_t *items, size_t num_items) {
    struct exprs *exprs = grammar->exprs;
    uint32_t base = exprs->scratch_len;
    for (size_t i = 0; i < num_items; i++) {
        uint32_t expr;
        if (grammar_as_expr(grammar, items[i], &expr) && !exprs_push(exprs, expr)) break;
    }
    bool has_terminals = exprs->scratch_len > base;
    uint32_t joined = exprs_alt_scratch(exprs, base);
    if (has_terminals || num_items == 0) exprs_push(exprs, grammar_terminal(grammar, joined));
    for (size_t i = 0; i < num_items; i++) {
        uint32_t expr;
        if (!grammar_as_expr(grammar, items[i], &expr) && !exprs_push(exprs, items[i])) break;
    }
    return add_list(grammar, ITEM_CHOICE, base);
}

// Whether counting the iterations in stacks pays. The automaton forgets how many there were, as
// long as a token cannot reach the last (states_loosen), so all but the last share masks. It does
// so for a counter that an expression begins with too, but not for one that comes far behind.
static bool is_counted_by_stacks(const struct grammar *grammar, uint32_t body, uint32_t count) {
    enum { BYTES = 256 }; // more than most vocabularies' longest token
    return (uint64_t)count * exprs_shortest(grammar->exprs, body, BYTES) >= BYTES &&
           grammar->exprs->nodes[body].kind == EXPR_KIND_CONCAT;
}

uint32_t grammar_repeat(struct grammar *grammar, uint32_t item, uint32_t min, uint32_t max) {
    uint32_t expr;
    if (grammar->exprs->err.status) return GRAMMAR_EMPTY;
    uint32_t count = max == EXPR_FOREVER ? min : max;
    if (grammar_as_expr(grammar, item, &expr) && !is_counted_by_stacks(grammar, expr, count)) {
        return grammar_terminal(grammar, expr_repeat(grammar->exprs, expr, min, max));
    }
    if (min > max) {
        return exprs_fail(grammar->exprs, ERR_INVALID, "a repetition {%u,%u}", min, max);
    }
    if (max == 0) return GRAMMAR_EMPTY;
    if (min == 1 && max == 1) return item;
    uint16_t depth = (uint16_t)(grammar->items[item].depth + 1);
    return add_item(
        grammar,
        (struct grammar_item){.kind = ITEM_REPEAT, .depth = depth, .a = item, .b = min, .c = max});
}

static void add_depth(const struct grammar *grammar, struct grammar_item *item, uint32_t child) {
    uint16_t depth = (uint16_t)(grammar->items[child].depth + 1);
    if (depth > item->depth) item->depth = depth;
}

uint32_t grammar_members(struct grammar *grammar, const struct grammar_members *members) {
    struct exprs *exprs = grammar->exprs;
    uint32_t num_items = members->num_items;
    if (!exprs_grow(exprs, &grammar->lists, &grammar->lists_capacity,
                    grammar->lists_len + num_items, sizeof *grammar->lists) ||
        !exprs_grow(exprs, &grammar->members, &grammar->members_capacity, grammar->num_members + 1,
                    sizeof *grammar->members)) {
        return GRAMMAR_EMPTY;
    }
    struct grammar_item item = {
        .kind = ITEM_MEMBERS, .a = grammar->num_members, .b = grammar->lists_len, .c = num_items};
    add_depth(grammar, &item, members->other);
    add_depth(grammar, &item, members->extra);
    for (uint32_t i = 0; i < num_items; i++) {
        add_depth(grammar, &item, members->items[i]);
        grammar->lists[grammar->lists_len++] = members->items[i];
    }
    grammar->members[grammar->num_members] = *members;
    grammar->members[grammar->num_members++].items = NULL;
    return add_item(grammar, item);
}

uint32_t grammar_unique(struct grammar *grammar) {
    return add_item(grammar, (struct grammar_item){.kind = ITEM_UNIQUE});
}

uint32_t grammar_unique_keys(struct grammar *grammar) {
    return add_item(grammar, (struct grammar_item){.kind = ITEM_UNIQUE_KEYS});
}

uint32_t grammar_optional(struct grammar *grammar, uint32_t item) {
    return grammar_choice(grammar, (uint32_t[]){item, GRAMMAR_EMPTY}, 2);
}
