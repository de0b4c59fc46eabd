/* Keywords that leave one branch: each narrows the values of one type. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "structured/schema/schema_internal.h"

// ---- values of keywords ----

unsigned schema_types(const json_t *type) {
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {
        {"null", SCHEMA_NULL},     {"boolean", SCHEMA_BOOLEAN}, {"integer", SCHEMA_INTEGER},
        {"number", SCHEMA_NUMBER}, {"string", SCHEMA_STRING},   {"array", SCHEMA_ARRAY},
        {"object", SCHEMA_OBJECT},
    };
    if (json_is_array(type)) {
        unsigned types = 0;
        for (size_t i = 0; i < json_array_size(type); i++) {
            const json_t *part = json_array_get(type, i);
            unsigned more = json_is_string(part) ? schema_types(part) : 0;
            if (!more) return 0;
            types |= more;
        }
        return types;
    }
    const char *name = json_string_value(type);
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i].name) == 0) return names[i].types;
    }
    return 0;
}

unsigned schema_read_types(struct schema_reader *reader, const json_t *schema) {
    unsigned types = schema_types(json_object_get(schema, "type"));
    if (!types) {
        schema_fail(reader, ERR_FORMAT,
                    schema_say(reader, schema, "\"type\" is not a JSON type or a list of them"));
    }
    return types;
}

unsigned schema_type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_NULL:
        return SCHEMA_NULL;
    case JSON_TRUE:
        return SCHEMA_TRUE;
    case JSON_FALSE:
        return SCHEMA_FALSE;
    case JSON_INTEGER:
        return SCHEMA_INTEGER;
    case JSON_REAL: {
        double number = json_real_value(value);
        return number == floor(number) ? SCHEMA_INTEGER : SCHEMA_FRACTION;
    }
    case JSON_STRING:
        return SCHEMA_STRING;
    case JSON_ARRAY:
        return SCHEMA_ARRAY;
    case JSON_OBJECT:
        return jread_big_integer(value) ? SCHEMA_INTEGER : SCHEMA_OBJECT;
    }
    return 0;
}

static void fail_keyword(struct schema_reader *reader, const json_t *schema, const char *key,
                         const char *want) {
    schema_fail(reader, ERR_FORMAT, schema_say(reader, schema, "\"%s\" is not %s", key, want));
}

bool schema_count(struct schema_reader *reader, const json_t *schema, const char *key,
                  uint32_t *count) {
    const json_t *value = json_object_get(schema, key);
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number != floor(number)) {
        if (jread_big_integer(value) && jread_big_integer(value)[0] != '-') {
            *count = EXPR_FOREVER - 1;
            return true;
        }
        fail_keyword(reader, schema, key, "a whole number from 0 on");
        return false;
    }
    *count = number < EXPR_FOREVER - 1 ? (uint32_t)number : EXPR_FOREVER - 1;
    return true;
}

// ---- const and enum ----

static const struct schema_value_set *make_set(struct schema_reader *reader, const json_t *list,
                                               bool is_list) {
    size_t num_values = is_list ? json_array_size(list) : 1;
    struct schema_value_set *set = schema_alloc(reader, sizeof *set);
    const json_t **values = schema_alloc(reader, (num_values + 1) * sizeof *values);
    if (!set || !values) return NULL;
    for (size_t i = 0; i < num_values; i++) values[i] = is_list ? json_array_get(list, i) : list;
    *set = (struct schema_value_set){values, num_values};
    return set;
}

static bool set_has(const struct schema_value_set *set, const json_t *value) {
    for (size_t i = 0; i < set->num_values; i++) {
        if (schema_values_equal(set->values[i], value)) return true;
    }
    return false;
}

void schema_limit_values(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *list, bool is_list) {
    const struct schema_value_set *set = make_set(reader, list, is_list);
    if (!set) return;
    if (branch->values) { // those that are in both
        const json_t **values = (const json_t **)(uintptr_t)set->values;
        struct schema_value_set *both = (struct schema_value_set *)(uintptr_t)set;
        size_t kept = 0;
        for (size_t i = 0; i < set->num_values; i++) {
            if (set_has(branch->values, values[i])) values[kept++] = values[i];
        }
        both->num_values = kept;
    }
    branch->values = set;
    unsigned types = 0;
    for (size_t i = 0; i < set->num_values; i++) types |= schema_type_of(set->values[i]);
    branch->types &= types;
}

void schema_exclude_values(struct schema_reader *reader, struct schema_branch *branch,
                           const json_t *list, bool is_list) {
    struct schema_value_set *set =
        (struct schema_value_set *)(uintptr_t)make_set(reader, list, is_list);
    if (!set) return;
    if (branch->excluded) {
        size_t more = branch->excluded->num_values;
        const json_t **values = schema_alloc(reader, (set->num_values + more) * sizeof *values);
        if (!values) return;
        memcpy(values, set->values, set->num_values * sizeof *values);
        memcpy(values + set->num_values, branch->excluded->values, more * sizeof *values);
        *set = (struct schema_value_set){values, set->num_values + more};
    }
    branch->excluded = set;
    for (size_t i = 0; i < set->num_values; i++) {
        unsigned type = schema_type_of(set->values[i]);
        branch->types &= ~(type & (SCHEMA_NULL | SCHEMA_BOOLEAN));
    }
}

// ---- numbers and strings ----

// Each keyword is compared with some thirty names: most differ in the first letter.
static bool is_key(const char *key, const char *name) {
    return key[0] == name[0] && strcmp(key, name) == 0;
}

static bool apply_number(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *schema, const char *key, const json_t *value) {
    bool is_minimum = is_key(key, "minimum"), is_maximum = is_key(key, "maximum");
    bool is_lower = is_key(key, "exclusiveMinimum");
    bool is_upper = is_key(key, "exclusiveMaximum");
    bool is_multiple = is_key(key, "multipleOf");
    if (!is_minimum && !is_maximum && !is_lower && !is_upper && !is_multiple) return false;
    if (!(branch->types & SCHEMA_NUMBER)) return true;
    // Draft 4 has a boolean beside minimum and maximum.
    if ((is_lower || is_upper) && json_is_boolean(value)) return true;
    if (!json_is_number(value) && !jread_big_integer(value)) {
        fail_keyword(reader, schema, key, "a number");
        return true;
    }
    if (is_multiple) {
        struct schema_decimals *multiple = schema_alloc(reader, sizeof *multiple);
        if (!multiple || !schema_decimal_read(reader, value, &multiple->value)) return true;
        if (!multiple->value.num_digits || multiple->value.negative) {
            fail_keyword(reader, schema, key, "a number above 0");
        }
        multiple->next = branch->multiples;
        branch->multiples = multiple;
        return true;
    }
    const char *old = is_minimum ? "exclusiveMinimum" : is_maximum ? "exclusiveMaximum" : key;
    bool exclusive = is_lower || is_upper || json_is_true(json_object_get(schema, old));
    schema_limit_number(reader, branch, value, is_maximum || is_upper, exclusive);
    return true;
}

static void apply_format(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *schema, const json_t *value) {
    const char *name = json_string_value(value);
    if (!name) {
        fail_keyword(reader, schema, "format", "a string");
        return;
    }
    uint32_t expr = EXPR_NOTHING;
    bool is_raw = false;
    enum schema_format format = schema_format_expr(reader, name, false, &expr, &is_raw);
    if (format == SCHEMA_FORMAT_KNOWN) {
        branch->text = expr_and(reader->exprs, branch->text, expr);
        branch->text_is_raw |= is_raw;
    } else if (format == SCHEMA_FORMAT_REFUSED) {
        branch->text_refused =
            schema_say(reader, schema, "keyword \"format\" cannot be enforced: \"%s\"", name);
    } else {
        schema_note(reader, schema, "format ", name, "is not of the standard and says nothing");
    }
}

static bool apply_string(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *schema, const char *key, const json_t *value) {
    bool is_min = is_key(key, "minLength"), is_max = is_key(key, "maxLength");
    bool is_pattern = is_key(key, "pattern");
    if (!is_min && !is_max && !is_pattern && !is_key(key, "format")) return false;
    if (!(branch->types & SCHEMA_STRING)) return true;
    uint32_t count;
    if (is_min || is_max) {
        if (!schema_count(reader, schema, key, &count)) return true;
        if (is_min && count > branch->length_min) branch->length_min = count;
        if (is_max && count < branch->length_max) branch->length_max = count;
        if (branch->length_min > branch->length_max) branch->types &= ~(unsigned)SCHEMA_STRING;
    } else if (!is_pattern) {
        apply_format(reader, branch, schema, value);
    } else if (!json_is_string(value)) {
        fail_keyword(reader, schema, key, "a string");
    } else {
        uint32_t expr = schema_pattern_expr(reader, schema, json_string_value(value),
                                            json_string_length(value));
        branch->text = expr_and(reader->exprs, branch->text, expr);
    }
    return true;
}

// ---- objects and arrays ----

static void add_group(struct schema_reader *reader, const struct schema_group **list,
                      const json_t *schema) {
    // An earlier keyword may have added it.
    if (*list && (*list)->schema == schema && !(*list)->is_rest) return;
    struct schema_group *group = schema_alloc(reader, sizeof *group);
    if (!group) return;
    *group = (struct schema_group){.schema = schema, .next = *list};
    *list = group;
}

static bool is_one_of(const char *key, const char *const *keys, size_t num_keys) {
    for (size_t i = 0; i < num_keys; i++) {
        if (is_key(key, keys[i])) return true;
    }
    return false;
}

static void apply_required(struct schema_reader *reader, struct schema_branch *branch,
                           const json_t *schema, const json_t *keys) {
    if (json_is_boolean(keys)) {
        branch->object.refused = schema_say(
            reader, schema, "\"required\" is a boolean, as in draft 3; want a list of keys");
        return;
    }
    if (!json_is_array(keys)) {
        fail_keyword(reader, schema, "required", "a list of keys");
        return;
    }
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *key = json_array_get(keys, i);
        struct schema_member *member = schema_alloc(reader, sizeof *member);
        if (!member) return;
        if (!json_is_string(key)) fail_keyword(reader, schema, "required", "a list of keys");
        *member = (struct schema_member){.key = json_string_value(key),
                                         .len = json_string_length(key),
                                         .next = branch->object.required};
        if (member->key) branch->object.required = member;
    }
}

static bool apply_object(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *schema, const char *key, const json_t *value) {
    static const char *const maps[] = {"properties", "patternProperties"};
    struct schema_object *object = &branch->object;
    bool is_min = is_key(key, "minProperties"), is_max = is_key(key, "maxProperties");
    bool is_map = is_one_of(key, maps, ARRAY_LEN(maps));
    bool is_names = is_key(key, "propertyNames");
    bool is_required = is_key(key, "required");
    bool is_more = is_key(key, "additionalProperties");
    if (!is_min && !is_max && !is_map && !is_names && !is_required && !is_more) return false;
    if (!(branch->types & SCHEMA_OBJECT)) return true;
    uint32_t count;
    if (is_min || is_max) {
        if (!schema_count(reader, schema, key, &count)) return true;
        if (is_min && count > object->min) object->min = count;
        if (is_max && count < object->max) object->max = count;
        if (object->min > object->max) branch->types &= ~(unsigned)SCHEMA_OBJECT;
    } else if (is_required) {
        apply_required(reader, branch, schema, value);
    } else if (is_names) {
        struct schema_literals *names = schema_alloc(reader, sizeof *names);
        if (!names) return true;
        *names = (struct schema_literals){{value, 0}, object->names};
        object->names = names;
    } else {
        if (is_map && !jread_is_object(value)) fail_keyword(reader, schema, key, "an object");
        add_group(reader, &object->groups, schema);
    }
    return true;
}

static void apply_contains(struct schema_reader *reader, struct schema_branch *branch,
                           const json_t *schema, const json_t *value) {
    struct schema_contains *contains = schema_alloc(reader, sizeof *contains);
    if (!contains) return;
    *contains = (struct schema_contains){{value, 0}, 1, EXPR_FOREVER, branch->array.contains};
    if (json_object_get(schema, "minContains") &&
        !schema_count(reader, schema, "minContains", &contains->min)) {
        return;
    }
    if (json_object_get(schema, "maxContains") &&
        !schema_count(reader, schema, "maxContains", &contains->max)) {
        return;
    }
    branch->array.num_contains++;
    if (contains->min > contains->max) branch->types &= ~(unsigned)SCHEMA_ARRAY;
    if (contains->min || contains->max != EXPR_FOREVER) branch->array.contains = contains;
}

static bool apply_array(struct schema_reader *reader, struct schema_branch *branch,
                        const json_t *schema, const char *key, const json_t *value) {
    static const char *const lists[] = {"items", "prefixItems", "additionalItems"};
    struct schema_array *array = &branch->array;
    bool is_min = is_key(key, "minItems"), is_max = is_key(key, "maxItems");
    bool is_list = is_one_of(key, lists, ARRAY_LEN(lists));
    bool is_contains = is_key(key, "contains"), is_unique = is_key(key, "uniqueItems");
    bool is_count = is_key(key, "minContains") || is_key(key, "maxContains");
    if (!is_min && !is_max && !is_list && !is_contains && !is_unique && !is_count) return false;
    if (!(branch->types & SCHEMA_ARRAY)) return true;
    uint32_t count;
    if (is_min || is_max) {
        if (!schema_count(reader, schema, key, &count)) return true;
        if (is_min && count > array->min) array->min = count;
        if (is_max && count < array->max) array->max = count;
        if (array->min > array->max) branch->types &= ~(unsigned)SCHEMA_ARRAY;
    } else if (is_contains) {
        apply_contains(reader, branch, schema, value);
    } else if (is_unique) {
        if (json_is_true(value)) array->unique = schema;
    } else if (is_list) {
        add_group(reader, &array->groups, schema);
    }
    return true;
}

// ---- the rest ----

// Draft 7 lets readers check these; later drafts say that they must not.
static bool apply_content(struct schema_reader *reader, struct schema_branch *branch,
                          const json_t *schema, const char *key, const json_t *value) {
    bool is_encoding = is_key(key, "contentEncoding");
    if (reader->draft != SCHEMA_DRAFT_7) return false;
    if (!is_encoding && !is_key(key, "contentMediaType")) return false;
    const char *name = json_string_value(value);
    if (!name || !(branch->types & SCHEMA_STRING)) return true;
    if (is_encoding && strcmp(name, "base64") == 0) {
        static const char base64[] = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
        uint32_t expr = schema_pattern_expr(reader, schema, base64, sizeof base64 - 1);
        branch->text = expr_and(reader->exprs, branch->text, expr);
    } else if (!is_encoding && strcmp(name, "application/json") == 0) {
        branch->text_refused =
            schema_say(reader, schema, "keyword \"%s\" cannot be enforced: \"%s\"", key, name);
    }
    return true;
}

// Keywords that say nothing about which values are allowed, or that others read.
static bool is_annotation(const char *key) {
    static const char *const keys[] = {
        "$anchor",
        "$comment",
        "$defs",
        "$dynamicAnchor",
        "$id",
        "$schema",
        "$vocabulary",
        "const",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "else",
        "enum",
        "example",
        "examples",
        "id",
        "readOnly",
        "then",
        "title",
        "type",
        "unevaluatedItems",
        "unevaluatedProperties",
        "writeOnly",
        "$recursiveAnchor",
    };
    return is_one_of(key, keys, ARRAY_LEN(keys));
}

bool schema_apply(struct schema_reader *reader, struct schema_branch *branch, const json_t *schema,
                  const char *key, const json_t *value) {
    static const char *const old[] = {"extends", "disallow", "divisibleBy"};
    if (apply_content(reader, branch, schema, key, value) || is_annotation(key)) return true;
    if (apply_number(reader, branch, schema, key, value) ||
        apply_string(reader, branch, schema, key, value) ||
        apply_object(reader, branch, schema, key, value) ||
        apply_array(reader, branch, schema, key, value)) {
        return true;
    }
    bool is_old = reader->draft == SCHEMA_DRAFT_3 && is_one_of(key, old, ARRAY_LEN(old));
    if (is_old) {
        schema_refuse(reader, schema_say(reader, schema, "keyword \"%s\" cannot be enforced", key));
        return true;
    }
    schema_note(reader, schema, "", key, "is no keyword and says nothing");
    return false;
}
