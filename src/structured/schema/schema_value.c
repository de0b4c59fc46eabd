/* Values in a schema: those of const and enum. */
#include <string.h>

#include "base/json/jread.h"
#include "structured/schema/schema_internal.h"

static bool is_number(const json_t *value) {
    return json_is_number(value) || jread_big_integer(value);
}

static bool numbers_equal(const json_t *a, const json_t *b) {
    const char *big_a = jread_big_integer(a), *big_b = jread_big_integer(b);
    if (big_a || big_b) return big_a && big_b && strcmp(big_a, big_b) == 0;
    if (json_is_integer(a) && json_is_integer(b)) {
        return json_integer_value(a) == json_integer_value(b);
    }
    double left = json_number_value(a), right = json_number_value(b);
    return left >= right && left <= right;
}

bool schema_values_equal(const json_t *a, const json_t *b) {
    if (json_is_string(a) && json_is_string(b)) { // the usual case
        size_t len = json_string_length(a);
        return len == json_string_length(b) &&
               memcmp(json_string_value(a), json_string_value(b), len) == 0;
    }
    if (is_number(a) || is_number(b)) return is_number(a) && is_number(b) && numbers_equal(a, b);
    if (json_is_array(a) && json_is_array(b)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++) {
            if (!schema_values_equal(json_array_get(a, i), json_array_get(b, i))) return false;
        }
        return true;
    }
    if (!jread_is_object(a) || !jread_is_object(b)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return false;
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)(uintptr_t)a, key, len, value) {
        const json_t *other = json_object_getn(b, key, len);
        if (!other || !schema_values_equal(value, other)) return false;
    }
    return true;
}

// ---- whether a branch has a value ----

static bool matches(struct schema_reader *reader, uint32_t expr, const char *text, size_t len) {
    bool found = false;
    enum status status = expr_matches(reader->exprs, expr, text, len, &found, reader->err);
    if (status && !reader->status) reader->status = status;
    return found;
}

static bool number_has(struct schema_reader *reader, const struct schema_branch *branch,
                       const json_t *value) {
    struct schema_decimal number;
    if (!schema_decimal_read(reader, value, &number)) return false;
    size_t len;
    const char *text = schema_decimal_text(reader, &number, &len);
    return matches(reader, schema_number_expr(reader, branch), text, len);
}

static bool object_has(struct schema_reader *reader, const struct schema_object *object,
                       const json_t *value) {
    size_t size = json_object_size(value);
    if (size < object->min || size > object->max) return false;
    if (object->refused) schema_refuse(reader, object->refused);
    for (const struct schema_member *at = object->required; at; at = at->next) {
        if (!json_object_getn(value, at->key, at->len)) return false;
    }
    uint32_t names = object->names ? schema_names_expr(reader, object->names) : EXPR_ANYTHING;
    const char *key;
    size_t len;
    json_t *member;
    bool has_extra = !object->extra;
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, len, member) {
        if (!matches(reader, names, key, len)) return false;
        if (!schema_node_has(reader, schema_member_node(reader, object, key, len), member)) {
            return false;
        }
        if (!has_extra && matches(reader, object->extra->keys, key, len)) {
            const struct schema_literal *literal = &object->extra->literal;
            has_extra = !literal->schema ||
                        schema_node_has(reader, schema_node(reader, literal, 1), member);
        }
    }
    return has_extra && schema_clauses_have(reader, object, value);
}

static bool array_has(struct schema_reader *reader, const struct schema_array *array,
                      const json_t *value) {
    size_t size = json_array_size(value);
    if (size < array->min || size > array->max) return false;
    if (array->refused) schema_refuse(reader, array->refused);
    for (size_t i = 0; i < size; i++) {
        const json_t *item = json_array_get(value, i);
        if (!schema_node_has(reader, schema_item_node(reader, array, i), item)) return false;
        for (size_t j = 0; array->unique && j < i; j++) {
            if (schema_values_equal(item, json_array_get(value, j))) return false;
        }
    }
    for (const struct schema_contains *at = array->contains; at; at = at->next) {
        uint32_t node = schema_node(reader, &at->literal, 1);
        size_t count = 0;
        for (size_t i = 0; i < size; i++) {
            count += schema_node_has(reader, node, json_array_get(value, i));
        }
        if (count < at->min || count > at->max) return false;
    }
    return true;
}

bool schema_branch_allows(struct schema_reader *reader, const struct schema_branch *branch,
                          const json_t *value) {
    unsigned type = schema_type_of(value);
    if (!(branch->types & type) || schema_failed(reader)) return false;
    const struct schema_value_set *excluded = branch->excluded;
    for (size_t i = 0; excluded && i < excluded->num_values; i++) {
        if (schema_values_equal(excluded->values[i], value)) return false;
    }
    if (type & SCHEMA_NUMBER) return number_has(reader, branch, value);
    if (type == SCHEMA_STRING) {
        bool is_free = branch->text == reader->any_text && !branch->length_min &&
                       branch->length_max == EXPR_FOREVER;
        return is_free || matches(reader, schema_text_expr(reader, branch),
                                  json_string_value(value), json_string_length(value));
    }
    if (type == SCHEMA_ARRAY) return array_has(reader, &branch->array, value);
    return type != SCHEMA_OBJECT || object_has(reader, &branch->object, value);
}

bool schema_branch_has(struct schema_reader *reader, const struct schema_branch *branch,
                       const json_t *value) {
    const struct schema_value_set *set = branch->values;
    bool found = !set;
    for (size_t i = 0; !found && i < set->num_values; i++) {
        found = schema_values_equal(set->values[i], value);
    }
    return found && schema_branch_allows(reader, branch, value);
}

struct search {
    const json_t *value;
    bool found;
};

static void look_for_value(struct schema_reader *reader, const struct schema_branch *branch,
                           void *arg) {
    struct search *search = arg;
    if (!search->found) search->found = schema_branch_has(reader, branch, search->value);
}

bool schema_node_has(struct schema_reader *reader, uint32_t node, const json_t *value) {
    if (node == SCHEMA_NOTHING) return false;
    struct search search = {value, false};
    const struct schema_sink sink = {look_for_value, &search};
    const struct schema_node *at = &reader->nodes[node];
    schema_expand(reader, at->literals, at->num_literals, &sink);
    return search.found;
}

// ---- a schema of one value ----

// {"const": value}, appended to the list or set in the object at the key. False: out of memory.
static bool add_const(json_t *to, const char *key, size_t len, const json_t *value) {
    json_t *schema = json_object();
    if (!schema || json_object_set(schema, "const", (json_t *)(uintptr_t)value)) {
        json_decref(schema);
        return false;
    }
    if (key) return json_object_setn_new(to, key, len, schema) == 0;
    return json_array_append_new(to, schema) == 0;
}

static json_t *make_equal_array(const json_t *value) {
    json_int_t len = (json_int_t)json_array_size(value);
    json_t *items = json_array();
    bool fits = items;
    for (size_t i = 0; fits && i < json_array_size(value); i++) {
        fits = add_const(items, NULL, 0, json_array_get(value, i));
    }
    json_t *all = fits ? json_pack("{s:s, s:I, s:I, s:O}", "type", "array", "minItems", len,
                                   "maxItems", len, "prefixItems", items)
                       : NULL;
    json_decref(items);
    return all;
}

static json_t *make_equal_object(const json_t *value) {
    json_t *properties = json_object(), *required = json_array();
    const char *key;
    size_t len;
    json_t *member;
    bool fits = properties && required;
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, len, member) {
        fits = fits && add_const(properties, key, len, member) &&
               json_array_append_new(required, json_stringn(key, len)) == 0;
    }
    json_t *all = fits ? json_pack("{s:s, s:O, s:O, s:b}", "type", "object", "properties",
                                   properties, "required", required, "additionalProperties", 0)
                       : NULL;
    json_decref(properties);
    json_decref(required);
    return all;
}

const json_t *schema_equal_to(struct schema_reader *reader, const json_t *value) {
    const char *key = (const char *)&value;
    uint32_t index;
    if (strmap_get(&reader->equal_of, key, sizeof value, &index)) {
        return json_array_get(reader->equals, index);
    }
    const char *kept = arena_strndup(&reader->arena, key, sizeof value);
    if (!reader->equals) reader->equals = json_array();
    index = (uint32_t)json_array_size(reader->equals);
    json_t *made = json_is_array(value) ? make_equal_array(value) : make_equal_object(value);
    if (json_array_append_new(reader->equals, made) || !kept) {
        schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
        return NULL;
    }
    enum status status =
        strmap_put(&reader->equal_of, kept, sizeof value, index, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
    return made;
}

// ---- texts ----

bool schema_value_has_orders(const json_t *value) {
    if (json_object_size(value) > 1) return true;
    bool found = false;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        found |= schema_value_has_orders(member);
    }
    for (size_t i = 0; i < json_array_size(value) && !found; i++) {
        found = schema_value_has_orders(json_array_get(value, i));
    }
    return found;
}

static uint32_t number_texts(struct schema_reader *reader, const json_t *value) {
    struct exprs *exprs = reader->exprs;
    struct schema_decimal number;
    if (!schema_decimal_read(reader, value, &number)) return EXPR_NOTHING;
    size_t len;
    const char *text = schema_decimal_text(reader, &number, &len);
    uint32_t expr = expr_literal(exprs, text, len);
    if (!json_is_real(value) || memchr(text, '.', len)) return expr;
    return expr_concat(exprs, expr, expr_optional(exprs, expr_string(exprs, ".0")));
}

static uint32_t string_text(struct schema_reader *reader, const char *text, size_t len) {
    struct exprs *exprs = reader->exprs;
    uint32_t quote = expr_string(exprs, "\"");
    uint32_t content = expr_json_literal(exprs, text, len);
    return expr_concat(exprs, quote, expr_concat(exprs, content, quote));
}

// A list or an object: `open` parts[0], parts[1] ... `close`.
static uint32_t wrap(struct schema_reader *reader, const char *open, const uint32_t *parts,
                     size_t num_parts, const char *close) {
    struct exprs *exprs = reader->exprs;
    uint32_t all = expr_string(exprs, close);
    if (num_parts) all = expr_concat(exprs, reader->space, all);
    for (size_t i = num_parts; i-- > 0;) {
        all = expr_concat(exprs, parts[i], all);
        if (i) all = expr_concat(exprs, reader->comma, all);
    }
    all = expr_concat(exprs, reader->space, all);
    return expr_concat(exprs, expr_string(exprs, open), all);
}

uint32_t schema_value_expr(struct schema_reader *reader, const json_t *value) {
    struct exprs *exprs = reader->exprs;
    if (is_number(value)) return number_texts(reader, value);
    if (json_is_string(value)) {
        return string_text(reader, json_string_value(value), json_string_length(value));
    }
    if (json_is_null(value)) return expr_string(exprs, "null");
    if (json_is_boolean(value)) return expr_string(exprs, json_is_true(value) ? "true" : "false");
    size_t size = json_is_array(value) ? json_array_size(value) : json_object_size(value);
    uint32_t *parts = schema_alloc(reader, (size + 1) * sizeof *parts);
    if (!parts) return EXPR_NOTHING;
    for (size_t i = 0; i < json_array_size(value); i++) {
        parts[i] = schema_value_expr(reader, json_array_get(value, i));
    }
    if (json_is_array(value)) return wrap(reader, "[", parts, size, "]");
    size_t count = 0;
    const char *key;
    size_t len;
    json_t *member;
    json_object_keylen_foreach((json_t *)(uintptr_t)value, key, len, member) {
        uint32_t text = expr_concat(exprs, reader->colon, schema_value_expr(reader, member));
        parts[count++] = expr_concat(exprs, string_text(reader, key, len), text);
    }
    return wrap(reader, "{", parts, size, "}");
}
