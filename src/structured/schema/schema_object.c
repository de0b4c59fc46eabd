/* Objects: the members that the schema names, in its order, then others.
 *
 * Keys that are not named fall into classes by the patterns that they match. Each class is a set of
 * keys with one schema for the value:
 *
 *     { "a": A ,  "b": B ,  ( key of class 1: V1 | key of class 2: V2 ) * }
 *
 * A text may repeat a key that is not named, and readers keep one of the two. So the number of such
 * members is an upper bound of the number of keys; minProperties can count on one of them only. */
#include <string.h>

#include "structured/schema/schema_internal.h"

enum { CLASSES_MAX = 64, STATES_MAX = 4000, RULE_EVERY = 16 };

struct name {
    const char *key;
    size_t len;
    bool required;
    uint32_t item; // key, colon and value
};

struct class {
    uint32_t keys; // decoded
    const char *matched; // [num_patterns], 1 where the pattern matches
};

struct object {
    struct schema_reader *reader;
    const struct schema_object *limits;
    const struct schema_group **groups; // [num_groups], in the order of the schema
    size_t num_groups;
    struct name *names; // [num_names]
    size_t num_names;
    const json_t **pattern_schemas; // [num_patterns], the groups' schemas that have them
    const char **patterns;
    size_t *pattern_lens;
    size_t num_patterns;
    uint32_t others; // item: a member that is not named
    uint32_t extra; // item: the member that limits->extra asks for
    bool has_others;
    size_t min, max; // members
    uint32_t *memo; // [num_names + 1][max or min + 1], items + 1
    size_t num_counts;
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
    if (!more) more = json_object_get(schema, "unevaluatedProperties");
    if (!more && reader->options.no_additional_properties &&
        json_object_get(schema, "properties")) {
        more = json_false();
    }
    return more;
}

static bool key_matches(struct schema_reader *reader, const json_t *schema, const char *pattern,
                        size_t pattern_len, const char *key, size_t len) {
    uint32_t expr = schema_pattern_expr(reader, schema, pattern, pattern_len);
    bool matches = false;
    if (schema_failed(reader)) return false;
    enum status status = expr_matches(reader->exprs, expr, key, len, &matches, reader->err);
    if (status && !reader->status) reader->status = status;
    return matches;
}

// What one group says about a key.
static void add_group_literals(struct schema_reader *reader, const json_t *schema, const char *key,
                               size_t len, struct literals *list) {
    const json_t *named = json_object_getn(json_object_get(schema, "properties"), key, len);
    bool is_named = named != NULL;
    if (named) literals_add(reader, list, (struct schema_literal){named, 0});
    json_t *patterns = json_object_get(schema, "patternProperties");
    const char *pattern;
    size_t pattern_len;
    json_t *value;
    json_object_keylen_foreach(patterns, pattern, pattern_len, value) {
        if (!key_matches(reader, schema, pattern, pattern_len, key, len)) continue;
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
        add_group_literals(reader, groups[i]->schema, key, len, &list);
    }
    for (const struct schema_member *at = object->members; at; at = at->next) {
        if (at->len == len && memcmp(at->key, key, len) == 0) {
            literals_add(reader, &list, at->literal);
        }
    }
    return schema_node(reader, list.data, list.len);
}

// ---- propertyNames ----

static void add_name_texts(struct schema_reader *reader, const struct schema_branch *branch,
                           void *arg) {
    uint32_t *texts = arg;
    struct exprs *exprs = reader->exprs;
    if (!(branch->types & SCHEMA_STRING)) return;
    if (branch->text_refused) schema_refuse(reader, branch->text_refused);
    if (!branch->values) {
        *texts = expr_alt(exprs, *texts, schema_text_expr(reader, branch));
        return;
    }
    for (size_t i = 0; i < branch->values->num_values; i++) {
        const json_t *value = branch->values->values[i];
        if (!json_is_string(value) || !schema_branch_allows(reader, branch, value)) continue;
        uint32_t text = expr_literal(exprs, json_string_value(value), json_string_length(value));
        *texts = expr_alt(exprs, *texts, text);
    }
}

uint32_t schema_names_expr(struct schema_reader *reader, const struct schema_literals *names) {
    struct literals list = {0};
    for (; names; names = names->next) literals_add(reader, &list, names->literal);
    uint32_t texts = EXPR_NOTHING;
    const struct schema_sink sink = {add_name_texts, &texts};
    schema_expand(reader, list.data, list.len, &sink);
    return texts;
}

// ---- the members ----

static void add_name(struct object *object, struct strmap *known, const char *key, size_t len,
                     bool required) {
    uint32_t index;
    if (!strmap_get(known, key, len, &index)) {
        index = (uint32_t)object->num_names++;
        object->names[index] = (struct name){.key = key, .len = len};
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
    strmap_fini(&known);
}

// `"key" : value`; `content` is the inside of the key's quotes.
static uint32_t member_item(struct object *object, uint32_t content, uint32_t node) {
    struct schema_reader *reader = object->reader;
    struct exprs *exprs = reader->exprs;
    uint32_t quote = expr_string(exprs, "\"");
    uint32_t key = expr_concat(exprs, content, expr_concat(exprs, quote, reader->colon));
    key = expr_concat(exprs, quote, key);
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

// The schemas for a value whose key matches these patterns and is not named; `extra` may be NULL.
static uint32_t class_node(struct object *object, const char *matched,
                           const struct schema_literal *extra) {
    struct literals list = {0};
    for (size_t i = 0; i < object->num_groups; i++) {
        const json_t *schema = object->groups[i]->schema;
        const json_t *patterns = json_object_get(schema, "patternProperties");
        bool is_named = false;
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

static uint32_t all_other_keys(struct object *object) {
    struct schema_reader *reader = object->reader;
    struct exprs *exprs = reader->exprs;
    struct expr_text *texts = schema_alloc(reader, (object->num_names + 1) * sizeof *texts);
    if (!texts) return EXPR_NOTHING;
    for (size_t i = 0; i < object->num_names; i++) {
        texts[i] = (struct expr_text){object->names[i].key, object->names[i].len};
    }
    uint32_t keys = reader->any_text;
    if (object->num_names) {
        keys = expr_minus(exprs, keys, expr_one_of(exprs, texts, object->num_names));
    }
    if (object->limits->names) {
        keys = expr_and(exprs, keys, schema_names_expr(reader, object->limits->names));
    }
    return keys;
}

static void make_others(struct object *object, const uint32_t *class_items,
                        const struct class *classes, const uint32_t *nodes, size_t count) {
    struct schema_reader *reader = object->reader;
    object->has_others = count > 0;
    object->others = grammar_choice(reader->grammar, class_items, count);
    const struct schema_extra *extra = object->limits->extra;
    if (!extra) return;
    uint32_t items[CLASSES_MAX];
    size_t num_items = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t keys = expr_and(reader->exprs, classes[i].keys, extra->keys);
        uint32_t node = nodes[i];
        if (extra->literal.schema) node = class_node(object, classes[i].matched, &extra->literal);
        if (node == SCHEMA_NOTHING || is_nothing(reader, keys)) continue;
        items[num_items++] = member_item(object, expr_json_content(reader->exprs, keys), node);
    }
    object->extra = grammar_choice(reader->grammar, items, num_items);
}

static void collect_others(struct object *object) {
    struct schema_reader *reader = object->reader;
    struct class classes[CLASSES_MAX];
    uint32_t items[CLASSES_MAX], nodes[CLASSES_MAX];
    size_t num_items = 0;
    // The usual closed object needs no keys at all.
    char none = 0;
    bool is_closed = !object->num_patterns && class_node(object, &none, NULL) == SCHEMA_NOTHING;
    uint32_t all = is_closed ? EXPR_NOTHING : all_other_keys(object);
    size_t count = is_closed ? 0 : make_classes(object, all, classes);
    for (size_t i = 0; i < count && !schema_failed(reader); i++) {
        uint32_t node = class_node(object, classes[i].matched, NULL);
        if (node == SCHEMA_NOTHING || is_nothing(reader, classes[i].keys)) continue;
        uint32_t content = expr_json_content(reader->exprs, classes[i].keys);
        classes[num_items] = classes[i];
        nodes[num_items] = node;
        items[num_items++] = member_item(object, content, node);
    }
    make_others(object, items, classes, nodes, num_items);
}

// ---- the order of members ----

static uint32_t sequence(struct object *object, uint32_t a, uint32_t b) {
    return grammar_sequence(object->reader->grammar, (uint32_t[]){a, b}, 2);
}

static uint32_t behind_comma(struct object *object, uint32_t item) {
    return sequence(object, grammar_terminal(object->reader->grammar, object->reader->comma), item);
}

static uint32_t nothing(struct object *object) {
    return grammar_terminal(object->reader->grammar, EXPR_NOTHING);
}

static uint32_t choose(struct object *object, uint32_t a, uint32_t b) {
    return grammar_choice(object->reader->grammar, (uint32_t[]){a, b}, 2);
}

static uint32_t repeat_others(struct object *object, size_t min, size_t max) {
    if (!object->has_others) return min ? nothing(object) : GRAMMAR_EMPTY;
    uint32_t bound = max >= EXPR_FOREVER ? EXPR_FOREVER : (uint32_t)max;
    uint32_t one = behind_comma(object, object->others);
    return grammar_repeat(object->reader->grammar, one, (uint32_t)min, bound);
}

// One of the members that are not named is the extra one, at most `rest` are others. Where its
// value matters it is the last: of two equal keys readers keep the last.
static uint32_t with_extra(struct object *object, bool is_first, size_t rest) {
    struct grammar *grammar = object->reader->grammar;
    bool is_last = object->limits->extra->literal.schema || rest != EXPR_FOREVER;
    uint32_t after = is_last ? GRAMMAR_EMPTY : repeat_others(object, 0, EXPR_FOREVER);
    uint32_t behind = sequence(object, behind_comma(object, object->extra), after);
    if (!is_first) return sequence(object, repeat_others(object, 0, rest), behind);
    uint32_t all = sequence(object, object->extra, after);
    if (!rest || !object->has_others) return all;
    size_t more = rest == EXPR_FOREVER ? rest : rest - 1;
    uint32_t list[] = {object->others, repeat_others(object, 0, more), behind};
    return choose(object, all, grammar_sequence(grammar, list, 3));
}

// The members that are not named, behind `count` others that count.
static uint32_t end_of_members(struct object *object, size_t count) {
    size_t min = object->min > count ? object->min - count : 0;
    size_t max = object->max == EXPR_FOREVER ? EXPR_FOREVER : object->max - count;
    bool is_first = count == 0; // no comma before
    uint32_t none = min || object->limits->extra ? nothing(object) : GRAMMAR_EMPTY;
    if (max == 0) return none;
    if (min > 1 && object->has_others) {
        object->reader->needs_distinct = true;
        return none;
    }
    size_t rest = max == EXPR_FOREVER ? EXPR_FOREVER : max - 1;
    if (object->limits->extra) return with_extra(object, is_first, rest);
    if (!is_first) return repeat_others(object, min, max);
    if (!object->has_others) return none;
    uint32_t all = sequence(object, object->others, repeat_others(object, 0, rest));
    return min ? all : choose(object, all, GRAMMAR_EMPTY);
}

// Long lists are cut into rules: sequences are copied where they become longer.
static uint32_t cut(struct object *object, size_t index, uint32_t item) {
    uint32_t expr;
    struct grammar *grammar = object->reader->grammar;
    if (index % RULE_EVERY || grammar_as_expr(grammar, item, &expr)) return item;
    uint32_t rule = grammar_rule(grammar, "the members of an object");
    grammar_define(grammar, rule, item);
    return grammar_call(grammar, rule);
}

// The members from `index` on, behind `count` others that count; with `count` limited to what still
// makes a difference. Fills the memo from the end.
static uint32_t members_from(struct object *object, size_t index, size_t count) {
    size_t most = object->num_counts - 1;
    return object->memo[index * object->num_counts + (count < most ? count : most)];
}

static uint32_t make_members(struct object *object, size_t index, size_t count) {
    if (object->max != EXPR_FOREVER && count > object->max) return nothing(object);
    if (index == object->num_names) return end_of_members(object, count);
    const struct name *name = &object->names[index];
    uint32_t with = GRAMMAR_EMPTY;
    if (count) {
        uint32_t member = behind_comma(object, name->item);
        with = sequence(object, member, members_from(object, index + 1, count + 1));
    } else {
        with = sequence(object, name->item, members_from(object, index + 1, 1));
    }
    if (!name->required) {
        with = choose(object, with, members_from(object, index + 1, count));
    }
    return cut(object, index, with);
}

// Without counting: one choice of the first member, and what may follow each.
static uint32_t uncounted_members(struct object *object) {
    struct schema_reader *reader = object->reader;
    struct grammar *grammar = reader->grammar;
    uint32_t *choices = schema_alloc(reader, (object->num_names + 1) * sizeof *choices);
    if (!choices) return GRAMMAR_EMPTY;
    uint32_t tail = end_of_members(object, 1), none = end_of_members(object, 0);
    size_t first = object->num_names; // choices are filled from their end
    choices[first] = none;
    size_t last = first;
    for (size_t i = object->num_names; i-- > 0 && !schema_failed(reader);) {
        const struct name *name = &object->names[i];
        choices[--first] = sequence(object, name->item, tail);
        if (name->required) last = first; // none behind it can be the first
        uint32_t member = behind_comma(object, name->item);
        if (!name->required) member = grammar_optional(grammar, member);
        tail = cut(object, i, sequence(object, member, tail));
    }
    return grammar_choice(grammar, choices + first, last + 1 - first);
}

static uint32_t counted_members(struct object *object, size_t num_required) {
    size_t num_states = (object->num_names + 1) * object->num_counts;
    if (num_states > STATES_MAX) {
        schema_fail(object->reader, ERR_CAPACITY,
                    "the JSON schema counts the properties of an object with too many keys");
        return GRAMMAR_EMPTY;
    }
    object->memo = schema_alloc(object->reader, num_states * sizeof *object->memo);
    if (!object->memo) return GRAMMAR_EMPTY;
    size_t num_before = num_required; // required ones before `index`
    for (size_t index = object->num_names + 1; index-- > 0;) {
        for (size_t count = object->num_counts; count-- > 0;) {
            bool is_reached =
                count <= index && (count >= num_before || count == object->num_counts - 1);
            uint32_t *state = &object->memo[index * object->num_counts + count];
            *state = is_reached ? make_members(object, index, count) : GRAMMAR_EMPTY;
        }
        if (index && object->names[index - 1].required) num_before--;
        if (schema_failed(object->reader)) return GRAMMAR_EMPTY;
    }
    return object->memo[0];
}

static uint32_t order_members(struct object *object) {
    size_t num_required = 0;
    for (size_t i = 0; i < object->num_names; i++) num_required += object->names[i].required;
    object->min = object->limits->min > num_required ? object->limits->min : 0;
    object->max = object->limits->max;
    if (!object->has_others && object->max >= object->num_names) object->max = EXPR_FOREVER;
    if (object->min <= 1 && object->max == EXPR_FOREVER) return uncounted_members(object);
    // Counts from 0 up to the largest that makes a difference.
    size_t most = object->min > 1 ? object->min : 1;
    if (object->max != EXPR_FOREVER && object->max + 1 > most) most = object->max + 1;
    if (most > object->num_names + 1) most = object->num_names + 1;
    object->num_counts = most + 1;
    return counted_members(object, num_required);
}

uint32_t schema_object_item(struct schema_reader *reader, const struct schema_object *limits) {
    struct object object = {.reader = reader, .limits = limits};
    if (limits->refused) {
        schema_refuse(reader, limits->refused);
        return GRAMMAR_EMPTY;
    }
    object.groups = list_groups(reader, limits->groups, &object.num_groups);
    collect_names(&object);
    collect_patterns(&object);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    uint32_t allowed = limits->names ? schema_names_expr(reader, limits->names) : EXPR_ANYTHING;
    for (size_t i = 0; i < object.num_names && !schema_failed(reader); i++) {
        struct name *name = &object.names[i];
        uint32_t node = schema_member_node(reader, limits, name->key, name->len);
        bool is_allowed = true;
        if (limits->names) {
            enum status status = expr_matches(reader->exprs, allowed, name->key, name->len,
                                              &is_allowed, reader->err);
            if (status) reader->status = status;
        }
        if (!is_allowed) node = SCHEMA_NOTHING;
        uint32_t content = expr_json_literal(reader->exprs, name->key, name->len);
        name->item = member_item(&object, content, node);
    }
    collect_others(&object);
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    reader->needs_distinct = false;
    uint32_t members = order_members(&object);
    if (reader->needs_distinct) {
        const json_t *schema = object.num_groups ? object.groups[0]->schema : reader->refs.root;
        schema_refuse(reader, schema_say(reader, schema,
                                         "keyword \"minProperties\" cannot be enforced: keys that "
                                         "are not named may repeat each other"));
    }
    struct exprs *exprs = reader->exprs;
    uint32_t open = expr_concat(exprs, expr_string(exprs, "{"), reader->space);
    uint32_t close = expr_concat(exprs, reader->space, expr_string(exprs, "}"));
    uint32_t items[] = {grammar_terminal(reader->grammar, open), members,
                        grammar_terminal(reader->grammar, close)};
    return grammar_sequence(reader->grammar, items, 3);
}
