/* Arrays: items by their place, counted, and what they must contain.
 *
 * Without "contains" an array is its first items one by one and then a repetition with a counter.
 * With it, the states are the number of items and of those that match. */
#include <string.h>

#include "structured/schema/schema_internal.h"

enum { PREFIX_MAX = 2000, STATES_MAX = 4000, UNIQUE_MAX = 40, CUT_EVERY = 16 };

// The schemas of the first items: prefixItems, or items as a list.
static const json_t *prefix_of(const json_t *schema) {
    const json_t *prefix = json_object_get(schema, "prefixItems");
    if (json_is_array(prefix)) return prefix;
    const json_t *items = json_object_get(schema, "items");
    return json_is_array(items) ? items : NULL;
}

// The schema of the items behind them; NULL: any.
static const json_t *rest_of(const json_t *schema) {
    const json_t *items = json_object_get(schema, "items");
    if (json_is_array(items)) items = json_object_get(schema, "additionalItems");
    return items ? items : json_object_get(schema, "unevaluatedItems");
}

// The number of places whose schema may differ from that of all later ones.
static size_t prefix_len(const struct schema_array *array) {
    size_t len = 0;
    for (const struct schema_group *at = array->groups; at; at = at->next) {
        size_t size = json_array_size(prefix_of(at->schema));
        if (size > len) len = size;
    }
    for (const struct schema_item *at = array->items; at; at = at->next) {
        if (at->index != SIZE_MAX && at->index >= len) len = at->index + 1;
    }
    return len;
}

// The literals of one place, with more of them behind.
static uint32_t item_node(struct schema_reader *reader, const struct schema_array *array,
                          size_t index, const struct schema_literal *more, size_t num_more) {
    size_t count = num_more;
    for (const struct schema_group *at = array->groups; at; at = at->next) count++;
    for (const struct schema_item *at = array->items; at; at = at->next) count++;
    struct schema_literal *literals = schema_alloc(reader, (count + 1) * sizeof *literals);
    if (!literals) return SCHEMA_NOTHING;
    size_t len = count; // from the end: the lists have the newest first
    for (size_t i = num_more; i-- > 0;) literals[--len] = more[i];
    for (const struct schema_item *at = array->items; at; at = at->next) {
        if (at->index == index || at->index == SIZE_MAX) literals[--len] = at->literal;
    }
    for (const struct schema_group *at = array->groups; at; at = at->next) {
        const json_t *prefix = prefix_of(at->schema);
        const json_t *schema =
            index < json_array_size(prefix) ? json_array_get(prefix, index) : rest_of(at->schema);
        if (schema) literals[--len] = (struct schema_literal){schema, 0};
    }
    return schema_node(reader, literals + len, count - len);
}

uint32_t schema_item_node(struct schema_reader *reader, const struct schema_array *array,
                          size_t index) {
    return item_node(reader, array, index, NULL, 0);
}

struct list {
    struct schema_reader *reader;
    const struct schema_array *limits;
    size_t prefix_len;
    const struct schema_contains *contains; // NULL: none
    size_t min, max; // items
    // By place up to prefix_len, which stands for all later ones: items of the grammar.
    uint32_t *any, *matching, *other; // `other`: not matching; only for maxContains
    uint32_t *memo; // [num_places][num_matches], items + 1
    size_t num_places, num_matches;
};

static uint32_t sequence(const struct list *list, uint32_t a, uint32_t b) {
    return grammar_sequence(list->reader->grammar, (uint32_t[]){a, b}, 2);
}

static uint32_t choose(const struct list *list, uint32_t a, uint32_t b) {
    return grammar_choice(list->reader->grammar, (uint32_t[]){a, b}, 2);
}

static uint32_t nothing(const struct list *list) {
    return grammar_terminal(list->reader->grammar, EXPR_NOTHING);
}

static uint32_t behind_comma(const struct list *list, uint32_t item) {
    return sequence(list, grammar_terminal(list->reader->grammar, list->reader->comma), item);
}

static uint32_t at_place(const struct list *list, const uint32_t *items, size_t index) {
    uint32_t item = items[index < list->prefix_len ? index : list->prefix_len];
    return index ? behind_comma(list, item) : item;
}

static uint32_t repeat(const struct list *list, uint32_t item, size_t min, size_t max) {
    uint32_t bound = max >= EXPR_FOREVER ? EXPR_FOREVER : (uint32_t)max;
    return grammar_repeat(list->reader->grammar, item, (uint32_t)min, bound);
}

static size_t less(size_t value, size_t by) {
    if (value == EXPR_FOREVER) return value;
    return value > by ? value - by : 0;
}

// All items from the end of the prefix on; `index` is their first place.
static uint32_t rest_items(const struct list *list, size_t index) {
    size_t min = less(list->min, index), max = less(list->max, index);
    if (index) return repeat(list, at_place(list, list->any, index), min, max);
    if (!max) return GRAMMAR_EMPTY;
    uint32_t later = at_place(list, list->any, index + 1);
    uint32_t all = sequence(list, at_place(list, list->any, 0),
                            repeat(list, later, less(min, 1), less(max, 1)));
    return min ? all : choose(list, all, GRAMMAR_EMPTY);
}

static uint32_t cut(const struct list *list, size_t index, uint32_t item) {
    uint32_t expr;
    struct grammar *grammar = list->reader->grammar;
    if (index % CUT_EVERY || grammar_as_expr(grammar, item, &expr)) return item;
    uint32_t rule = grammar_rule(grammar, "the items of an array");
    grammar_define(grammar, rule, item);
    return grammar_call(grammar, rule);
}

static uint32_t plain_items(const struct list *list) {
    size_t len = list->prefix_len < list->max ? list->prefix_len : list->max;
    uint32_t all = list->prefix_len <= list->max ? rest_items(list, len) : GRAMMAR_EMPTY;
    if (list->prefix_len > list->max) all = GRAMMAR_EMPTY;
    for (size_t i = len; i-- > 0;) {
        all = sequence(list, at_place(list, list->any, i), all);
        if (i >= list->min) all = choose(list, all, GRAMMAR_EMPTY);
        all = cut(list, i + 1, all);
    }
    return all;
}

// ---- contains ----

// The items from `index` on, after `matches` that match. The last place stands for all later ones
// where there is no upper bound, and the last number of matches for all larger ones.
static uint32_t items_from(struct list *list, size_t index, size_t matches) {
    uint32_t *known = &list->memo[index * list->num_matches + matches];
    if (*known) return *known - 1;
    const struct schema_contains *contains = list->contains;
    bool has_max = contains->max != EXPR_FOREVER;
    const uint32_t *others = has_max ? list->other : list->any;
    bool is_enough = matches >= contains->min, is_full = matches >= contains->max;
    bool is_last = index + 1 == list->num_places;
    uint32_t all = is_enough && index >= list->min ? GRAMMAR_EMPTY : nothing(list);
    if (is_enough && !has_max && index >= list->prefix_len) {
        all = rest_items(list, index);
    } else if (is_last && list->max == EXPR_FOREVER) {
        // Any number of the others, then one that matches.
        uint32_t skipped = repeat(list, at_place(list, others, index), 0, EXPR_FOREVER);
        if (!is_full) {
            uint32_t next = sequence(list, at_place(list, list->matching, index),
                                     items_from(list, index, matches + 1));
            all = choose(list, all, next);
        }
        all = sequence(list, skipped, all);
    } else if (index < list->max) {
        size_t enough = contains->min > 0 ? contains->min : 0;
        size_t same = matches;
        if (is_enough && !has_max) same = enough;
        uint32_t other =
            sequence(list, at_place(list, others, index), items_from(list, index + 1, same));
        all = choose(list, all, other);
        if (!is_full && !(is_enough && !has_max)) {
            uint32_t next = sequence(list, at_place(list, list->matching, index),
                                     items_from(list, index + 1, matches + 1));
            all = choose(list, all, next);
        }
    }
    list->memo[index * list->num_matches + matches] = all + 1;
    return all;
}

static const json_t *place_of(const struct list *list) {
    const struct schema_group *group = list->limits->groups;
    return group ? group->schema : list->reader->refs.root;
}

static uint32_t refuse_contains(const struct list *list, const char *why) {
    schema_refuse(list->reader, schema_say(list->reader, place_of(list),
                                           "keyword \"contains\" cannot be enforced: %s", why));
    return GRAMMAR_EMPTY;
}

static uint32_t containing_items(struct list *list) {
    const struct schema_contains *contains = list->contains;
    struct schema_reader *reader = list->reader;
    size_t most = contains->max != EXPR_FOREVER ? contains->max : contains->min;
    // With an upper bound each place is a state; otherwise those up to the last special one.
    size_t last = list->prefix_len > list->min ? list->prefix_len : list->min;
    if (!last) last = 1; // the first item has no comma
    if (list->max != EXPR_FOREVER) last = list->max;
    if (most >= STATES_MAX || last >= STATES_MAX || (last + 1) * (most + 1) > STATES_MAX) {
        return refuse_contains(list, "the counts are too large");
    }
    list->num_places = last + 1;
    list->num_matches = most + 1;
    size_t num_states = list->num_places * list->num_matches;
    list->memo = schema_alloc(reader, num_states * sizeof *list->memo);
    if (!list->memo) return GRAMMAR_EMPTY;
    memset(list->memo, 0, num_states * sizeof *list->memo);
    for (size_t index = list->num_places; index-- > 0;) {
        for (size_t matches = list->num_matches; matches-- > 0;) {
            // From the end, so that the recursion is short.
            uint32_t item = items_from(list, index, matches);
            list->memo[index * list->num_matches + matches] = cut(list, index + 1, item) + 1;
            if (schema_failed(reader)) return GRAMMAR_EMPTY;
        }
    }
    return list->memo[0] - 1;
}

// ---- uniqueItems ----

struct values {
    const json_t *list[UNIQUE_MAX]; // [len], different ones
    size_t len;
    bool too_many; // or not listed one by one
    json_t *numbers; // a list that owns those between two limits; NULL: none
};

static void add_value(struct values *values, const json_t *value) {
    for (size_t i = 0; i < values->len; i++) {
        if (schema_values_equal(values->list[i], value)) return;
    }
    values->too_many |= values->len == UNIQUE_MAX;
    if (!values->too_many) values->list[values->len++] = value;
}

// The whole part of a limit, which may be its neighbour's. False: it is none, or is large.
static bool whole_part(const struct schema_bound *bound, int64_t *out) {
    enum { DIGITS_MAX = 12 };
    const struct schema_decimal *value = bound->value;
    if (!value || value->exponent > DIGITS_MAX) return false;
    *out = 0;
    for (int32_t i = 0; i < value->exponent; i++) {
        *out = 10 * *out + ((uint32_t)i < value->num_digits ? value->digits[i] - '0' : 0);
    }
    if (value->negative) *out = -*out;
    return true;
}

// Whole numbers between two limits that are close to each other.
static void add_numbers(struct schema_reader *reader, const struct schema_branch *branch,
                        struct values *values) {
    int64_t first, last;
    bool is_short = whole_part(&branch->lower, &first) && whole_part(&branch->upper, &last) &&
                    last - first <= UNIQUE_MAX;
    values->too_many |= !is_short;
    if (!is_short) return;
    if (!values->numbers) values->numbers = json_array();
    for (int64_t i = first - 1; i <= last + 1 && !values->too_many; i++) {
        json_t *number = json_integer(i);
        if (json_array_append_new(values->numbers, number)) {
            schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
            return;
        }
        if (schema_branch_allows(reader, branch, number)) add_value(values, number);
    }
}

static void add_values(struct schema_reader *reader, const struct schema_branch *branch,
                       void *arg) {
    struct values *values = arg;
    const struct schema_value_set *set = branch->values;
    for (size_t i = 0; set && i < set->num_values; i++) {
        if (schema_branch_allows(reader, branch, set->values[i])) add_value(values, set->values[i]);
    }
    if (set) return;
    unsigned listed = SCHEMA_NULL | SCHEMA_BOOLEAN | SCHEMA_INTEGER;
    if (branch->types & ~listed) values->too_many = true;
    if (branch->types & SCHEMA_INTEGER && !values->too_many) add_numbers(reader, branch, values);
    if (branch->types & SCHEMA_NULL) add_value(values, json_null());
    if (branch->types & SCHEMA_TRUE) add_value(values, json_true());
    if (branch->types & SCHEMA_FALSE) add_value(values, json_false());
}

// Lists of a few values, each at most once: all lists, without those that begin with a list that
// has a value twice. So a list is known to be wrong where the second one ends. If it were known at
// the list's end only, all ways to go on would have to be looked at, and there are 2^len.
static uint32_t unique_items(const struct list *list, const struct values *values) {
    struct schema_reader *reader = list->reader;
    struct exprs *exprs = reader->exprs;
    uint32_t texts[UNIQUE_MAX];
    for (size_t i = 0; i < values->len; i++) {
        texts[i] = schema_value_expr(reader, values->list[i]);
    }
    uint32_t item = expr_alt_all(exprs, texts, values->len);
    uint32_t next = expr_concat(exprs, reader->comma, item);
    uint32_t max = list->max > values->len ? (uint32_t)values->len : (uint32_t)list->max;
    if (list->min > max) return nothing(list);
    if (!max) return GRAMMAR_EMPTY;
    uint32_t min = list->min ? (uint32_t)list->min - 1 : 0;
    uint32_t all = expr_concat(exprs, item, expr_repeat(exprs, next, min, max - 1));
    uint32_t before = expr_repeat(exprs, expr_concat(exprs, item, reader->comma), 0, EXPR_FOREVER);
    uint32_t after = expr_repeat(exprs, next, 0, EXPR_FOREVER);
    // Not digits, or 1 would end in 12.
    static const uint64_t ends[4] = {1ull << ' ' | 1 << '\t' | 1 << '\n' | 1 << '\r' | 1ull << ','};
    uint32_t end =
        expr_optional(exprs, expr_concat(exprs, expr_byte_set(exprs, ends), EXPR_ANYTHING));
    for (size_t i = 0; i < values->len; i++) {
        uint32_t again = expr_concat(exprs, reader->comma, expr_concat(exprs, texts[i], end));
        again = expr_concat(exprs, after, again);
        uint32_t twice = expr_concat(exprs, before, expr_concat(exprs, texts[i], again));
        all = expr_minus(exprs, all, twice);
    }
    if (!list->min) all = expr_optional(exprs, all);
    return grammar_terminal(reader->grammar, all);
}

// ---- all together ----

static void make_items(struct list *list) {
    struct schema_reader *reader = list->reader;
    size_t bytes = (list->prefix_len + 1) * sizeof *list->any;
    list->any = schema_alloc(reader, bytes);
    list->matching = schema_alloc(reader, bytes);
    list->other = schema_alloc(reader, bytes);
    if (!list->any || !list->matching || !list->other) return;
    const struct schema_contains *contains = list->contains;
    for (size_t i = 0; i <= list->prefix_len && !schema_failed(reader); i++) {
        uint32_t node = schema_item_node(reader, list->limits, i);
        list->any[i] = schema_node_item(reader, node);
        schema_count_part(reader);
        if (!contains) continue;
        struct schema_literal literal = contains->literal;
        node = item_node(reader, list->limits, i, &literal, 1);
        list->matching[i] = schema_node_item(reader, node);
        if (contains->max == EXPR_FOREVER) continue;
        literal.negated = !literal.negated;
        node = item_node(reader, list->limits, i, &literal, 1);
        list->other[i] = schema_node_item(reader, node);
    }
}

static uint32_t make_unique(struct list *list) {
    struct schema_reader *reader = list->reader;
    uint32_t node = schema_item_node(reader, list->limits, 0);
    if (node == SCHEMA_NOTHING) return list->min ? nothing(list) : GRAMMAR_EMPTY;
    struct values values = {.too_many = list->prefix_len > 0 || list->contains};
    const struct schema_sink sink = {add_values, &values};
    const struct schema_node *at = &reader->nodes[node];
    if (!values.too_many) schema_expand(reader, at->literals, at->num_literals, &sink);
    uint32_t items = GRAMMAR_EMPTY;
    if (!values.too_many && !schema_failed(reader)) items = unique_items(list, &values);
    json_decref(values.numbers);
    if (!values.too_many) return items;
    schema_refuse(reader, schema_say(reader, list->limits->unique,
                                     "keyword \"uniqueItems\" cannot be enforced, except for at "
                                     "most one item or items of a short enum or range"));
    return GRAMMAR_EMPTY;
}

uint32_t schema_array_item(struct schema_reader *reader, const struct schema_array *limits) {
    struct list list = {.reader = reader,
                        .limits = limits,
                        .min = limits->min,
                        .max = limits->max,
                        .contains = limits->contains};
    list.prefix_len = prefix_len(limits);
    if (limits->refused) {
        schema_refuse(reader, limits->refused);
        return GRAMMAR_EMPTY;
    }
    if (list.prefix_len > PREFIX_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has an array with too many items");
        return GRAMMAR_EMPTY;
    }
    if (list.contains && list.contains->next) return refuse_contains(&list, "there are several");
    uint32_t items;
    if (limits->unique && list.max > 1) {
        items = make_unique(&list);
    } else {
        make_items(&list);
        if (schema_failed(reader)) return GRAMMAR_EMPTY;
        items = list.contains ? containing_items(&list) : plain_items(&list);
    }
    struct exprs *exprs = reader->exprs;
    uint32_t open = expr_concat(exprs, expr_string(exprs, "["), reader->space);
    uint32_t close = expr_concat(exprs, reader->space, expr_string(exprs, "]"));
    uint32_t all[] = {grammar_terminal(reader->grammar, open), items,
                      grammar_terminal(reader->grammar, close)};
    return grammar_sequence(reader->grammar, all, 3);
}
