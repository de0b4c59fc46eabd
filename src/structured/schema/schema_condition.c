/* Conditions about one member, such as "if": {"properties": {"type": {"const": "a"}}}: their
 * opposite is one branch, so it needs no alternatives. */
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "structured/schema/schema_internal.h"

// What a schema says: its types, and one member or a list of values.
struct condition {
    unsigned types;
    const char *key; // NULL: no member
    size_t len;
    const json_t *value; // schema of the member's value; NULL: any
    bool is_required; // the member must be there
    const json_t *values; // const or enum; NULL: any
    bool is_list; // enum
};

static bool add_key(struct condition *condition, const char *key, size_t len) {
    bool is_other =
        condition->key && (condition->len != len || memcmp(condition->key, key, len) != 0);
    condition->key = key;
    condition->len = len;
    return !is_other;
}

static bool read_keyword(struct condition *condition, const char *keyword, json_t *value) {
    static const char *const annotations[] = {"title", "description", "$comment", "default",
                                              "examples"};
    for (size_t i = 0; i < ARRAY_LEN(annotations); i++) {
        if (strcmp(keyword, annotations[i]) == 0) return true;
    }
    if (strcmp(keyword, "type") == 0) {
        condition->types = schema_types(value);
        return condition->types != 0;
    }
    if (strcmp(keyword, "properties") == 0) {
        void *at = json_object_iter(value);
        if (json_object_size(value) != 1) return false;
        condition->value = json_object_iter_value(at);
        return add_key(condition, json_object_iter_key(at), json_object_iter_key_len(at));
    }
    if (strcmp(keyword, "required") == 0) {
        const json_t *key = json_array_get(value, 0);
        if (json_array_size(value) != 1 || !json_is_string(key)) return false;
        condition->is_required = true;
        return add_key(condition, json_string_value(key), json_string_length(key));
    }
    bool is_list = strcmp(keyword, "enum") == 0;
    if ((!is_list && strcmp(keyword, "const") != 0) || condition->values) return false;
    condition->values = value;
    condition->is_list = is_list;
    return !is_list || json_is_array(value);
}

static bool read_condition(struct condition *condition, const json_t *schema) {
    const char *keyword;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, keyword, value) {
        if (!read_keyword(condition, keyword, value)) return false;
    }
    return !condition->key || !condition->values;
}

// The member must not be, or must be there and be different.
static void negate_member(struct schema_reader *reader, struct schema_branch *branch,
                          const struct condition *condition) {
    struct schema_member *member = schema_alloc(reader, sizeof *member);
    struct schema_member *required = schema_alloc(reader, sizeof *required);
    struct schema_object *object = &branch->object;
    if (!member || !required) return;
    *member =
        (struct schema_member){condition->key, condition->len, {json_false(), 0}, object->members};
    if (condition->value) member->literal = (struct schema_literal){condition->value, 1};
    object->members = member;
    if (condition->is_required || schema_requires(branch, condition->key, condition->len)) return;
    *required = (struct schema_member){
        .key = condition->key, .len = condition->len, .next = object->required};
    object->required = required;
}

// Arrays and objects among the values, which take more than one branch to exclude.
static unsigned container_types(const struct condition *condition) {
    unsigned types = 0;
    size_t len = condition->is_list ? json_array_size(condition->values) : 1;
    for (size_t i = 0; i < len; i++) {
        types |= schema_type_of(condition->is_list ? json_array_get(condition->values, i)
                                                   : condition->values);
    }
    return types & (SCHEMA_ARRAY | SCHEMA_OBJECT);
}

bool schema_negate_alone(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *schema) {
    struct condition condition = {.types = SCHEMA_ALL};
    schema = schema_follow_refs(reader, schema);
    if (!jread_is_object(schema) || !read_condition(&condition, schema)) return false;
    unsigned types = condition.types & branch->types; // other values stay
    if (condition.values) {
        if (types != branch->types || (types & container_types(&condition))) return false;
        schema_exclude_values(reader, branch, condition.values, condition.is_list);
        return true;
    }
    branch->types &= ~types;
    if (!condition.key || !(types & SCHEMA_OBJECT)) return true;
    branch->types |= SCHEMA_OBJECT;
    negate_member(reader, branch, &condition);
    return true;
}
