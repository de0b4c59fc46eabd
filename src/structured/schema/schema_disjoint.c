/* Whether a schema excludes all values of a branch, by a cheap look at types, values and keys.
 * False where that is not plain to see. So "oneOf" whose options differ in a key needs no negation.
 */
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "structured/schema/schema_internal.h"

enum { DISJOINT_DEPTH_MAX = 6 };

const json_t *schema_follow_refs(struct schema_reader *reader, const json_t *schema) {
    for (int i = 0; i < DISJOINT_DEPTH_MAX; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref")), *why;
        const json_t *target = ref ? schema_refs_resolve(reader, schema, ref, &why) : NULL;
        if (!target || (reader->draft > SCHEMA_DRAFT_7 && json_object_size(schema) > 1)) break;
        schema = target;
    }
    return schema;
}

// The values of const or enum; *len = SIZE_MAX: any.
static const json_t *values_of(const json_t *schema, size_t *len) {
    const json_t *value = json_object_get(schema, "const");
    *len = SIZE_MAX;
    if (value) return value;
    value = json_object_get(schema, "enum");
    if (json_is_array(value)) *len = json_array_size(value);
    return json_is_array(value) ? value : NULL;
}

// Of a type that is none, all: reading the schema refuses it by name.
static unsigned types_of(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    unsigned types = type ? schema_types(type) : 0;
    if (!types) types = SCHEMA_ALL;
    size_t len;
    const json_t *values = values_of(schema, &len);
    unsigned listed = values && len == SIZE_MAX ? schema_type_of(values) : 0;
    for (size_t i = 0; values && len != SIZE_MAX && i < len; i++) {
        listed |= schema_type_of(json_array_get(values, i));
    }
    return values ? types & listed : types;
}

static bool values_disjoint(const json_t *a, size_t a_len, const json_t *b, size_t b_len) {
    size_t rows = a_len == SIZE_MAX ? 1 : a_len, columns = b_len == SIZE_MAX ? 1 : b_len;
    for (size_t i = 0; i < rows; i++) {
        const json_t *left = a_len == SIZE_MAX ? a : json_array_get(a, i);
        for (size_t j = 0; j < columns; j++) {
            const json_t *right = b_len == SIZE_MAX ? b : json_array_get(b, j);
            if (schema_values_equal(left, right)) return false;
        }
    }
    return true;
}

bool schema_lists_required(const json_t *schema, const char *key, size_t len) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        if (json_is_string(name) && json_string_length(name) == len &&
            memcmp(json_string_value(name), key, len) == 0) {
            return true;
        }
    }
    return false;
}

bool schema_is_same(const struct schema_reader *reader, const json_t *a, const json_t *b) {
    bool has_one_base = reader->refs.num_targets <= 1; // equal references mean the same
    return a == b || (has_one_base && json_equal(a, b));
}

static bool pair_disjoint(struct schema_reader *reader, const json_t *a, const json_t *b,
                          size_t depth) {
    if (json_is_false(a) || json_is_false(b)) return true;
    if (depth > DISJOINT_DEPTH_MAX || !jread_is_object(a) || !jread_is_object(b)) return false;
    a = schema_follow_refs(reader, a);
    b = schema_follow_refs(reader, b);
    unsigned types = types_of(a) & types_of(b);
    if (!types) return true;
    size_t a_len, b_len;
    const json_t *a_values = values_of(a, &a_len), *b_values = values_of(b, &b_len);
    if (a_values && b_values && values_disjoint(a_values, a_len, b_values, b_len)) return true;
    if (types != SCHEMA_OBJECT) return false;
    const json_t *others = json_object_get(b, "properties");
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach(json_object_get(a, "properties"), key, len, value) {
        const json_t *other = json_object_getn(others, key, len);
        if (!other || (!schema_lists_required(a, key, len) && !schema_lists_required(b, key, len)))
            continue;
        if (pair_disjoint(reader, value, other, depth + 1)) return true;
    }
    return false;
}

bool schema_requires(const struct schema_branch *branch, const char *key, size_t len) {
    for (const struct schema_member *at = branch->object.required; at; at = at->next) {
        if (at->len == len && memcmp(at->key, key, len) == 0) return true;
    }
    return false;
}

// Whether objects of the branch never have the key.
static bool branch_forbids(const struct schema_branch *branch, const char *key, size_t len) {
    for (const struct schema_member *at = branch->object.members; at; at = at->next) {
        bool is_it = at->len == len && memcmp(at->key, key, len) == 0;
        if (is_it && !at->literal.negated && json_is_false(at->literal.schema)) return true;
    }
    for (const struct schema_group *at = branch->object.groups; at; at = at->next) {
        bool has_patterns = json_object_size(json_object_get(at->schema, "patternProperties"));
        const json_t *named = json_object_getn(json_object_get(at->schema, "properties"), key, len);
        const json_t *more = json_object_get(at->schema, "additionalProperties");
        if (json_is_false(named)) return true;
        if (!named && !has_patterns && json_is_false(more)) return true;
    }
    return false;
}

// Whether the value of this key, which the branch requires, does not satisfy the schema.
static bool branch_negates(const struct schema_reader *reader, const struct schema_branch *branch,
                           const char *key, size_t len, const json_t *schema) {
    for (const struct schema_member *at = branch->object.members; at; at = at->next) {
        bool is_it = at->literal.negated && at->len == len && memcmp(at->key, key, len) == 0;
        if (is_it && schema_is_same(reader, at->literal.schema, schema)) return true;
    }
    return false;
}

static bool objects_disjoint(struct schema_reader *reader, const struct schema_branch *branch,
                             const json_t *schema, size_t depth) {
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (json_is_string(name) &&
            branch_forbids(branch, json_string_value(name), json_string_length(name))) {
            return true;
        }
    }
    const json_t *properties = json_object_get(schema, "properties");
    bool is_closed_schema = json_is_false(json_object_get(schema, "additionalProperties")) &&
                            !json_object_get(schema, "patternProperties");
    for (const struct schema_member *at = branch->object.required; at; at = at->next) {
        if (is_closed_schema && !json_object_getn(properties, at->key, at->len)) return true;
    }
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)(uintptr_t)properties, key, len, value) {
        if (!schema_lists_required(schema, key, len) && !schema_requires(branch, key, len))
            continue;
        if (branch_negates(reader, branch, key, len, value)) return true;
        for (const struct schema_group *at = branch->object.groups; at; at = at->next) {
            const json_t *other =
                json_object_getn(json_object_get(at->schema, "properties"), key, len);
            if (other && pair_disjoint(reader, value, other, depth + 1)) return true;
        }
    }
    return false;
}

bool schema_is_disjoint(struct schema_reader *reader, const struct schema_branch *branch,
                        const json_t *schema, size_t depth) {
    if (json_is_false(schema)) return true;
    if (!jread_is_object(schema) || depth > DISJOINT_DEPTH_MAX) return false;
    const char *ref = json_string_value(json_object_get(schema, "$ref")), *why;
    const json_t *target = ref ? schema_refs_resolve(reader, schema, ref, &why) : NULL;
    if (target && schema_is_disjoint(reader, branch, target, depth + 1)) return true;
    if (ref && reader->draft <= SCHEMA_DRAFT_7) return false;
    unsigned types = branch->types & types_of(schema);
    if (!types) return true;
    size_t len;
    const json_t *values = values_of(schema, &len);
    const struct schema_value_set *set = values ? branch->values : NULL;
    bool any_equal = !set;
    for (size_t i = 0; set && !any_equal && i < set->num_values; i++) {
        size_t one = SIZE_MAX;
        any_equal = !values_disjoint(values, len, set->values[i], one);
    }
    if (!any_equal) return true;
    const json_t *all = json_object_get(schema, "allOf");
    for (size_t i = 0; i < json_array_size(all); i++) {
        if (schema_is_disjoint(reader, branch, json_array_get(all, i), depth + 1)) return true;
    }
    static const char *const options[] = {"anyOf", "oneOf"};
    for (size_t k = 0; k < ARRAY_LEN(options); k++) {
        const json_t *list = json_object_get(schema, options[k]);
        size_t i = 0, count = json_array_size(list);
        while (i < count &&
               schema_is_disjoint(reader, branch, json_array_get(list, i), depth + 1)) {
            i++;
        }
        if (count && i == count) return true;
    }
    return types == SCHEMA_OBJECT && objects_disjoint(reader, branch, schema, depth);
}

// ---- objects that cannot be ----

// Whether the schema says nothing but which values it has.
static bool is_list_of_values(const json_t *schema) {
    static const char *const others[] = {"type", "title", "description", "default", "$comment"};
    size_t count = json_object_size(schema);
    bool has_values = json_object_get(schema, "const") || json_object_get(schema, "enum");
    if (json_object_get(schema, "const") && json_object_get(schema, "enum")) return false;
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        count -= json_object_get(schema, others[i]) != NULL;
    }
    return has_values && count == 1;
}

// Whether it is plain that the value does not satisfy the literal.
static bool literal_excludes(struct schema_reader *reader, const struct schema_literal *literal,
                             const json_t *value) {
    const json_t *schema = literal->schema;
    if (!jread_is_object(schema)) {
        return json_is_boolean(schema) && json_is_true(schema) == (literal->negated != 0);
    }
    schema = schema_follow_refs(reader, schema);
    if (literal->negated && !is_list_of_values(schema)) return false;
    size_t len;
    const json_t *values = values_of(schema, &len);
    bool fits = (types_of(schema) & schema_type_of(value)) != 0 &&
                (!values || !values_disjoint(values, len, value, SIZE_MAX));
    return fits == (literal->negated != 0);
}

// The schemas, some negated, that a branch applies to the value of a key. Other rules are left out.
struct key_literals {
    struct schema_literal data[64]; // [len]
    size_t len;
};

static void add_literal(struct key_literals *list, const json_t *schema, size_t negated) {
    if (schema && list->len < ARRAY_LEN(list->data)) {
        list->data[list->len++] = (struct schema_literal){schema, negated};
    }
}

// Whether no value fits the key, because its lists of values exclude each other.
static bool key_is_dead(struct schema_reader *reader, const struct schema_branch *branch,
                        const char *key, size_t len) {
    struct key_literals list = {.len = 0};
    for (const struct schema_group *at = branch->object.groups; at; at = at->next) {
        add_literal(&list, json_object_getn(json_object_get(at->schema, "properties"), key, len),
                    0);
    }
    for (const struct schema_member *at = branch->object.members; at; at = at->next) {
        bool is_it = at->len == len && memcmp(at->key, key, len) == 0;
        if (is_it) add_literal(&list, at->literal.schema, at->literal.negated);
    }
    if (list.len < 2) return false;
    const json_t *values = NULL;
    size_t num_values = 0;
    for (size_t i = 0; i < list.len && !values; i++) {
        if (list.data[i].negated || !jread_is_object(list.data[i].schema)) continue;
        values = values_of(schema_follow_refs(reader, list.data[i].schema), &num_values);
    }
    if (!values) return false;
    for (size_t i = 0; i < (num_values == SIZE_MAX ? 1 : num_values); i++) {
        const json_t *value = num_values == SIZE_MAX ? values : json_array_get(values, i);
        size_t k = 0;
        while (k < list.len && !literal_excludes(reader, &list.data[k], value)) k++;
        if (k == list.len) return false;
    }
    return true;
}

void schema_drop_dead(struct schema_reader *reader, struct schema_work *work) {
    struct schema_branch *branch = &work->branch;
    const struct schema_object *object = &branch->object;
    if (!(branch->types & SCHEMA_OBJECT) || !object->required) return;
    bool is_same = object->groups == work->seen_groups && object->members == work->seen_members &&
                   object->required == work->seen_required;
    work->seen_groups = object->groups;
    work->seen_members = object->members;
    work->seen_required = object->required;
    for (const struct schema_member *at = object->required; at && !is_same; at = at->next) {
        if (branch_forbids(branch, at->key, at->len) ||
            key_is_dead(reader, branch, at->key, at->len)) {
            branch->types &= ~(unsigned)SCHEMA_OBJECT;
            return;
        }
    }
}
