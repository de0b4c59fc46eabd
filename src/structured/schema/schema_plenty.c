/* Whether a schema surely has so many different values, and an expression so many texts: unique
 * items that must be there must exist. False where that is not plain to see. */
#include <stdio.h>
#include <string.h>

#include "structured/schema/schema_internal.h"

// The search for `count` values that differ from each other.
struct plenty {
    size_t count, depth;
    const json_t **values; // [num_values] of enums, different ones
    size_t num_values;
    bool is_enough;
};

static bool node_has_many(struct schema_reader *reader, uint32_t node, size_t count, size_t depth);

static void add_value(struct schema_reader *reader, struct plenty *plenty, const json_t *value) {
    for (size_t i = 0; i < plenty->num_values; i++) {
        if (schema_values_equal(plenty->values[i], value)) return;
    }
    if (!plenty->values) {
        plenty->values = schema_alloc(reader, plenty->count * sizeof(const json_t *));
    }
    if (!plenty->values) return;
    plenty->values[plenty->num_values++] = value;
    plenty->is_enough |= plenty->num_values == plenty->count;
}

static bool has_both(struct schema_reader *reader, uint32_t a, uint32_t b) {
    bool nothing = true;
    if (schema_failed(reader)) return false;
    uint32_t both = expr_and(reader->exprs, a, b);
    return expr_is_nothing(reader->exprs, both, &nothing, NULL) == OK && !nothing;
}

// Looks for texts that differ in their length, in their last character, and in their length or
// first character.
bool schema_has_many_texts(struct schema_reader *reader, uint32_t expr, size_t count) {
    enum { LENGTHS = 64 };
    static const char chars[] = "1234567890abcdefghijklm-";
    struct exprs *exprs = reader->exprs;
    uint32_t any = expr_any_char(exprs);
    size_t found = 0;
    for (uint32_t len = 0; len <= LENGTHS && found < count; len++) {
        found += has_both(reader, expr, expr_repeat(exprs, any, len, len));
    }
    if (found >= count) return true;
    found = 0;
    for (const char *c = chars; *c && found < count; c++) {
        uint32_t last = expr_concat(exprs, expr_any_text(exprs), expr_literal(exprs, c, 1));
        found += has_both(reader, expr, last);
    }
    if (found >= count) return true;
    found = 0;
    for (uint32_t len = 0; len < LENGTHS && found < count && !schema_failed(reader); len++) {
        uint32_t rest = expr_repeat(exprs, any, len, len);
        if (!has_both(reader, expr, expr_concat(exprs, any, rest))) continue;
        for (const char *c = chars; *c && found < count; c++) {
            found += has_both(reader, expr, expr_concat(exprs, expr_literal(exprs, c, 1), rest));
        }
    }
    return found >= count;
}

// One text for each number: 1 but not 1.0, 1e0 or -0.
static uint32_t shortest_numbers(struct exprs *exprs) {
    uint32_t nonzero = expr_byte_range(exprs, '1', '9');
    uint32_t digits = expr_repeat(exprs, expr_byte_range(exprs, '0', '9'), 0, EXPR_FOREVER);
    uint32_t zero = expr_string(exprs, "0"), whole = expr_concat(exprs, nonzero, digits);
    uint32_t fraction = expr_concat(exprs, digits, nonzero);
    fraction = expr_concat(exprs, expr_string(exprs, "."), fraction);
    fraction = expr_concat(exprs, expr_alt(exprs, zero, whole), fraction);
    uint32_t minus = expr_optional(exprs, expr_string(exprs, "-"));
    uint32_t others = expr_concat(exprs, minus, expr_alt(exprs, whole, fraction));
    return expr_alt(exprs, zero, others);
}

// Whether an object surely may have the member beside the others that it must have.
static bool takes_member(struct schema_reader *reader, const struct schema_object *object,
                         const char *key) {
    uint32_t num_others = 0;
    if (object->refused || object->names || object->extra || object->clauses) return false;
    for (const struct schema_member *at = object->required; at; at = at->next) {
        if (schema_member_node(reader, object, at->key, at->len) == SCHEMA_NOTHING) return false;
        num_others += strcmp(at->key, key) != 0;
    }
    return object->min <= 1 + num_others && num_others < object->max;
}

static bool members_have_many(struct schema_reader *reader, const struct schema_object *object,
                              const struct plenty *plenty) {
    for (const struct schema_group *at = object->groups; at && plenty->depth; at = at->next) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)json_object_get(at->schema, "properties"), key,
                            value) {
            uint32_t node = schema_member_node(reader, object, key, strlen(key));
            if (takes_member(reader, object, key) &&
                node_has_many(reader, node, plenty->count, plenty->depth - 1)) {
                return true;
            }
        }
    }
    return false;
}

// Whether a member of any name may be there, with some value: as many keys make as many objects.
static bool has_many_keys(struct schema_reader *reader, const struct schema_object *object,
                          const struct plenty *plenty) {
    for (size_t i = 0; i < plenty->count; i++) {
        char key[32];
        size_t len = (size_t)snprintf(key, sizeof key, "k%zu", i);
        uint32_t node = schema_member_node(reader, object, key, len);
        if (!plenty->depth || !node_has_many(reader, node, 1, plenty->depth - 1)) return false;
        if (!takes_member(reader, object, key)) return false;
    }
    return !schema_failed(reader);
}

// Arrays of as many lengths, or with as many first items.
static bool arrays_are_many(struct schema_reader *reader, const struct schema_array *array,
                            const struct plenty *plenty) {
    enum { LENGTH_MAX = 32 };
    if (array->refused || array->contains || !plenty->depth) return false;
    bool is_free = !array->unique; // items need not differ
    size_t len = 0; // so many items surely can be there
    while (len < LENGTH_MAX && len < array->max && (is_free || !len) &&
           node_has_many(reader, schema_item_node(reader, array, len), 1, plenty->depth - 1)) {
        len++;
    }
    if (len < array->min || !len) return false;
    if (len - array->min + 1 >= plenty->count) return true;
    return node_has_many(reader, schema_item_node(reader, array, 0), plenty->count,
                         plenty->depth - 1);
}

static void count_branch(struct schema_reader *reader, const struct schema_branch *branch,
                         void *arg) {
    struct plenty *plenty = arg;
    const struct schema_value_set *set = branch->values;
    for (size_t i = 0; set && i < set->num_values && !plenty->is_enough; i++) {
        if (schema_branch_allows(reader, branch, set->values[i])) {
            add_value(reader, plenty, set->values[i]);
        }
    }
    if (set || plenty->is_enough) return;
    size_t count = plenty->count;
    bool many = false;
    if (branch->types & SCHEMA_TRUE) add_value(reader, plenty, json_true());
    if (branch->types & SCHEMA_FALSE) add_value(reader, plenty, json_false());
    if (branch->types & SCHEMA_STRING) {
        many = schema_has_many_texts(reader, schema_text_expr(reader, branch), count);
    }
    if (!many && branch->types & SCHEMA_NUMBER) {
        uint32_t shortest = shortest_numbers(reader->exprs);
        shortest = expr_and(reader->exprs, shortest, schema_number_expr(reader, branch));
        many = schema_has_many_texts(reader, shortest, count);
    }
    if (!many && branch->types & SCHEMA_OBJECT) {
        many = members_have_many(reader, &branch->object, plenty) ||
               has_many_keys(reader, &branch->object, plenty);
    }
    if (!many && branch->types & SCHEMA_ARRAY) {
        many = arrays_are_many(reader, &branch->array, plenty);
    }
    plenty->is_enough |= many;
}

static bool node_has_many(struct schema_reader *reader, uint32_t node, size_t count, size_t depth) {
    struct plenty plenty = {.count = count, .depth = depth};
    const struct schema_sink sink = {count_branch, &plenty};
    if (node == SCHEMA_NOTHING || schema_failed(reader)) return false;
    const struct schema_node *at = &reader->nodes[node];
    schema_expand(reader, at->literals, at->num_literals, &sink);
    return plenty.is_enough;
}

bool schema_node_has_many(struct schema_reader *reader, uint32_t node, size_t count) {
    enum { DEPTH = 3 };
    return node_has_many(reader, node, count, DEPTH);
}
