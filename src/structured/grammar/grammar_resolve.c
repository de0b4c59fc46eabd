/* What must be known of all rules before a program can be made of them: which are defined, which
 * have a text, which may be empty, which recursion is on the left. Then the rules that need no
 * recursion are replaced by expressions. */
#include <stdlib.h>
#include <string.h>

#include "structured/grammar/grammar_internal.h"

enum rule_state { RULE_NEW, RULE_OPEN, RULE_DONE };

struct resolver {
    struct grammar *grammar;
    struct exprs *exprs;
    uint8_t *states; // [num_rules] enum rule_state
    bool *nullable, *productive; // [num_rules]
    uint32_t *order; // [num_order] rules that the start needs, callees mostly first
    uint32_t num_order;
    uint32_t depth;
};

static struct grammar_item item_of(const struct resolver *resolver, uint32_t item) {
    return resolver->grammar->items[item];
}

// ---- which rules are needed ----

// Lists the rules that are called in the item: pushes them on the scratch stack.
static void push_calls(struct resolver *resolver, uint32_t item) {
    struct grammar_item node = item_of(resolver, item);
    if (!exprs_count(resolver->exprs, 1)) return;
    if (node.kind == ITEM_CALL) {
        exprs_push(resolver->exprs, node.a);
    } else if (node.kind == ITEM_REPEAT) {
        push_calls(resolver, node.a);
    } else if (node.kind == ITEM_SEQUENCE || node.kind == ITEM_CHOICE) {
        for (uint32_t i = 0; i < node.b; i++) {
            push_calls(resolver, resolver->grammar->lists[node.a + i]);
        }
    } else if (node.kind == ITEM_MEMBERS) {
        push_calls(resolver, resolver->grammar->members[node.a].other);
        push_calls(resolver, resolver->grammar->members[node.a].extra);
        for (uint32_t i = 0; i < node.c; i++) {
            push_calls(resolver, resolver->grammar->lists[node.b + i]);
        }
    }
}

// Depth first over the calls. The scratch stack holds, for each open rule, the rule itself and
// above it those of its calls that are still to do; without recursion of C, as rules may be many.
static void order_rules(struct resolver *resolver) {
    struct exprs *exprs = resolver->exprs;
    uint32_t base = exprs->scratch_len;
    exprs_push(exprs, resolver->grammar->start);
    while (exprs->scratch_len > base && !exprs->err.status) {
        uint32_t rule = exprs->scratch[exprs->scratch_len - 1];
        uint8_t *state = &resolver->states[rule];
        if (*state == RULE_NEW) {
            const struct grammar_rule *def = &resolver->grammar->rules[rule];
            if (!def->defined) {
                exprs_fail(exprs, ERR_INVALID, "the rule %.100s is not defined", def->name);
                break;
            }
            *state = RULE_OPEN;
            uint32_t own = exprs->scratch_len, out = own;
            push_calls(resolver, def->item);
            for (uint32_t i = own; i < exprs->scratch_len; i++) {
                uint32_t callee = exprs->scratch[i];
                if (resolver->states[callee] == RULE_NEW) exprs->scratch[out++] = callee;
            }
            exprs->scratch_len = out;
            continue;
        }
        if (*state == RULE_OPEN) {
            *state = RULE_DONE;
            resolver->order[resolver->num_order++] = rule;
        }
        exprs->scratch_len--;
    }
    exprs->scratch_len = base;
}

// ---- empty texts, and no text ----

// A property that a sequence has if all its items have it, and a choice if one of them has it.
struct property {
    bool (*of_terminal)(struct exprs *exprs, uint32_t expr);
    const bool *of_rule; // [num_rules] as far as it is known
};

static bool holds(struct resolver *resolver, uint32_t item, const struct property *property);

// Members have a text if those that must come have one, and if enough may come.
static bool members_hold(struct resolver *resolver, struct grammar_item node,
                         const struct property *property) {
    const struct grammar_members *members = &resolver->grammar->members[node.a];
    uint32_t found = 0;
    if (members->extra && !holds(resolver, members->extra, property)) return false;
    for (uint32_t i = 0; i < node.c; i++) {
        bool item_holds = holds(resolver, resolver->grammar->lists[node.b + i], property);
        if (i < members->num_required && !item_holds) return false;
        found += item_holds;
    }
    found += members->extra != GRAMMAR_EMPTY;
    return found >= members->min || (members->other && holds(resolver, members->other, property));
}

static bool holds(struct resolver *resolver, uint32_t item, const struct property *property) {
    struct grammar_item node = item_of(resolver, item);
    if (!exprs_count(resolver->exprs, 1)) return false;
    bool found;
    switch ((enum item_kind)node.kind) {
    case ITEM_EMPTY:
    case ITEM_UNIQUE:
    case ITEM_UNIQUE_KEYS:
        return true;
    case ITEM_TERMINAL:
        return property->of_terminal(resolver->exprs, node.a);
    case ITEM_CALL:
        return property->of_rule[node.a];
    case ITEM_SEQUENCE:
    case ITEM_CHOICE:
        found = node.kind == ITEM_SEQUENCE;
        for (uint32_t i = 0; i < node.b && found == (node.kind == ITEM_SEQUENCE); i++) {
            found = holds(resolver, resolver->grammar->lists[node.a + i], property);
        }
        return found;
    case ITEM_REPEAT:
        return node.b == 0 || holds(resolver, node.a, property);
    case ITEM_MEMBERS:
        return members_hold(resolver, node, property);
    }
    return false;
}

static bool terminal_is_nullable(struct exprs *exprs, uint32_t expr) {
    return expr_is_nullable(exprs, expr);
}

// It has the empty text.
static bool is_nullable(struct resolver *resolver, uint32_t item) {
    return holds(resolver, item, &(struct property){terminal_is_nullable, resolver->nullable});
}

// It has a text.
static bool is_productive(struct resolver *resolver, uint32_t item) {
    return holds(resolver, item, &(struct property){exprs_is_live, resolver->productive});
}

// Goes over the rules, there and back, until nothing changes.
static void find_properties(struct resolver *resolver) {
    bool changed = true;
    for (uint32_t pass = 0; changed && !resolver->exprs->err.status; pass++) {
        changed = false;
        for (uint32_t i = 0; i < resolver->num_order; i++) {
            uint32_t at = pass % 2 ? resolver->num_order - 1 - i : i;
            uint32_t rule = resolver->order[at], item = resolver->grammar->rules[rule].item;
            bool nullable = resolver->nullable[rule] || is_nullable(resolver, item);
            bool productive = resolver->productive[rule] || is_productive(resolver, item);
            changed |=
                nullable != resolver->nullable[rule] || productive != resolver->productive[rule];
            resolver->nullable[rule] = nullable;
            resolver->productive[rule] = productive;
        }
    }
}

// ---- left recursion ----

// Pushes the rules that can be called before the item has taken a byte. Returns whether all of the
// item may be passed so.
static bool push_left_calls(struct resolver *resolver, uint32_t item) {
    struct grammar_item node = item_of(resolver, item);
    if (!exprs_count(resolver->exprs, 1)) return false;
    if (node.kind == ITEM_CALL) {
        if (resolver->productive[node.a]) exprs_push(resolver->exprs, node.a);
        return resolver->nullable[node.a];
    }
    if (node.kind == ITEM_REPEAT) return push_left_calls(resolver, node.a) || node.b == 0;
    if (node.kind >= ITEM_UNIQUE) return true;
    if (node.kind == ITEM_MEMBERS) return is_nullable(resolver, item); // `first` comes before
    bool passes = node.kind != ITEM_CHOICE;
    if (node.kind < ITEM_SEQUENCE) return is_nullable(resolver, item);
    for (uint32_t i = 0; i < node.b; i++) {
        bool next = push_left_calls(resolver, resolver->grammar->lists[node.a + i]);
        if (node.kind == ITEM_CHOICE) passes |= next;
        if (node.kind == ITEM_SEQUENCE && !next) return false;
    }
    return passes;
}

static void refuse_left_recursion(struct resolver *resolver) {
    struct exprs *exprs = resolver->exprs;
    memset(resolver->states, RULE_NEW, resolver->grammar->num_rules);
    for (uint32_t i = 0; i < resolver->num_order && !exprs->err.status; i++) {
        uint32_t base = exprs->scratch_len;
        exprs_push(exprs, resolver->order[i]);
        while (exprs->scratch_len > base && !exprs->err.status) {
            uint32_t rule = exprs->scratch[exprs->scratch_len - 1];
            uint8_t *state = &resolver->states[rule];
            if (*state == RULE_NEW) {
                *state = RULE_OPEN;
                uint32_t own = exprs->scratch_len;
                push_left_calls(resolver, resolver->grammar->rules[rule].item);
                for (uint32_t k = own; k < exprs->scratch_len; k++) {
                    uint32_t callee = exprs->scratch[k];
                    if (resolver->states[callee] != RULE_OPEN) continue;
                    exprs_fail(exprs, ERR_UNSUPPORTED,
                               "the rule %.100s is left-recursive: it can call itself before it "
                               "has taken any text",
                               resolver->grammar->rules[callee].name);
                }
                continue;
            }
            *state = RULE_DONE;
            exprs->scratch_len--;
        }
        exprs->scratch_len = base;
    }
}

// ---- rules that are expressions ----

static uint32_t rewrite(struct resolver *resolver, uint32_t item);

static uint32_t rewrite_members(struct resolver *resolver, struct grammar_item node) {
    struct grammar *grammar = resolver->grammar;
    struct grammar_members members = grammar->members[node.a];
    uint32_t *list = malloc((node.c + 1) * sizeof *list), len = 0;
    if (!list) return exprs_fail(resolver->exprs, ERR_NOMEM, "out of memory: structured output");
    for (uint32_t i = 0; i < node.c; i++) { // the required ones are productive
        uint32_t child = grammar->lists[node.b + i];
        if (is_productive(resolver, child)) list[len++] = rewrite(resolver, child);
    }
    members.items = list;
    members.num_items = len;
    bool has_other = members.other && is_productive(resolver, members.other);
    members.other = has_other ? rewrite(resolver, members.other) : GRAMMAR_EMPTY;
    if (members.extra) members.extra = rewrite(resolver, members.extra);
    uint32_t result = grammar_members(grammar, &members);
    free(list);
    return result;
}

// The item without what has no text, and with expressions in place of calls where that is possible.
// `order` has callees first, so a call that needs no recursion calls a rule that is done.
static uint32_t rewrite(struct resolver *resolver, uint32_t item) {
    struct grammar *grammar = resolver->grammar;
    struct grammar_item node = item_of(resolver, item);
    uint32_t expr;
    if (!exprs_count(resolver->exprs, 1)) return GRAMMAR_EMPTY;
    if (!is_productive(resolver, item)) return grammar_terminal(grammar, EXPR_NOTHING);
    if (node.kind <= ITEM_TERMINAL || node.kind >= ITEM_UNIQUE) return item;
    if (node.kind == ITEM_CALL) {
        bool is_expr = resolver->states[node.a] == RULE_DONE &&
                       grammar_as_expr(grammar, grammar->rules[node.a].item, &expr);
        return is_expr ? grammar->rules[node.a].item : item;
    }
    if (node.kind == ITEM_REPEAT) {
        if (!is_productive(resolver, node.a)) return GRAMMAR_EMPTY;
        bool nullable = is_nullable(resolver, node.a);
        uint32_t body = rewrite(resolver, node.a);
        uint32_t loop = grammar_repeat(grammar, body, nullable ? 0 : node.b, node.c);
        if (loop != body) grammar->items[loop].nullable_body = nullable;
        return loop;
    }
    if (node.kind == ITEM_MEMBERS) return rewrite_members(resolver, node);
    uint32_t *list = malloc(node.b * sizeof *list), len = 0;
    if (!list) return exprs_fail(resolver->exprs, ERR_NOMEM, "out of memory: structured output");
    for (uint32_t i = 0; i < node.b; i++) {
        uint32_t child = grammar->lists[node.a + i];
        if (is_productive(resolver, child)) list[len++] = rewrite(resolver, child);
    }
    uint32_t result = node.kind == ITEM_SEQUENCE ? grammar_sequence(grammar, list, len)
                                                 : grammar_choice(grammar, list, len);
    free(list);
    return result;
}

static void rewrite_rules(struct resolver *resolver) {
    struct grammar *grammar = resolver->grammar;
    memset(resolver->states, RULE_NEW, grammar->num_rules);
    for (uint32_t i = 0; i < resolver->num_order && !resolver->exprs->err.status; i++) {
        uint32_t rule = resolver->order[i];
        uint32_t item = rewrite(resolver, grammar->rules[rule].item);
        grammar->rules[rule].item = item;
        resolver->states[rule] = RULE_DONE;
    }
}

void grammar_resolve(struct grammar *grammar) {
    struct exprs *exprs = grammar->exprs;
    size_t num_rules = grammar->num_rules;
    if (exprs->err.status) return;
    if (!grammar->has_start) {
        exprs_fail(exprs, ERR_INVALID, "the grammar has no start rule");
        return;
    }
    struct resolver resolver = {
        .grammar = grammar,
        .exprs = exprs,
        .states = calloc(num_rules, sizeof *resolver.states),
        .nullable = calloc(num_rules, sizeof *resolver.nullable),
        .productive = calloc(num_rules, sizeof *resolver.productive),
        .order = calloc(num_rules, sizeof *resolver.order),
    };
    if (!resolver.states || !resolver.nullable || !resolver.productive || !resolver.order) {
        exprs_fail(exprs, ERR_NOMEM, "out of memory: structured output");
    } else {
        order_rules(&resolver);
        find_properties(&resolver);
        if (!exprs->err.status && !resolver.productive[grammar->start]) {
            exprs_fail(exprs, ERR_INVALID, "no text fits the constraint");
        }
        refuse_left_recursion(&resolver);
        rewrite_rules(&resolver);
    }
    free(resolver.states);
    free(resolver.nullable);
    free(resolver.productive);
    free(resolver.order);
}
