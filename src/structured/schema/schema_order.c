/* The order of an object's members: those with names in the order of the schema, then others.
 *
 * Names have a comma before them unless they are the first. Where members are counted, what may
 * follow is a state for each place and count. */
#include <string.h>

#include "structured/schema/schema_internal.h"

enum { STATES_MAX = 4000, RULE_EVERY = 16 };

static uint32_t sequence(struct schema_order *order, uint32_t a, uint32_t b) {
    return grammar_sequence(order->reader->grammar, (uint32_t[]){a, b}, 2);
}

static uint32_t behind_comma(struct schema_order *order, uint32_t item) {
    return sequence(order, grammar_terminal(order->reader->grammar, order->reader->comma), item);
}

static uint32_t nothing(struct schema_order *order) {
    return grammar_terminal(order->reader->grammar, EXPR_NOTHING);
}

static uint32_t choose(struct schema_order *order, uint32_t a, uint32_t b) {
    return grammar_choice(order->reader->grammar, (uint32_t[]){a, b}, 2);
}

static uint32_t repeat_others(struct schema_order *order, size_t min, size_t max) {
    if (!order->has_others) return min ? nothing(order) : GRAMMAR_EMPTY;
    uint32_t bound = max >= EXPR_FOREVER ? EXPR_FOREVER : (uint32_t)max;
    uint32_t one = behind_comma(order, order->others);
    return grammar_repeat(order->reader->grammar, one, (uint32_t)min, bound);
}

// One of the members that are not named is the extra one, at most `rest` are others. Where its
// value matters it is the last: of two equal keys readers keep the last.
static uint32_t with_extra(struct schema_order *order, bool is_first, size_t rest) {
    struct grammar *grammar = order->reader->grammar;
    bool is_last = order->limits->extra->literal.schema || rest != EXPR_FOREVER;
    uint32_t after = is_last ? GRAMMAR_EMPTY : repeat_others(order, 0, EXPR_FOREVER);
    uint32_t behind = sequence(order, behind_comma(order, order->extra), after);
    if (!is_first) return sequence(order, repeat_others(order, 0, rest), behind);
    uint32_t all = sequence(order, order->extra, after);
    if (!rest || !order->has_others) return all;
    size_t more = rest == EXPR_FOREVER ? rest : rest - 1;
    uint32_t list[] = {order->others, repeat_others(order, 0, more), behind};
    return choose(order, all, grammar_sequence(grammar, list, 3));
}

// The members that are not named, behind `count` others that count.
static uint32_t end_of_members(struct schema_order *order, size_t count) {
    size_t min = order->min > count ? order->min - count : 0;
    size_t max = order->max == EXPR_FOREVER ? EXPR_FOREVER : order->max - count;
    bool is_first = count == 0; // no comma before
    uint32_t none = min || order->limits->extra ? nothing(order) : GRAMMAR_EMPTY;
    if (max == 0) return none;
    if (min > 1 && order->has_others) {
        if (min > order->num_distinct) order->num_distinct = min;
        if (order->limits->extra) return none;
    }
    size_t rest = max == EXPR_FOREVER ? EXPR_FOREVER : max - 1;
    if (order->limits->extra) return with_extra(order, is_first, rest);
    if (!is_first) return repeat_others(order, min, max);
    if (!order->has_others) return none;
    size_t more = min ? min - 1 : 0;
    uint32_t all = sequence(order, order->others, repeat_others(order, more, rest));
    return min ? all : choose(order, all, GRAMMAR_EMPTY);
}

// Long lists are cut into rules: sequences are copied where they become longer.
static uint32_t cut(struct schema_order *order, size_t index, uint32_t item) {
    uint32_t expr;
    struct grammar *grammar = order->reader->grammar;
    if (index % RULE_EVERY || grammar_as_expr(grammar, item, &expr)) return item;
    uint32_t rule = grammar_rule(grammar, "the members of an object");
    grammar_define(grammar, rule, item);
    return grammar_call(grammar, rule);
}

// The members from `index` on, behind `count` others that count; with `count` limited to what still
// makes a difference. Fills the memo from the end.
static uint32_t members_from(struct schema_order *order, size_t index, size_t count) {
    size_t most = order->num_counts - 1;
    return order->memo[index * order->num_counts + (count < most ? count : most)];
}

static uint32_t make_members(struct schema_order *order, size_t index, size_t count) {
    if (order->max != EXPR_FOREVER && count > order->max) return nothing(order);
    if (index == order->num_names) return end_of_members(order, count);
    const struct schema_name *name = &order->names[index];
    uint32_t with = GRAMMAR_EMPTY;
    if (name->node == SCHEMA_NOTHING) return members_from(order, index + 1, count);
    if (count) {
        uint32_t member = behind_comma(order, name->item);
        with = sequence(order, member, members_from(order, index + 1, count + 1));
    } else {
        with = sequence(order, name->item, members_from(order, index + 1, 1));
    }
    if (!name->required) {
        with = choose(order, with, members_from(order, index + 1, count));
    }
    return cut(order, index, with);
}

// Where members are not counted: a choice of the first member, each with what may follow it.
static uint32_t uncounted_members(struct schema_order *order) {
    struct schema_reader *reader = order->reader;
    struct grammar *grammar = reader->grammar;
    uint32_t *choices = schema_alloc(reader, (order->num_names + 1) * sizeof *choices);
    if (!choices) return GRAMMAR_EMPTY;
    uint32_t tail = end_of_members(order, 1), none = end_of_members(order, 0);
    size_t first = order->num_names; // choices are filled from their end
    choices[first] = none;
    size_t last = first;
    for (size_t i = order->num_names; i-- > 0 && !schema_failed(reader);) {
        const struct schema_name *name = &order->names[i];
        if (name->node == SCHEMA_NOTHING) continue;
        uint32_t all = sequence(order, name->item, tail);
        choices[--first] = all;
        if (name->required) {
            last = first; // none behind it can be the first
            tail = behind_comma(order, all);
        } else {
            uint32_t member = grammar_optional(grammar, behind_comma(order, name->item));
            tail = sequence(order, member, tail);
        }
        tail = cut(order, i, tail);
    }
    return grammar_choice(grammar, choices + first, last + 1 - first);
}

static uint32_t counted_members(struct schema_order *order, size_t num_required) {
    size_t num_states = (order->num_names + 1) * order->num_counts;
    if (num_states > STATES_MAX) {
        schema_fail(order->reader, ERR_CAPACITY,
                    "the JSON schema counts the properties of an object with too many keys");
        return GRAMMAR_EMPTY;
    }
    order->memo = schema_alloc(order->reader, num_states * sizeof *order->memo);
    if (!order->memo) return GRAMMAR_EMPTY;
    size_t num_before = num_required; // required ones before `index`
    for (size_t index = order->num_names + 1; index-- > 0;) {
        for (size_t count = order->num_counts; count-- > 0;) {
            bool is_reached =
                count <= index && (count >= num_before || count == order->num_counts - 1);
            uint32_t *state = &order->memo[index * order->num_counts + count];
            *state = is_reached ? make_members(order, index, count) : GRAMMAR_EMPTY;
        }
        if (index && order->names[index - 1].required) num_before--;
        if (schema_failed(order->reader)) return GRAMMAR_EMPTY;
    }
    return order->memo[0];
}

// ---- clauses ----

static uint32_t clause_members(struct schema_order *order, size_t index, size_t count,
                               uint64_t met);

// A state of its own, which several texts lead to.
static uint32_t clause_state(struct schema_order *order, uint32_t members) {
    uint32_t expr;
    struct grammar *grammar = order->reader->grammar;
    if (members == GRAMMAR_EMPTY) return members;
    if (grammar_as_expr(grammar, members, &expr) && expr == EXPR_NOTHING) return members;
    uint32_t rule = grammar_rule(grammar, "the members of an object");
    grammar_define(grammar, rule, members);
    return grammar_call(grammar, rule);
}

static uint32_t with_member(struct schema_order *order, size_t index, size_t count, uint64_t met,
                            uint32_t item) {
    size_t most = order->num_counts - 1, more = count < most ? count + 1 : most;
    uint32_t member = count ? behind_comma(order, item) : item;
    return sequence(order, member, clause_members(order, index + 1, more, met));
}

static uint32_t make_clause_members(struct schema_order *order, size_t index, size_t count,
                                    uint64_t met) {
    uint32_t all = nothing(order);
    if (order->max != EXPR_FOREVER && count > order->max) return all;
    if ((met | order->behind[index]) != order->clauses) return all; // no name left can meet it
    if (index == order->num_names) return end_of_members(order, count);
    const struct schema_name *name = &order->names[index];
    if (name->node != SCHEMA_NOTHING) {
        all = choose(order, all, with_member(order, index, count, met, name->item));
    }
    for (size_t i = 0; i < name->num_choices && !schema_failed(order->reader); i++) {
        uint64_t more = met | name->choices[i].met;
        if (more == met) continue;
        all = choose(order, all, with_member(order, index, count, more, name->choices[i].item));
    }
    if (name->required) return all;
    uint64_t absent = met | name->met_absent;
    return choose(order, all, clause_members(order, index + 1, count, absent));
}

// The members from `index` on, behind `count` others, where the clauses `met` were met.
static uint32_t clause_members(struct schema_order *order, size_t index, size_t count,
                               uint64_t met) {
    struct schema_reader *reader = order->reader;
    const uint64_t parts[] = {index, count, met};
    uint32_t item = GRAMMAR_EMPTY;
    if (schema_failed(reader)) return item;
    if (strmap_get(&order->states, (const char *)parts, sizeof parts, &item)) return item;
    item = clause_state(order, make_clause_members(order, index, count, met));
    uint64_t *key = schema_alloc(reader, sizeof parts);
    if (!key) return item;
    memcpy(key, parts, sizeof parts);
    enum status status =
        strmap_put(&order->states, (const char *)key, sizeof parts, item, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
    schema_count_part(reader);
    return item;
}

static uint32_t members_with_clauses(struct schema_order *order) {
    enum { NAMES_MAX = 2000 }; // calls inside of each other
    size_t num_clauses = 0;
    if (order->num_names > NAMES_MAX) {
        schema_fail(order->reader, ERR_CAPACITY,
                    "the JSON schema has too many combinations of schemas");
        return GRAMMAR_EMPTY;
    }
    for (const struct schema_clause *at = order->limits->clauses; at; at = at->next) num_clauses++;
    order->clauses = (UINT64_C(1) << num_clauses) - 1;
    order->behind = schema_alloc(order->reader, (order->num_names + 1) * sizeof *order->behind);
    if (!order->behind) return GRAMMAR_EMPTY;
    order->behind[order->num_names] = 0;
    for (size_t i = order->num_names; i-- > 0;) {
        order->behind[i] = order->behind[i + 1] | order->names[i].mentioned;
    }
    uint32_t members = clause_members(order, 0, 0, 0);
    strmap_fini(&order->states);
    return members;
}

uint32_t schema_order_members(struct schema_order *order) {
    size_t num_required = 0;
    for (size_t i = 0; i < order->num_names; i++) num_required += order->names[i].required;
    order->min = order->limits->min > num_required ? order->limits->min : 0;
    order->max = order->limits->max;
    if (!order->has_others && order->max >= order->num_names) order->max = EXPR_FOREVER;
    bool is_counted = order->min > 1 || order->max != EXPR_FOREVER;
    if (!is_counted && !order->limits->clauses) return uncounted_members(order);
    // Counts from 0 up to the largest that makes a difference.
    size_t most = order->min > 1 ? order->min : 1;
    if (order->max != EXPR_FOREVER && order->max + 1 > most) most = order->max + 1;
    if (most > order->num_names + 1) most = order->num_names + 1;
    order->num_counts = most + 1;
    if (order->limits->clauses) return members_with_clauses(order);
    return counted_members(order, num_required);
}
