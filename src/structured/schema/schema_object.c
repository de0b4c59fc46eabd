/* Objects: the members that the schema names, in its order, then others. Or all in any order.
 *
 * Keys that are not named fall into classes by the patterns that they match. Each class is a set of
 * keys with one schema for the value:
 *
 *     { "a": A ,  "b": B ,  ( key of class 1: V1 | key of class 2: V2 ) * }
 *
 * A text may repeat a key that is not named, and readers keep one of the two. So the number of such
 * members is an upper bound of the number of keys. Where minProperties counts on more than one of
 * them, keys that repeat are banned beside the grammar (unique/unique.h). */
#include <string.h>

#include "structured/schema/schema_internal.h"

enum { CLASSES_MAX = 64 };

struct class {
    uint32_t keys; // decoded
    const char *matched; // [num_patterns], 1 where the pattern matches
};

struct object {
    struct schema_reader *reader;
    const struct schema_object *limits;
    const struct schema_group **groups; // [num_groups], in the order of the schema
    size_t num_groups;
    struct schema_name *names; // [num_names]
    size_t num_names;
    const json_t **pattern_schemas; // [num_patterns], the groups' schemas that have them
    const char **patterns;
    size_t *pattern_lens;
    size_t num_patterns;
    uint32_t allowed; // decoded keys that propertyNames allows
    struct class classes[CLASSES_MAX]; // [num_classes], of members that are not named
    uint32_t class_nodes[CLASSES_MAX];
    size_t num_classes;
    uint32_t others; // item: a member that is not named
    uint32_t extra; // item: the member that limits->extra asks for
    bool has_others;
    bool has_orders; // keys come in any order
};

// ---- which schemas a member has ----

struct literals {
    struct schema_literal *data; // [len]
    size_t len, capacity;
};

static void literals_add(struct schema_reader *reader, struct literals *list,
                         struct schema_literal literal) {
    if (list->len == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        struct schema_literal *data = schema_alloc(reader, capacity * sizeof *data);
        if (!data) return;
        if (list->len) memcpy(data, list->data, list->len * sizeof *data);
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->len++] = literal;
}

static const json_t *additional_of(struct schema_reader *reader, const json_t *schema) {
    const json_t *more = json_object_get(schema, "additionalProperties");
    if (!more && reader->options.no_additional_properties &&
        json_object_get(schema, "properties") && !schema_opens_scope(schema)) {
        more = json_false();
    }
    return more;
}

// What one group says about a key.
static void add_group_literals(struct schema_reader *reader, const struct schema_group *group,
                               const char *key, size_t len, struct literals *list) {
    if (group->is_rest) {
        const json_t *rest = schema_unevaluated_property(reader, group, key, len);
        if (rest) literals_add(reader, list, (struct schema_literal){rest, 0});
        return;
    }
    const json_t *schema = group->schema;
    const json_t *named = json_object_getn(json_object_get(schema, "properties"), key, len);
    bool is_named = named != NULL;
    if (named) literals_add(reader, list, (struct schema_literal){named, 0});
    json_t *patterns = json_object_get(schema, "patternProperties");
    const char *pattern;
    size_t pattern_len;
    json_t *value;
    json_object_keylen_foreach(patterns, pattern, pattern_len, value) {
        if (!schema_pattern_matches(reader, schema, pattern, pattern_len, key, len)) continue;
        is_named = true;
        literals_add(reader, list, (struct schema_literal){value, 0});
    }
    const json_t *more = is_named ? NULL : additional_of(reader, schema);
    if (more) literals_add(reader, list, (struct schema_literal){more, 0});
}

// NULL, and *len 0, where reading has failed.
static const struct schema_group **list_groups(struct schema_reader *reader,
                                               const struct schema_group *list, size_t *len) {
    *len = 0;
    for (const struct schema_group *at = list; at; at = at->next) ++*len;
    const struct schema_group **groups = schema_alloc(reader, (*len + 1) * sizeof *groups);
    if (!groups) *len = 0;
    size_t i = *len;
    for (const struct schema_group *at = list; at && i > 0; at = at->next) groups[--i] = at;
    return groups;
}

uint32_t schema_member_node(struct schema_reader *reader, const struct schema_object *object,
                            const char *key, size_t len) {
    struct literals list = {0};
    size_t num_groups;
    const struct schema_group **groups = list_groups(reader, object->groups, &num_groups);
    for (size_t i = 0; groups && i < num_groups; i++) {
        add_group_literals(reader, groups[i], key, len, &list);
    }
    for (const struct schema_member *at = object->members; at; at = at->next) {
        if (at->len == len && memcmp(at->key, key, len) == 0) {
            literals_add(reader, &list, at->literal);
        }
    }
    return schema_node(reader, list.data, list.len);
}

// ---- the members ----

// A number for the key, in whichever object it is.
static uint32_t key_number(struct schema_reader *reader, const char *key, size_t len) {
    uint32_t number;
    if (strmap_get(&reader->key_of, key, len, &number)) return number;
    number = reader->num_keys++;
    enum status status = strmap_put(&reader->key_of, key, len, number, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
    return number;
}

static void add_name(struct object *object, struct strmap *known, const char *key, size_t len,
                     bool required) {
    uint32_t index;
    if (!strmap_get(known, key, len, &index)) {
        index = (uint32_t)object->num_names++;
        object->names[index] = (struct schema_name){
            .key = key, .len = len, .number = key_number(object->reader, key, len)};
        enum status status = strmap_put(known, key, len, index, NULL, object->reader->err);
        if (status && !object->reader->status) object->reader->status = status;
    }
    object->names[index].required |= required;
}

static void collect_names(struct object *object) {
    const struct schema_object *limits = object->limits;
    size_t count = 1;
    for (size_t i = 0; i < object->num_groups; i++) {
        count += json_object_size(json_object_get(object->groups[i]->schema, "properties"));
    }
    size_t num_required = 0;
    for (const struct schema_member *at = limits->members; at; at = at->next) count++;
    for (const struct schema_clause *at = limits->clauses; at; at = at->next) {
        for (const struct schema_way *way = at->ways; way; way = way->next) count++;
    }
    for (const struct schema_member *at = limits->required; at; at = at->next) num_required++;
    object->names = schema_alloc(object->reader, (count + num_required) * sizeof *object->names);
    const struct schema_member **required =
        schema_alloc(object->reader, (num_required + 1) * sizeof *required);
    if (!object->names || !required) return;
    struct strmap known = {0};
    for (size_t i = 0; i < object->num_groups; i++) {
        json_t *properties = json_object_get(object->groups[i]->schema, "properties");
        const char *key;
        size_t len;
        json_t *value;
        json_object_keylen_foreach(properties, key, len, value) {
            add_name(object, &known, key, len, false);
        }
    }
    size_t i = num_required; // the list has the newest first
    for (const struct schema_member *at = limits->required; at; at = at->next) required[--i] = at;
    for (i = 0; i < num_required; i++) {
        add_name(object, &known, required[i]->key, required[i]->len, true);
    }
    for (const struct schema_member *at = limits->members; at; at = at->next) {
        add_name(object, &known, at->key, at->len, false);
    }
    for (const struct schema_clause *at = limits->clauses; at; at = at->next) {
        for (const struct schema_way *way = at->ways; way; way = way->next) {
            add_name(object, &known, way->key, way->len, false);
        }
    }
    strmap_fini(&known);
}

// `content" :`
static uint32_t key_expr(struct schema_reader *reader, uint32_t content) {
    struct exprs *exprs = reader->exprs;
    uint32_t quote = expr_string(exprs, "\"");
    return expr_concat(exprs, content, expr_concat(exprs, quote, reader->colon));
}

// From its end: the bytes of a key are most of a schema's nodes.
uint32_t schema_named_member(struct schema_reader *reader, const struct schema_name *name,
                             bool has_orders) {
    struct exprs *exprs = reader->exprs;
    uint32_t value = schema_node_item(reader, name->node), expr = EXPR_EPSILON;
    bool is_expr = grammar_as_expr(reader->grammar, value, &expr);
    schema_count_part(reader);
    uint32_t quote = expr_string(exprs, "\"");
    uint32_t tail = expr_concat(exprs, quote, expr_concat(exprs, reader->colon, expr));
    tail = expr_json_literal_before(exprs, name->key, name->len, tail);
    if (!has_orders) tail = expr_concat(exprs, quote, tail);
    uint32_t member = grammar_terminal(reader->grammar, tail);
    if (is_expr) return member;
    return grammar_sequence(reader->grammar, (uint32_t[]){member, value}, 2);
}

// The same for keys that are not named.
static uint32_t member_item(struct object *object, uint32_t key, uint32_t node) {
    struct schema_reader *reader = object->reader;
    uint32_t value = schema_node_item(reader, node);
    schema_count_part(reader);
    uint32_t items[] = {grammar_terminal(reader->grammar, key), value};
    return grammar_sequence(reader->grammar, items, 2);
}

// ---- members that are not named ----

static void collect_patterns(struct object *object) {
    size_t count = 0;
    for (size_t i = 0; i < object->num_groups; i++) {
        count += json_object_size(json_object_get(object->groups[i]->schema, "patternProperties"));
    }
    struct schema_reader *reader = object->reader;
    object->patterns = schema_alloc(reader, (count + 1) * sizeof *object->patterns);
    object->pattern_lens = schema_alloc(reader, (count + 1) * sizeof *object->pattern_lens);
    object->pattern_schemas = schema_alloc(reader, (count + 1) * sizeof *object->pattern_schemas);
    if (!object->patterns || !object->pattern_lens || !object->pattern_schemas) return;
    for (size_t i = 0; i < object->num_groups; i++) {
        const json_t *schema = object->groups[i]->schema;
        json_t *patterns = json_object_get(schema, "patternProperties");
        const char *pattern;
        size_t len;
        json_t *value;
        if (object->groups[i]->is_rest) continue; // the schema has a group of its own
        json_object_keylen_foreach(patterns, pattern, len, value) {
            object->patterns[object->num_patterns] = pattern;
            object->pattern_lens[object->num_patterns] = len;
            object->pattern_schemas[object->num_patterns++] = schema;
        }
    }
}

static bool is_nothing(struct schema_reader *reader, uint32_t expr) {
    bool nothing = true;
    if (schema_failed(reader)) return true;
    enum status status = expr_is_nothing(reader->exprs, expr, &nothing, reader->err);
    if (status && !reader->status) reader->status = status;
    return nothing;
}

// Whether the group says something about keys that match these patterns and are not named.
static bool evaluates_class(const struct object *object, const struct schema_group *group,
                            const char *matched) {
    bool found = group->is_rest || json_object_get(group->schema, "additionalProperties");
    for (size_t k = 0; k < object->num_patterns && !found; k++) {
        found = matched[k] && object->pattern_schemas[k] == group->schema;
    }
    return found;
}

// The schemas for a value whose key matches these patterns and is not named; `extra` may be NULL.
static uint32_t class_node(struct object *object, const char *matched,
                           const struct schema_literal *extra) {
    struct literals list = {0};
    for (size_t i = 0; i < object->num_groups; i++) {
        const struct schema_group *group = object->groups[i];
        const json_t *schema = group->schema;
        const json_t *patterns = json_object_get(schema, "patternProperties");
        bool is_named = false;
        if (group->is_rest) {
            const struct schema_group *at = group->next;
            while (at != group->since && !evaluates_class(object, at, matched)) at = at->next;
            if (at != group->since) continue;
            const json_t *rest = json_object_get(schema, "unevaluatedProperties");
            literals_add(object->reader, &list, (struct schema_literal){rest, 0});
            continue;
        }
        for (size_t k = 0; k < object->num_patterns; k++) {
            if (!matched[k] || object->pattern_schemas[k] != schema) continue;
            const json_t *value =
                json_object_getn(patterns, object->patterns[k], object->pattern_lens[k]);
            literals_add(object->reader, &list, (struct schema_literal){value, 0});
            is_named = true;
        }
        const json_t *more = is_named ? NULL : additional_of(object->reader, schema);
        if (more) literals_add(object->reader, &list, (struct schema_literal){more, 0});
    }
    if (extra) literals_add(object->reader, &list, *extra);
    return schema_node(object->reader, list.data, list.len);
}

// Whether no text matches both this pattern and one of those that the class matches. Other objects
// ask the same of equal patterns, and the answer is kept.
static bool excludes(struct object *object, const struct class *class, uint32_t pattern) {
    struct schema_reader *reader = object->reader;
    for (size_t k = 0; k < object->num_patterns; k++) {
        if (!class->matched[k]) continue;
        uint32_t other = schema_pattern_expr(reader, object->pattern_schemas[k],
                                             object->patterns[k], object->pattern_lens[k]);
        if (is_nothing(reader, expr_and(reader->exprs, other, pattern))) return true;
    }
    return false;
}

// Splits all keys by the patterns that they match. Returns the number of classes.
static size_t make_classes(struct object *object, uint32_t all, struct class *classes) {
    struct schema_reader *reader = object->reader;
    struct exprs *exprs = reader->exprs;
    char *none = schema_alloc(reader, object->num_patterns + 1);
    if (!none) return 0;
    memset(none, 0, object->num_patterns + 1);
    size_t count = 1;
    classes[0] = (struct class){all, none};
    for (size_t k = 0; k < object->num_patterns; k++) {
        uint32_t pattern = schema_pattern_expr(reader, object->pattern_schemas[k],
                                               object->patterns[k], object->pattern_lens[k]);
        size_t before = count;
        for (size_t i = 0; i < before && !schema_failed(reader); i++) {
            if (excludes(object, &classes[i], pattern)) continue;
            uint32_t inside = expr_and(exprs, classes[i].keys, pattern);
            if (is_nothing(reader, inside)) continue;
            char *matched = schema_alloc(reader, object->num_patterns + 1);
            if (!matched) return 0;
            memcpy(matched, classes[i].matched, object->num_patterns + 1);
            matched[k] = 1;
            uint32_t outside = expr_minus(exprs, classes[i].keys, pattern);
            if (is_nothing(reader, outside)) {
                classes[i].matched = matched;
                continue;
            }
            classes[i].keys = outside;
            if (count == CLASSES_MAX) {
                schema_refuse(reader, schema_say(reader, object->pattern_schemas[k],
                                                 "keyword \"patternProperties\" cannot be "
                                                 "enforced: too many patterns overlap"));
                return 0;
            }
            classes[count++] = (struct class){inside, matched};
        }
    }
    return count;
}

// All texts but the names. Branches of an object have the same names.
static uint32_t no_names(struct object *object) {
    struct schema_reader *reader = object->reader;
    struct exprs *exprs = reader->exprs;
    size_t len = object->num_names * sizeof(uint32_t);
    uint32_t *numbers = schema_alloc(reader, len + 1), keys;
    struct expr_text *texts = schema_alloc(reader, (object->num_names + 1) * sizeof *texts);
    if (!texts || !numbers) return EXPR_NOTHING;
    for (size_t i = 0; i < object->num_names; i++) {
        numbers[i] = object->names[i].number;
        texts[i] = (struct expr_text){object->names[i].key, object->names[i].len};
    }
    if (strmap_get(&reader->others_of, (const char *)numbers, len, &keys)) return keys;
    keys = expr_minus(exprs, reader->any_text, expr_one_of(exprs, texts, object->num_names));
    enum status status =
        strmap_put(&reader->others_of, (const char *)numbers, len, keys, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
    return keys;
}

static uint32_t all_other_keys(struct object *object) {
    struct schema_reader *reader = object->reader;
    uint32_t keys = object->num_names ? no_names(object) : reader->any_text;
    if (!object->limits->names) return keys;
    return expr_and(reader->exprs, keys, schema_names_expr(reader, object->limits->names));
}

// The classes of keys whose members may be there.
static void collect_classes(struct object *object) {
    struct schema_reader *reader = object->reader;
    // The usual closed object needs no keys at all.
    char none = 0;
    if (!object->num_patterns && class_node(object, &none, NULL) == SCHEMA_NOTHING) return;
    size_t count = make_classes(object, all_other_keys(object), object->classes);
    for (size_t i = 0; i < count && !schema_failed(reader); i++) {
        uint32_t node = class_node(object, object->classes[i].matched, NULL);
        if (node == SCHEMA_NOTHING || is_nothing(reader, object->classes[i].keys)) continue;
        object->classes[object->num_classes] = object->classes[i];
        object->class_nodes[object->num_classes++] = node;
    }
}

static uint32_t class_item(struct object *object, uint32_t keys, uint32_t node) {
    struct schema_reader *reader = object->reader;
    uint32_t key = key_expr(reader, expr_json_content(reader->exprs, keys));
    if (!object->has_orders) {
        key = expr_concat(reader->exprs, expr_string(reader->exprs, "\""), key);
    }
    return member_item(object, key, node);
}

static void make_others(struct object *object) {
    struct schema_reader *reader = object->reader;
    uint32_t items[CLASSES_MAX];
    size_t num_items = 0;
    for (size_t i = 0; i < object->num_classes; i++) {
        items[num_items++] = class_item(object, object->classes[i].keys, object->class_nodes[i]);
    }
    object->has_others = num_items > 0;
    object->others = grammar_choice(reader->grammar, items, num_items);
    const struct schema_extra *extra = object->limits->extra;
    if (!extra) return;
    num_items = 0;
    for (size_t i = 0; i < object->num_classes; i++) {
        uint32_t keys = expr_and(reader->exprs, object->classes[i].keys, extra->keys);
        uint32_t node = object->class_nodes[i];
        if (extra->literal.schema) {
            node = class_node(object, object->classes[i].matched, &extra->literal);
        }
        if (node == SCHEMA_NOTHING || is_nothing(reader, keys)) continue;
        items[num_items++] = class_item(object, keys, node);
    }
    object->extra = grammar_choice(reader->grammar, items, num_items);
}

// ---- one object ----

// Finds the node of the name's value: SCHEMA_NOTHING where no value is allowed.
static void find_value(struct object *object, struct schema_name *name) {
    struct schema_reader *reader = object->reader;
    bool is_allowed = true;
    name->node = SCHEMA_NOTHING;
    if (object->limits->names) {
        enum status status = expr_matches(reader->exprs, object->allowed, name->key, name->len,
                                          &is_allowed, reader->err);
        if (status && !reader->status) reader->status = status;
    }
    if (!is_allowed) return;
    uint32_t node = schema_member_node(reader, object->limits, name->key, name->len), expr;
    uint32_t item = schema_node_item(reader, node);
    if (schema_failed(reader)) return;
    if (!grammar_as_expr(reader->grammar, item, &expr) || expr != EXPR_NOTHING) name->node = node;
}

// False: some required member has no value. The required ones come first, so such an object takes
// little time: there may be thousands of them where schemas exclude each other by a member.
static bool find_values(struct object *object) {
    for (int required = 1; required >= 0; required--) {
        for (size_t i = 0; i < object->num_names && !schema_failed(object->reader); i++) {
            struct schema_name *name = &object->names[i];
            if (name->required != (required == 1)) continue;
            find_value(object, name);
            if (required && name->node == SCHEMA_NOTHING) return false;
        }
    }
    return true;
}

// What the object's texts depend on, as bytes: objects with equal ones have the same item.
static const char *object_parts(struct object *object, size_t *len) {
    struct schema_reader *reader = object->reader;
    const struct schema_object *limits = object->limits;
    size_t num_parts = 3 + 3 * object->num_names + 2 * object->num_classes, at = 0;
    uint32_t *parts = schema_alloc(reader, num_parts * sizeof *parts);
    if (!parts) return NULL;
    for (size_t i = 0; i < object->num_names; i++) {
        const struct schema_name *name = &object->names[i];
        if (name->node == SCHEMA_NOTHING) continue;
        parts[at++] = name->number;
        parts[at++] = name->node;
        parts[at++] = name->required;
    }
    parts[at++] = UINT32_MAX;
    for (size_t i = 0; i < object->num_classes; i++) {
        parts[at++] = object->classes[i].keys;
        parts[at++] = object->class_nodes[i];
    }
    parts[at++] = limits->min;
    parts[at++] = limits->max;
    *len = at * sizeof *parts;
    return (const char *)parts;
}

// minProperties counts keys that are not named. That they differ is seen to beside the grammar,
// which can only work if there are so many.
static void check_distinct(struct object *object, size_t count) {
    enum { COUNT_MAX = 1000 };
    struct schema_reader *reader = object->reader;
    uint32_t keys = EXPR_NOTHING;
    const char *why = NULL;
    for (size_t i = 0; i < object->num_classes; i++) {
        uint32_t item = schema_node_item(reader, object->class_nodes[i]), expr;
        if (grammar_as_expr(reader->grammar, item, &expr) && expr == EXPR_NOTHING) continue;
        keys = expr_alt(reader->exprs, keys, object->classes[i].keys);
    }
    if (object->limits->extra) {
        why = "where a \"not\", \"oneOf\" or \"if\" above it needs a key of some kind";
    } else if (count > COUNT_MAX || !schema_has_many_texts(reader, keys, count)) {
        why = "too few different keys are known to exist";
    }
    if (!why || schema_failed(reader)) return;
    const json_t *schema = object->num_groups ? object->groups[0]->schema : reader->refs.root;
    schema_refuse(reader, schema_say(reader, schema,
                                     "keyword \"minProperties\" cannot be enforced: %s", why));
}

static uint32_t make_object(struct object *object) {
    struct schema_reader *reader = object->reader;
    object->has_orders = reader->options.any_key_order &&
                         schema_has_orders(object->limits, object->names, object->num_names,
                                           object->num_classes > 0);
    for (size_t i = 0; i < object->num_names && !schema_failed(reader); i++) {
        struct schema_name *name = &object->names[i];
        if (name->node == SCHEMA_NOTHING) continue;
        name->item = schema_named_member(reader, name, object->has_orders);
    }
    schema_clause_choices(reader, object->limits, object->names, object->num_names);
    make_others(object);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    struct schema_order order = {.reader = reader,
                                 .limits = object->limits,
                                 .names = object->names,
                                 .num_names = object->num_names,
                                 .others = object->others,
                                 .extra = object->extra,
                                 .has_others = object->has_others,
                                 .has_patterns = object->num_patterns > 0};
    uint32_t members =
        object->has_orders ? schema_any_order_members(&order) : schema_order_members(&order);
    uint32_t mark = GRAMMAR_EMPTY;
    if (order.num_distinct) check_distinct(object, order.num_distinct);
    if (order.num_distinct || order.has_unique_keys) mark = grammar_unique_keys(reader->grammar);
    struct exprs *exprs = reader->exprs;
    uint32_t open = expr_concat(exprs, expr_string(exprs, "{"), reader->space);
    uint32_t close = expr_concat(exprs, reader->space, expr_string(exprs, "}"));
    uint32_t items[] = {mark, grammar_terminal(reader->grammar, open), members,
                        grammar_terminal(reader->grammar, close)};
    return grammar_sequence(reader->grammar, items, 4);
}

// Makes the object, or takes the one that has the same parts.
static uint32_t share_object(struct object *object) {
    struct schema_reader *reader = object->reader;
    // Their parts are not in the key.
    if (object->limits->extra || object->limits->clauses) return make_object(object);
    size_t len;
    const char *parts = object_parts(object, &len);
    if (!parts) return GRAMMAR_EMPTY;
    uint32_t index;
    size_t before = reader->weight;
    if (!strmap_get(&reader->object_of, parts, len, &index)) {
        uint32_t item = make_object(object);
        struct schema_made *made = schema_grow(reader, reader->made, reader->num_made,
                                               &reader->made_capacity, sizeof *made);
        if (!made) return item;
        reader->made = made;
        index = (uint32_t)reader->num_made++;
        made[index] = (struct schema_made){.item = item, .weight = reader->weight - before};
        enum status status = strmap_put(&reader->object_of, parts, len, index, NULL, reader->err);
        if (status && !reader->status) reader->status = status;
        return item;
    }
    struct schema_made *made = &reader->made[index];
    reader->weight += made->weight;
    uint32_t expr;
    if (!made->is_shared && !grammar_as_expr(reader->grammar, made->item, &expr)) {
        uint32_t rule = grammar_rule(reader->grammar, "an object of the JSON schema");
        grammar_define(reader->grammar, rule, made->item);
        made->item = grammar_call(reader->grammar, rule);
    }
    made->is_shared = true;
    return made->item;
}

uint32_t schema_object_item(struct schema_reader *reader, const struct schema_object *limits) {
    struct object object = {.reader = reader, .limits = limits};
    if (limits->refused) {
        schema_refuse(reader, limits->refused);
        return GRAMMAR_EMPTY;
    }
    object.groups = list_groups(reader, limits->groups, &object.num_groups);
    object.allowed = limits->names ? schema_names_expr(reader, limits->names) : EXPR_ANYTHING;
    collect_names(&object);
    collect_patterns(&object);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    size_t before = reader->weight;
    bool has_values = find_values(&object);
    reader->weight = before; // they are counted when they are written
    if (!has_values) return grammar_terminal(reader->grammar, EXPR_NOTHING);
    collect_classes(&object);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    return share_object(&object);
}
