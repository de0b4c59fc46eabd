/* Negated keywords of arrays. */
#include "structured/schema/schema_negate.h"

#include <string.h>

#include "base/json/jread.h"

// An item at each of the places 0 to len - 1 that its schema forbids.
static void negate_prefix(const struct negation *n, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct schema_work copy = negation_copy(n, SCHEMA_ARRAY);
        struct schema_item *item = schema_alloc(n->reader, sizeof *item);
        if (!item) return;
        *item = (struct schema_item){i, {json_array_get(list, i), 1}, copy.branch.array.items};
        copy.branch.array.items = item;
        if (copy.branch.array.min < i + 1) copy.branch.array.min = (uint32_t)i + 1;
        if (copy.branch.array.min <= copy.branch.array.max) negation_run(n, &copy);
    }
}

static void add_contains(const struct negation *n, struct schema_work *work,
                         struct schema_contains one) {
    struct schema_contains *contains = schema_alloc(n->reader, sizeof *contains);
    if (!contains) return;
    one.next = work->branch.array.contains;
    *contains = one;
    work->branch.array.contains = contains;
    negation_run(n, work);
}

static void negate_items(const struct negation *n, const char *key, const json_t *value) {
    if (json_is_true(value) || (jread_is_object(value) && !json_object_size(value))) return;
    bool is_items = strcmp(key, "items") == 0, is_old = strcmp(key, "additionalItems") == 0;
    const json_t *prefix = json_object_get(n->schema, is_old ? "items" : "prefixItems");
    struct schema_work copy = negation_copy(n, SCHEMA_ARRAY);
    if (prefix && json_is_false(value) && (is_items || is_old)) { // there is one more
        uint32_t more = (uint32_t)json_array_size(prefix) + 1;
        if (copy.branch.array.min < more) copy.branch.array.min = more;
        if (copy.branch.array.min <= copy.branch.array.max) negation_run(n, &copy);
        return;
    }
    if (prefix || !is_items) {
        negation_refuse(n, SCHEMA_ARRAY, key);
        return;
    }
    add_contains(n, &copy, (struct schema_contains){{value, 1}, 1, EXPR_FOREVER, NULL});
}

// Too few items match, or too many.
static void negate_contains(const struct negation *n, const json_t *schema) {
    uint32_t min = 1, max = EXPR_FOREVER;
    bool has_min = json_object_get(n->schema, "minContains");
    bool has_max = json_object_get(n->schema, "maxContains");
    if (has_min && !schema_count(n->reader, n->schema, "minContains", &min)) return;
    if (has_max && !schema_count(n->reader, n->schema, "maxContains", &max)) return;
    struct schema_work copy = negation_copy(n, SCHEMA_ARRAY);
    struct schema_array *array = &copy.branch.array;
    if (min == 1) { // none matches
        struct schema_item *item = schema_alloc(n->reader, sizeof *item);
        if (!item) return;
        *item = (struct schema_item){SIZE_MAX, {schema, 1}, array->items};
        array->items = item;
        negation_run(n, &copy);
    } else if (min) {
        add_contains(n, &copy, (struct schema_contains){{schema, 0}, 0, min - 1, NULL});
    }
    copy = negation_copy(n, SCHEMA_ARRAY);
    if (max == EXPR_FOREVER) return;
    add_contains(n, &copy, (struct schema_contains){{schema, 0}, max + 1, EXPR_FOREVER, NULL});
}

// Two items are equal, which no grammar can demand. That may not matter: where the other keywords
// fail, another alternative has the array, and where they hold, the branch may have no such array.
static void negate_unique(const struct negation *n) {
    struct schema_work copy = negation_copy(n, SCHEMA_ARRAY);
    if (!copy.branch.types || copy.branch.array.unique) return;
    if (copy.branch.array.min < 2) copy.branch.array.min = 2;
    if (copy.branch.array.min > copy.branch.array.max) return;
    copy.branch.array.refused = schema_say(n->reader, n->schema,
                                           "keyword \"uniqueItems\" cannot be negated, as \"not\", "
                                           "\"oneOf\" or \"if\" above it needs");
    copy.agenda = schema_agenda_push(n->reader, copy.agenda, n->schema, false);
    negation_run(n, &copy);
}

void negation_array(const struct negation *n, const char *key, const json_t *value) {
    struct schema_work copy = negation_copy(n, SCHEMA_ARRAY);
    struct schema_array *array = &copy.branch.array;
    uint32_t count;
    if (strcmp(key, "minItems") == 0) {
        if (!schema_count(n->reader, n->schema, key, &count) || !count) return;
        if (count - 1 < array->max) array->max = count - 1;
        if (array->min <= array->max) negation_run(n, &copy);
    } else if (strcmp(key, "maxItems") == 0) {
        if (!schema_count(n->reader, n->schema, key, &count)) return;
        if (count + 1 > array->min) array->min = count + 1;
        if (array->min <= array->max) negation_run(n, &copy);
    } else if (strcmp(key, "prefixItems") == 0 ||
               (strcmp(key, "items") == 0 && json_is_array(value))) {
        negate_prefix(n, value);
    } else if (strcmp(key, "items") == 0 || strcmp(key, "unevaluatedItems") == 0) {
        negate_items(n, key, value);
    } else if (strcmp(key, "additionalItems") == 0) {
        if (json_is_array(json_object_get(n->schema, "items"))) negate_items(n, key, value);
    } else if (strcmp(key, "contains") == 0) {
        negate_contains(n, value);
    } else if (strcmp(key, "uniqueItems") == 0) {
        if (json_is_true(value)) negate_unique(n);
    }
}
