/* Arrays: items by their place, counted, and what they must contain.
 *
 * Without "contains" an array is its first items one by one and then a repetition with a counter.
 * With it, the states are the number of items and of those that match. Where an array must contain
 * several, they are the number of items and which of them were found. */
#include <string.h>

#include "structured/schema/schema_internal.h"

enum { PREFIX_MAX = 2000, STATES_MAX = 4000, CUT_EVERY = 16, CONTAINS_MAX = 4 };

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
    return items;
}

// What the schema says about the item; NULL: nothing.
static const json_t *item_of(const json_t *schema, size_t index) {
    const json_t *prefix = prefix_of(schema);
    return index < json_array_size(prefix) ? json_array_get(prefix, index) : rest_of(schema);
}

// What unevaluatedItems says about the item; NULL: it is evaluated.
static const json_t *unevaluated_of(const struct schema_group *rest, size_t index) {
    const struct schema_group *at = rest->next;
    while (at != rest->since && !at->is_rest && !item_of(at->schema, index)) at = at->next;
    return at == rest->since ? json_object_get(rest->schema, "unevaluatedItems") : NULL;
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
        const json_t *schema = at->is_rest ? unevaluated_of(at, index) : item_of(at->schema, index);
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

// A state of its own, also where it is an expression: the states' texts overlap, and as one
// expression they would take too many steps.
static uint32_t state(const struct list *list, uint32_t items) {
    uint32_t expr;
    struct grammar *grammar = list->reader->grammar;
    if (items == GRAMMAR_EMPTY) return items;
    if (grammar_as_expr(grammar, items, &expr) && expr == EXPR_NOTHING) return items;
    uint32_t rule = grammar_rule(grammar, "the items of an array");
    grammar_define(grammar, rule, items);
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
    if (is_enough && !has_max && is_last && list->max == EXPR_FOREVER) {
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
            list->memo[index * list->num_matches + matches] = state(list, item) + 1;
            if (schema_failed(reader)) return GRAMMAR_EMPTY;
        }
    }
    return list->memo[0] - 1;
}

// ---- several "contains" ----

// Each item may be one that some of them want. The states are the number of items, up to the last
// place that matters, and the set of those that were found.
struct several {
    struct list *list;
    struct schema_literal literals[CONTAINS_MAX]; // [num_literals]
    size_t num_literals, num_sets;
    uint32_t *memo; // [num_places][num_sets], items
};

static bool several_collect(struct several *several) {
    for (const struct schema_contains *at = several->list->contains; at; at = at->next) {
        size_t i = 0;
        while (i < several->num_literals &&
               memcmp(&several->literals[i], &at->literal, sizeof at->literal) != 0) {
            i++;
        }
        if (at->min > 1 || at->max != EXPR_FOREVER || i == CONTAINS_MAX) return false;
        if (i == several->num_literals) several->literals[several->num_literals++] = at->literal;
    }
    several->num_sets = (size_t)1 << several->num_literals;
    return true;
}

// An item that all of the set want, with its comma.
static uint32_t several_item(struct several *several, size_t index, size_t set) {
    struct list *list = several->list;
    struct schema_reader *reader = list->reader;
    struct schema_literal wanted[CONTAINS_MAX];
    size_t num_wanted = 0;
    for (size_t i = several->num_literals;
         i-- > 0;) { // from the end: the list has the newest first
        if (set >> i & 1) wanted[num_wanted++] = several->literals[i];
    }
    size_t place = index < list->prefix_len ? index : list->prefix_len;
    uint32_t node = item_node(reader, list->limits, place, wanted, num_wanted);
    uint32_t item = schema_node_item(reader, node);
    schema_count_part(reader);
    return index ? behind_comma(list, item) : item;
}

// The items from `index` on, where those of the set `found` were found; states behind are known.
static uint32_t several_from(struct several *several, size_t index, size_t found) {
    struct list *list = several->list;
    size_t all = several->num_sets - 1;
    bool is_last = index + 1 == list->num_places && list->max == EXPR_FOREVER;
    uint32_t items = found == all && index >= list->min ? GRAMMAR_EMPTY : nothing(list);
    const uint32_t *next = &several->memo[(is_last ? index : index + 1) * several->num_sets];
    for (size_t set = all; set && index < list->max; set--) {
        if (set & found) continue;
        uint32_t item = several_item(several, index, set);
        items = choose(list, items, sequence(list, item, next[found | set]));
    }
    if (index >= list->max) return items;
    uint32_t other = at_place(list, list->any, index);
    if (is_last) return sequence(list, repeat(list, other, 0, EXPR_FOREVER), items);
    return choose(list, items, sequence(list, other, next[found]));
}

static uint32_t several_items(struct list *list) {
    struct several several = {.list = list};
    struct schema_reader *reader = list->reader;
    if (!several_collect(&several)) {
        return refuse_contains(list, "there are several, with counts or more than 4");
    }
    if (list->limits->unique) return refuse_contains(list, "there are several, and unique items");
    size_t last = list->prefix_len > list->min ? list->prefix_len : list->min;
    if (!last) last = 1; // the first item has no comma
    if (list->max != EXPR_FOREVER) last = list->max;
    if (last >= STATES_MAX || (last + 1) * several.num_sets > STATES_MAX) {
        return refuse_contains(list, "the counts are too large");
    }
    list->num_places = last + 1;
    several.memo = schema_alloc(reader, list->num_places * several.num_sets * sizeof *several.memo);
    if (!several.memo) return GRAMMAR_EMPTY;
    for (size_t index = list->num_places; index-- > 0;) {
        for (size_t found = several.num_sets; found-- > 0;) {
            uint32_t items = several_from(&several, index, found);
            several.memo[index * several.num_sets + found] = state(list, items);
            if (schema_failed(reader)) return GRAMMAR_EMPTY;
        }
    }
    return several.memo[0];
}

// ---- uniqueItems ----

// Items that must be there must be found: each of those places has as many values.
static const char *why_not_unique(struct list *list) {
    enum { COUNT_MAX = 1000 };
    const struct schema_contains *contains = list->contains;
    if (contains && (contains->min > 1 || contains->max != EXPR_FOREVER)) {
        return "beside \"minContains\" or \"maxContains\"";
    }
    if (list->min < 2) return NULL;
    if (list->min > COUNT_MAX) return "beside a large \"minItems\"";
    for (size_t i = 0; i <= list->prefix_len && i < list->min; i++) {
        uint32_t node = schema_item_node(list->reader, list->limits, i);
        if (!schema_node_has_many(list->reader, node, list->min)) {
            return "beside \"minItems\": too few different items are known to exist";
        }
    }
    return NULL;
}

static void mark_unique(struct list *list, uint32_t *items) {
    struct grammar *grammar = list->reader->grammar;
    for (size_t i = 0; i <= list->prefix_len; i++) {
        uint32_t nothing_expr;
        if (grammar_as_expr(grammar, items[i], &nothing_expr) && nothing_expr == EXPR_NOTHING) {
            continue;
        }
        items[i] = sequence(list, grammar_unique(grammar), items[i]);
    }
}

// ---- all together ----

static void make_items(struct list *list) {
    struct schema_reader *reader = list->reader;
    size_t bytes = (list->prefix_len + 1) * sizeof *list->any;
    const struct schema_contains *contains = list->contains;
    if (contains && contains->next) contains = NULL; // several have items of their own
    list->any = schema_alloc(reader, bytes);
    if (contains) {
        list->matching = schema_alloc(reader, bytes);
        list->other = schema_alloc(reader, bytes);
    }
    if (schema_failed(reader)) return;
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

static void make_unique(struct list *list) {
    struct schema_reader *reader = list->reader;
    const char *why = why_not_unique(list);
    if (why) {
        schema_refuse(reader, schema_say(reader, list->limits->unique,
                                         "keyword \"uniqueItems\" cannot be enforced %s", why));
    }
    mark_unique(list, list->any);
    if (list->matching) mark_unique(list, list->matching);
}

// Whether one of the first items must be there and has no value.
static bool must_have_bad_item(struct schema_reader *reader, const struct schema_array *array) {
    enum { LOOKED_AT_MAX = 16 };
    for (size_t i = 0; i < array->min && i < LOOKED_AT_MAX; i++) {
        uint32_t item = schema_node_item(reader, schema_item_node(reader, array, i)), expr;
        if (schema_failed(reader)) return false;
        if (grammar_as_expr(reader->grammar, item, &expr) && expr == EXPR_NOTHING) return true;
    }
    return false;
}

uint32_t schema_array_item(struct schema_reader *reader, const struct schema_array *limits) {
    struct list list = {.reader = reader,
                        .limits = limits,
                        .min = limits->min,
                        .max = limits->max,
                        .contains = limits->contains};
    list.prefix_len = prefix_len(limits);
    if (limits->refused && must_have_bad_item(reader, limits)) {
        return grammar_terminal(reader->grammar, EXPR_NOTHING);
    }
    if (limits->refused) {
        schema_refuse(reader, limits->refused);
        return GRAMMAR_EMPTY;
    }
    if (list.prefix_len > PREFIX_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has an array with too many items");
        return GRAMMAR_EMPTY;
    }
    make_items(&list);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    if (limits->unique && list.max > 1) make_unique(&list);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    bool is_several = list.contains && list.contains->next;
    uint32_t items = is_several      ? several_items(&list)
                     : list.contains ? containing_items(&list)
                                     : plain_items(&list);
    struct exprs *exprs = reader->exprs;
    uint32_t open = expr_concat(exprs, expr_string(exprs, "["), reader->space);
    uint32_t close = expr_concat(exprs, reader->space, expr_string(exprs, "]"));
    uint32_t all[] = {grammar_terminal(reader->grammar, open), items,
                      grammar_terminal(reader->grammar, close)};
    return grammar_sequence(reader->grammar, all, 3);
}
