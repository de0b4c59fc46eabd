/* Negated schemas: a value does not satisfy a schema where one of its keywords fails, so each
 * keyword is an alternative. "not" needs this, "oneOf" for the options that are not taken, "if"
 * for its else. schema_disjoint.c shows most of them to be true before. */
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "structured/schema/schema_negate.h"

enum { ONE_OF_MAX = 64 };

void negation_run(const struct negation *n, const struct schema_work *work) {
    if (work->branch.types) schema_run(n->reader, work, n->sink);
}

struct schema_work negation_copy(const struct negation *n, unsigned types) {
    struct schema_work copy = *n->work;
    copy.branch.types &= n->types & types;
    return copy;
}

void negation_refuse(const struct negation *n, unsigned types, const char *key) {
    if (!(n->work->branch.types & n->types & types)) return;
    schema_refuse(n->reader,
                  schema_say(n->reader, n->schema,
                             "keyword \"%s\" cannot be negated, as \"not\", \"oneOf\" or \"if\" "
                             "above it needs",
                             key));
}

// ---- schemas of the same value ----

static void negate_all(const struct negation *n, struct schema_work *work, const json_t *list,
                       size_t except_a, size_t except_b) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i == except_a || i == except_b) continue;
        work->negated = schema_agenda_push(n->reader, work->negated, json_array_get(list, i), true);
    }
}

static void push_negated(const struct negation *n, const json_t *schema) {
    struct schema_work copy = *n->work;
    copy.negated = schema_agenda_push(n->reader, copy.negated, schema, true);
    negation_run(n, &copy);
}

// None of the options holds, or two of them.
static void negate_one_of(const struct negation *n, const json_t *list) {
    struct schema_work copy = *n->work;
    negate_all(n, &copy, list, SIZE_MAX, SIZE_MAX);
    negation_run(n, &copy);
    size_t len = json_array_size(list);
    if (len > ONE_OF_MAX) {
        negation_refuse(n, SCHEMA_ALL, "oneOf");
        return;
    }
    for (size_t i = 0; i < len; i++) {
        for (size_t j = i + 1; j < len; j++) {
            copy = *n->work;
            const json_t *a = json_array_get(list, i), *b = json_array_get(list, j);
            copy.agenda = schema_agenda_push(n->reader, copy.agenda, b, false);
            copy.agenda = schema_agenda_push(n->reader, copy.agenda, a, false);
            negation_run(n, &copy);
        }
    }
}

static void negate_if(const struct negation *n, const json_t *condition) {
    const json_t *then_schema = json_object_get(n->schema, "then");
    const json_t *else_schema = json_object_get(n->schema, "else");
    struct schema_work copy = *n->work;
    if (then_schema) {
        copy.agenda = schema_agenda_push(n->reader, copy.agenda, condition, false);
        copy.negated = schema_agenda_push(n->reader, copy.negated, then_schema, true);
        negation_run(n, &copy);
    }
    if (!else_schema) return;
    copy = *n->work;
    copy.negated = schema_agenda_push(n->reader, copy.negated, else_schema, true);
    copy.negated = schema_agenda_push(n->reader, copy.negated, condition, true);
    negation_run(n, &copy);
}

static void negate_ref(const struct negation *n, const char *key) {
    const char *uri = json_string_value(json_object_get(n->schema, key)), *why;
    const json_t *target = schema_refs_target(n->reader, n->schema, key, &why);
    struct schema_work copy = *n->work;
    if (target && ++copy.num_refs > 100) {
        target = NULL;
        why = "refers to itself without a value between";
    }
    if (!target) {
        schema_refuse(n->reader, schema_say(n->reader, n->schema, "%s \"%.200s\" %s", key,
                                            uri ? uri : "?", why));
        return;
    }
    copy.negated = schema_agenda_push(n->reader, copy.negated, target, true);
    negation_run(n, &copy);
}

static bool negate_in_place(const struct negation *n, const char *key, const json_t *value) {
    struct schema_work copy = *n->work;
    static const char *const refs[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    bool is_ref = false;
    for (size_t i = 0; i < ARRAY_LEN(refs); i++) is_ref |= strcmp(key, refs[i]) == 0;
    if (is_ref) {
        negate_ref(n, key);
    } else if (strcmp(key, "not") == 0) {
        copy.agenda = schema_agenda_push(n->reader, copy.agenda, value, false);
        negation_run(n, &copy);
    } else if (strcmp(key, "allOf") == 0) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            push_negated(n, json_array_get(value, i));
        }
    } else if (strcmp(key, "anyOf") == 0) {
        negate_all(n, &copy, value, SIZE_MAX, SIZE_MAX);
        negation_run(n, &copy);
    } else if (strcmp(key, "oneOf") == 0) {
        negate_one_of(n, value);
    } else if (strcmp(key, "if") == 0) {
        negate_if(n, value);
    } else {
        return false;
    }
    return true;
}

// ---- values, numbers, strings ----

// The value equals none of these. Of arrays and objects that is left to the keywords of a schema.
static void exclude_values(const struct negation *n, struct schema_work *work, const json_t *list,
                           bool is_list) {
    schema_exclude_values(n->reader, &work->branch, list, is_list);
    for (size_t i = 0; i < (is_list ? json_array_size(list) : 1); i++) {
        const json_t *value = is_list ? json_array_get(list, i) : list;
        unsigned type = schema_type_of(value) & (SCHEMA_ARRAY | SCHEMA_OBJECT);
        if (work->branch.values || !(type & work->branch.types)) continue;
        const json_t *equal = schema_equal_to(n->reader, value);
        if (equal) work->negated = schema_agenda_push(n->reader, work->negated, equal, true);
    }
}

static bool negate_values(const struct negation *n, const char *key, const json_t *value) {
    struct schema_work copy = *n->work;
    if (strcmp(key, "type") == 0) {
        copy.branch.types &= ~schema_read_types(n->reader, n->schema);
    } else if (strcmp(key, "const") == 0) {
        exclude_values(n, &copy, value, false);
    } else if (strcmp(key, "enum") == 0) {
        exclude_values(n, &copy, value, true);
    } else {
        return false;
    }
    negation_run(n, &copy);
    return true;
}

static bool negate_number(const struct negation *n, const char *key, const json_t *value) {
    struct schema_work copy = negation_copy(n, SCHEMA_NUMBER);
    bool is_lower = strcmp(key, "exclusiveMinimum") == 0;
    bool is_upper = strcmp(key, "exclusiveMaximum") == 0;
    bool is_minimum = strcmp(key, "minimum") == 0, is_maximum = strcmp(key, "maximum") == 0;
    if (strcmp(key, "multipleOf") == 0) {
        struct schema_decimals *step = schema_alloc(n->reader, sizeof *step);
        if (!step || !schema_decimal_read(n->reader, value, &step->value)) return true;
        step->next = copy.branch.not_multiples;
        copy.branch.not_multiples = step;
        negation_run(n, &copy);
        return true;
    }
    if (!is_lower && !is_upper && !is_minimum && !is_maximum) return false;
    if (json_is_boolean(value)) return true; // draft 4: part of minimum and maximum
    const char *old = is_minimum ? "exclusiveMinimum" : "exclusiveMaximum";
    bool exclusive = is_lower || is_upper || json_is_true(json_object_get(n->schema, old));
    bool was_upper = is_upper || is_maximum;
    schema_limit_number(n->reader, &copy.branch, value, !was_upper, !exclusive);
    negation_run(n, &copy);
    return true;
}

static bool negate_string(const struct negation *n, const char *key, const json_t *value) {
    struct schema_work copy = negation_copy(n, SCHEMA_STRING);
    struct exprs *exprs = n->reader->exprs;
    uint32_t count;
    if (strcmp(key, "minLength") == 0) {
        if (!schema_count(n->reader, n->schema, key, &count) || !count) return true;
        if (count - 1 < copy.branch.length_max) copy.branch.length_max = count - 1;
    } else if (strcmp(key, "maxLength") == 0) {
        if (!schema_count(n->reader, n->schema, key, &count)) return true;
        if (count + 1 > copy.branch.length_min) copy.branch.length_min = count + 1;
    } else if (strcmp(key, "pattern") == 0) {
        if (!json_is_string(value) || !copy.branch.types) return true;
        uint32_t expr = schema_pattern_expr(n->reader, n->schema, json_string_value(value),
                                            json_string_length(value));
        copy.branch.text = expr_minus(exprs, copy.branch.text, expr);
        copy.branch.text_is_raw = false;
    } else if (strcmp(key, "format") == 0) {
        uint32_t expr = EXPR_NOTHING;
        bool is_raw = false;
        const char *name = json_string_value(value);
        if (!name || !copy.branch.types) return true;
        enum schema_format format = schema_format_expr(n->reader, name, true, &expr, &is_raw);
        if (format == SCHEMA_FORMAT_REFUSED) negation_refuse(n, SCHEMA_STRING, key);
        if (format != SCHEMA_FORMAT_KNOWN) return true;
        copy.branch.text = expr_minus(exprs, copy.branch.text, expr);
    } else {
        return false;
    }
    if (copy.branch.length_min <= copy.branch.length_max) negation_run(n, &copy);
    return true;
}

// ---- objects ----

static void add_member(const struct negation *n, struct schema_work *work, const char *key,
                       size_t len, const json_t *schema, bool negated) {
    struct schema_member *member = schema_alloc(n->reader, sizeof *member);
    if (!member) return;
    *member = (struct schema_member){key, len, {schema, negated}, work->branch.object.members};
    work->branch.object.members = member;
}

static void require(const struct negation *n, struct schema_work *work, const char *key,
                    size_t len) {
    struct schema_member *member = schema_alloc(n->reader, sizeof *member);
    if (!member) return;
    *member = (struct schema_member){.key = key, .len = len, .next = work->branch.object.required};
    work->branch.object.required = member;
}

// The key is there, and its value does not satisfy the schema.
static void run_bad_member(const struct negation *n, const char *key, size_t len,
                           const json_t *schema) {
    if (json_is_true(schema)) return;
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    require(n, &copy, key, len);
    add_member(n, &copy, key, len, schema, true);
    negation_run(n, &copy);
}

static bool says_nothing(const json_t *schema) {
    return json_is_true(schema) || (jread_is_object(schema) && !json_object_size(schema));
}

// The value of a key of "properties" does not satisfy its schema, or the key is required and not
// there. These are one alternative: the key may be there, with such a value. If they were two, many
// options with a key of their own would have 2^n ways not to hold.
static void negate_property(const struct negation *n, const char *key, size_t len,
                            const json_t *schema) {
    if (says_nothing(schema)) return;
    if (!schema_lists_required(n->schema, key, len)) {
        run_bad_member(n, key, len, schema);
        return;
    }
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    add_member(n, &copy, key, len, schema, true);
    negation_run(n, &copy);
}

// The key is required, and negate_property has not seen to it.
static void negate_required(const struct negation *n, const char *key, size_t len) {
    const json_t *named = json_object_getn(json_object_get(n->schema, "properties"), key, len);
    if (named && !says_nothing(named)) return;
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    add_member(n, &copy, key, len, json_false(), false);
    negation_run(n, &copy);
}

// Whether objects of the branch have named keys only.
static bool is_closed(const struct schema_branch *branch) {
    for (const struct schema_group *at = branch->object.groups; at; at = at->next) {
        bool has_patterns = json_object_size(json_object_get(at->schema, "patternProperties"));
        if (json_is_false(json_object_get(at->schema, "additionalProperties")) && !has_patterns) {
            return true;
        }
    }
    return false;
}

// Calls `take` for each key that the branch names.
static void for_each_name(const struct negation *n,
                          void (*take)(const struct negation *n, const char *key, size_t len,
                                       const void *arg),
                          const void *arg) {
    for (const struct schema_group *at = n->work->branch.object.groups; at; at = at->next) {
        const char *key;
        size_t len;
        json_t *value;
        json_object_keylen_foreach(json_object_get(at->schema, "properties"), key, len, value) {
            take(n, key, len, arg);
        }
    }
    const struct schema_member *at = n->work->branch.object.required;
    for (; at; at = at->next) take(n, at->key, at->len, arg);
}

// Keys, and what their values must not be.
struct bad_members {
    const char *keyword;
    uint32_t keys;
    const json_t *schema;
    const struct schema_group *but; // as in schema_extra
};

static bool is_named_in(const struct schema_group *list, const char *key, size_t len) {
    for (; list; list = list->next) {
        if (json_object_getn(json_object_get(list->schema, "properties"), key, len)) return true;
    }
    return false;
}

// The names of `list` that `others` lacks.
static const struct schema_member *names_only(const struct negation *n,
                                              const struct schema_group *list,
                                              const struct schema_group *others) {
    const struct schema_member *names = NULL;
    for (; list; list = list->next) {
        const char *key;
        size_t len;
        json_t *value;
        json_object_keylen_foreach(json_object_get(list->schema, "properties"), key, len, value) {
            if (is_named_in(others, key, len)) continue;
            struct schema_member *name = schema_alloc(n->reader, sizeof *name);
            if (!name) return NULL;
            *name = (struct schema_member){.key = key, .len = len, .next = names};
            names = name;
        }
    }
    return names;
}

// Each of two objects must have a key that its schema does not name. That is one key that neither
// schema names, or two keys, each named by the other schema.
static void run_both_extras(const struct negation *n, const struct bad_members *bad) {
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    const struct schema_object *object = &n->work->branch.object;
    const struct schema_extra *old = object->extra;
    struct schema_extra *extra = schema_alloc(n->reader, sizeof *extra);
    struct schema_group *but = schema_alloc(n->reader, sizeof *but);
    if (!extra || !but) return;
    *but = (struct schema_group){.schema = bad->but->schema, .next = old->but};
    *extra = (struct schema_extra){.keys = expr_and(n->reader->exprs, old->keys, bad->keys),
                                   .but = but,
                                   .groups = object->groups,
                                   .required = object->required};
    copy.branch.object.extra = extra;
    negation_run(n, &copy);
    const struct schema_member *first = names_only(n, bad->but, old->but);
    const struct schema_member *seconds = names_only(n, old->but, bad->but);
    for (; first; first = first->next) {
        for (const struct schema_member *at = seconds; at; at = at->next) {
            copy = negation_copy(n, SCHEMA_OBJECT);
            copy.branch.object.extra = NULL;
            require(n, &copy, first->key, first->len);
            require(n, &copy, at->key, at->len);
            negation_run(n, &copy);
        }
    }
}

// A member that the branch does not name yet has one of these keys, and a value that the schema
// forbids.
static void run_extra(const struct negation *n, const struct bad_members *bad) {
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    const struct schema_extra *old = copy.branch.object.extra;
    const json_t *schema = json_is_false(bad->schema) ? NULL : bad->schema;
    if (!copy.branch.types || is_closed(&copy.branch)) return;
    if (old && old->keys == bad->keys && schema_is_same(n->reader, old->literal.schema, schema)) {
        negation_run(n, &copy); // the same member
    } else if (old && !old->literal.schema && !schema && old->but && bad->but) {
        run_both_extras(n, bad);
    } else if (old) {
        negation_refuse(n, SCHEMA_OBJECT, bad->keyword);
    } else {
        struct schema_extra *extra = schema_alloc(n->reader, sizeof *extra);
        if (!extra) return;
        *extra = (struct schema_extra){.keys = bad->keys,
                                       .literal = {schema, 1},
                                       .but = bad->but,
                                       .groups = copy.branch.object.groups,
                                       .required = copy.branch.object.required};
        copy.branch.object.extra = extra;
        negation_run(n, &copy);
    }
}

static void run_bad_name(const struct negation *n, const char *key, size_t len, const void *arg) {
    const struct bad_members *bad = arg;
    bool matches = false;
    if (schema_failed(n->reader)) return;
    enum status status =
        expr_matches(n->reader->exprs, bad->keys, key, len, &matches, n->reader->err);
    if (status && !n->reader->status) n->reader->status = status;
    if (matches) run_bad_member(n, key, len, bad->schema);
}

// Some member with one of these keys has a value that the schema forbids.
static void run_bad_members(const struct negation *n, const struct bad_members *bad) {
    for_each_name(n, run_bad_name, bad);
    run_extra(n, bad);
}

static void negate_additional(const struct negation *n, const json_t *more) {
    if (!(n->work->branch.types & n->types & SCHEMA_OBJECT) || says_nothing(more)) return;
    struct exprs *exprs = n->reader->exprs;
    uint32_t keys = n->reader->any_text;
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach(json_object_get(n->schema, "properties"), key, len, value) {
        keys = expr_minus(exprs, keys, expr_literal(exprs, key, len));
    }
    json_object_keylen_foreach(json_object_get(n->schema, "patternProperties"), key, len, value) {
        keys = expr_minus(exprs, keys, schema_pattern_expr(n->reader, n->schema, key, len));
    }
    struct schema_group *but = NULL;
    if (!json_object_size(json_object_get(n->schema, "patternProperties"))) {
        if (!(but = schema_alloc(n->reader, sizeof *but))) return;
        *but = (struct schema_group){.schema = n->schema};
    }
    run_bad_members(n, &(struct bad_members){"additionalProperties", keys, more, but});
}

static void negate_patterns(const struct negation *n, const json_t *patterns) {
    if (!(n->work->branch.types & n->types & SCHEMA_OBJECT)) return;
    const char *pattern;
    size_t len;
    json_t *schema;
    json_object_keylen_foreach((json_t *)(uintptr_t)patterns, pattern, len, schema) {
        if (says_nothing(schema)) continue;
        uint32_t keys = schema_pattern_expr(n->reader, n->schema, pattern, len);
        run_bad_members(n, &(struct bad_members){"patternProperties", keys, schema, NULL});
    }
}

// Some key is not a name that `names` allows.
static void negate_names(const struct negation *n, const json_t *names) {
    if (!(n->work->branch.types & n->types & SCHEMA_OBJECT) || says_nothing(names)) return;
    const struct schema_literals opposite = {{names, 1}, NULL};
    uint32_t keys = schema_names_expr(n->reader, &opposite);
    run_bad_members(n, &(struct bad_members){"propertyNames", keys, json_false(), NULL});
}

static void negate_dependencies(const struct negation *n, const json_t *map) {
    const char *key;
    size_t len;
    json_t *needed;
    json_object_keylen_foreach((json_t *)(uintptr_t)map, key, len, needed) {
        struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
        require(n, &copy, key, len);
        if (!json_is_array(needed)) {
            copy.negated = schema_agenda_push(n->reader, copy.negated, needed, true);
            negation_run(n, &copy);
            continue;
        }
        for (size_t i = 0; i < json_array_size(needed); i++) {
            const json_t *name = json_array_get(needed, i);
            struct schema_work without = copy;
            add_member(n, &without, json_string_value(name), json_string_length(name), json_false(),
                       false);
            negation_run(n, &without);
        }
    }
}

static bool negate_object(const struct negation *n, const char *key, const json_t *value) {
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    struct schema_object *object = &copy.branch.object;
    uint32_t count;
    if (strcmp(key, "properties") == 0) {
        const char *name;
        size_t len;
        json_t *schema;
        json_object_keylen_foreach((json_t *)(uintptr_t)value, name, len, schema) {
            negate_property(n, name, len, schema);
        }
    } else if (strcmp(key, "required") == 0) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *name = json_array_get(value, i);
            if (!json_is_string(name)) continue;
            negate_required(n, json_string_value(name), json_string_length(name));
        }
    } else if (strcmp(key, "additionalProperties") == 0) {
        negate_additional(n, value);
    } else if (strcmp(key, "patternProperties") == 0) {
        negate_patterns(n, value);
    } else if (strcmp(key, "minProperties") == 0) {
        if (!schema_count(n->reader, n->schema, key, &count) || !count) return true;
        if (count - 1 < object->max) object->max = count - 1;
        if (object->min <= object->max) negation_run(n, &copy);
    } else if (strcmp(key, "maxProperties") == 0) {
        if (!schema_count(n->reader, n->schema, key, &count)) return true;
        if (count + 1 > object->min) object->min = count + 1;
        if (object->min <= object->max) negation_run(n, &copy);
    } else if (strcmp(key, "dependentRequired") == 0 || strcmp(key, "dependentSchemas") == 0 ||
               strcmp(key, "dependencies") == 0) {
        negate_dependencies(n, value);
    } else if (strcmp(key, "propertyNames") == 0) {
        negate_names(n, value);
    } else if (strcmp(key, "unevaluatedProperties") == 0) {
        if (!json_is_true(value)) negation_refuse(n, SCHEMA_OBJECT, key);
    } else {
        return false;
    }
    return true;
}

void schema_negate(struct schema_reader *reader, const struct schema_work *work,
                   const json_t *schema, const struct schema_sink *sink) {
    const json_t *type = json_object_get(schema, "type");
    unsigned types = type ? schema_read_types(reader, schema) : SCHEMA_ALL;
    const struct negation n = {reader, work, schema, sink, types};
    const json_t *ref = json_object_get(schema, "$ref");
    if (ref && reader->draft <= SCHEMA_DRAFT_7) {
        negate_ref(&n, "$ref");
        return;
    }
    const char *key;
    json_t *value;
    bool has_clause = work->has_clauses && negation_clause(&n);
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (schema_failed(reader)) return;
        bool is_in_clause = strcmp(key, "properties") == 0 || strcmp(key, "required") == 0;
        if (has_clause && is_in_clause) continue;
        if (negate_in_place(&n, key, value) || negate_values(&n, key, value) ||
            negate_number(&n, key, value) || negate_string(&n, key, value) ||
            negate_object(&n, key, value)) {
            continue;
        }
        negation_array(&n, key, value);
    }
}
