/* An object's members in any order (schema_options.any_key_order). Which of them came is not in the
 * grammar: the automaton makes sets of them as a text meets them (automaton_members.c). */
#include "structured/schema/schema_internal.h"

enum { NAMES_MAX = 500 }; // each comma of a text has a way to go on for each key

static bool has_text(struct schema_order *order, uint32_t item) {
    uint32_t expr;
    return !grammar_as_expr(order->reader->grammar, item, &expr) || expr != EXPR_NOTHING;
}

static void refuse_names(struct schema_order *order) {
    struct schema_reader *reader = order->reader;
    const struct schema_group *group = order->limits->groups; // the newest first
    while (group && group->next) group = group->next;
    schema_refuse(reader, schema_say(reader, group ? group->schema : reader->refs.root,
                                     "keyword \"properties\" cannot be enforced in any order: it "
                                     "has more than %d keys",
                                     NAMES_MAX));
}

// Readers keep the last of two members with one key. So no member may follow that has the key of
// the one that must violate a schema: no key of this object may come twice. Matchers see to that,
// not the grammar. The set of keys that the member can have must be infinite, or a text could use
// up all of them and never end.
static void keep_extra(struct schema_order *order) {
    struct schema_reader *reader = order->reader;
    const struct schema_extra *extra = order->limits->extra;
    if (!extra->literal.schema) return;
    order->has_unique_keys = true;
    if (extra->but && !order->limits->names && !order->has_patterns) return;
    schema_refuse(reader, schema_say(reader, extra->literal.schema,
                                     "cannot be enforced in any order of keys, as a \"not\", "
                                     "\"oneOf\" or \"if\" above it needs a member that violates "
                                     "it, beside \"patternProperties\" or \"propertyNames\""));
}

// The items of the names, those of required ones first.
static bool list_items(struct schema_order *order, struct grammar_members *members) {
    uint32_t *items = schema_alloc(order->reader, (order->num_names + 1) * sizeof *items);
    if (!items) return false;
    for (int required = 1; required >= 0; required--) {
        for (size_t i = 0; i < order->num_names; i++) {
            const struct schema_name *name = &order->names[i];
            if (name->node == SCHEMA_NOTHING || name->required != (required == 1)) continue;
            items[members->num_items++] = name->item;
            members->num_required += name->required;
        }
    }
    members->items = items;
    return true;
}

bool schema_has_orders(const struct schema_object *limits, const struct schema_name *names,
                       size_t num_names, bool has_others) {
    size_t num_kinds = has_others;
    for (size_t i = 0; i < num_names; i++) num_kinds += names[i].node != SCHEMA_NOTHING;
    return limits->extra || num_kinds > 1;
}

uint32_t schema_any_order_members(struct schema_order *order) {
    const struct schema_object *limits = order->limits;
    struct grammar *grammar = order->reader->grammar;
    struct exprs *exprs = order->reader->exprs;
    uint32_t quote = expr_string(exprs, "\"");
    // Where white space may come, there is one way to go on and not one for each key.
    struct grammar_members members = {.first = quote,
                                      .comma = expr_concat(exprs, order->reader->comma, quote),
                                      .min = limits->min,
                                      .max = limits->max};
    if (!list_items(order, &members)) return GRAMMAR_EMPTY;
    uint32_t least = members.num_required, most = members.num_items;
    if (members.num_items > NAMES_MAX) refuse_names(order);
    if (order->has_others) members.other = order->others;
    if (limits->extra) {
        members.extra = order->extra;
        keep_extra(order);
        least++;
        most++;
    }
    if (!order->has_others && members.max >= most) members.max = EXPR_FOREVER;
    bool is_possible = least <= members.max && members.min <= members.max &&
                       (order->has_others || members.min <= most) &&
                       (!limits->extra || has_text(order, order->extra));
    if (!is_possible) return grammar_terminal(grammar, EXPR_NOTHING);
    uint32_t num_more = members.min > members.num_required ? members.min - members.num_required : 0;
    if (num_more > 1 && order->has_others) order->num_distinct = num_more;
    return grammar_members(grammar, &members);
}
