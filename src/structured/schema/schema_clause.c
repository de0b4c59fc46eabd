/* Negated schemas as clauses: an object violates a schema by one of several keys.
 *
 * Each way could be a branch, and then several negated schemas have as many branches as their ways
 * multiplied. A clause keeps the ways together. The members are written with a state for each
 * set of clauses that were met so far (schema_order.c). Keys of one schema follow each other, so
 * there are few such sets at a time. Where there are few ways, branches say more about the other
 * keywords. */
#include "structured/schema/schema_negate.h"

#include <string.h>

#include "base/json/jread.h"

enum {
    WAYS_MAX = 64, // of branches
    CLAUSES_MAX = 60,
    CHOICES_MAX = 64, // of a key
};

bool schema_has_many_ways(struct schema_reader *reader, const struct schema_work *work) {
    size_t all = 1, open = 1;
    if (reader->options.any_key_order) return false; // clauses are met in the order of the schema
    for (const struct schema_agenda *at = work->negated; at && all <= WAYS_MAX; at = at->next) {
        if (!jread_is_object(at->literal.schema)) continue;
        size_t count = schema_num_failures(reader, at->literal.schema);
        if (count != SIZE_MAX && count > 1) all *= count;
    }
    if (all <= WAYS_MAX) return false;
    for (const struct schema_agenda *at = work->negated; at && open <= WAYS_MAX; at = at->next) {
        if (!jread_is_object(at->literal.schema)) continue;
        size_t count = schema_num_failures(reader, at->literal.schema);
        if (count == SIZE_MAX || count < 2) continue;
        if (!schema_is_disjoint(reader, &work->branch, at->literal.schema, 0)) open *= count;
    }
    return open > WAYS_MAX;
}

// ---- from a negated schema to a clause ----

// In the order of the schema, in which the keys come.
struct ways {
    struct schema_way *first, *last;
};

static void add_way(struct schema_reader *reader, struct ways *ways, struct schema_way way) {
    struct schema_way *added = schema_alloc(reader, sizeof *added);
    if (!added) return;
    *added = way;
    if (ways->last) ways->last->next = added;
    if (!ways->last) ways->first = added;
    ways->last = added;
}

static bool says_nothing(const json_t *schema) {
    return json_is_true(schema) || (jread_is_object(schema) && !json_object_size(schema));
}

bool negation_clause(const struct negation *n) {
    const json_t *properties = json_object_get(n->schema, "properties");
    const json_t *required = json_object_get(n->schema, "required");
    struct ways ways = {NULL, NULL};
    struct schema_work copy = negation_copy(n, SCHEMA_OBJECT);
    size_t num_clauses = 0;
    for (const struct schema_clause *at = copy.branch.object.clauses; at; at = at->next) {
        num_clauses++;
    }
    if (!copy.branch.types || num_clauses == CLAUSES_MAX) return false;
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)(uintptr_t)properties, key, len, value) {
        if (says_nothing(value)) continue;
        bool may_be_absent = schema_lists_required(n->schema, key, len);
        add_way(n->reader, &ways, (struct schema_way){key, len, value, may_be_absent, NULL});
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name)) continue;
        key = json_string_value(name);
        len = json_string_length(name);
        const json_t *named = json_object_getn(properties, key, len);
        if (named && !says_nothing(named)) continue;
        add_way(n->reader, &ways, (struct schema_way){key, len, NULL, true, NULL});
    }
    struct schema_clause *clause = schema_alloc(n->reader, sizeof *clause);
    if (!ways.first || !ways.first->next || !clause) return false;
    *clause = (struct schema_clause){ways.first, copy.branch.object.clauses};
    copy.branch.object.clauses = clause;
    negation_run(n, &copy);
    return true;
}

// ---- from clauses to choices of a key ----

// The ways of one key.
struct key_ways {
    const json_t *schemas[CLAUSES_MAX]; // [len], different ones
    uint64_t bits[CLAUSES_MAX]; // clauses with a way by which the value violates the schema
    size_t len;
};

// Choices by which of the schemas from `next` on a value violates. It satisfies the others, so that
// no value has two choices: texts with many readings take many steps. Sets that no value violates
// have no choice. So has the set of none.
static void add_choices(struct schema_reader *reader, const struct schema_object *object,
                        struct schema_name *name, const struct key_ways *ways, size_t next,
                        uint64_t met) {
    struct schema_name chosen = *name;
    uint32_t expr;
    if (schema_failed(reader)) return;
    chosen.node = schema_member_node(reader, object, name->key, name->len);
    if (chosen.node == SCHEMA_NOTHING) return;
    uint32_t value = schema_node_item(reader, chosen.node);
    if (schema_failed(reader)) return;
    if (grammar_as_expr(reader->grammar, value, &expr) && expr == EXPR_NOTHING) return;
    if (next == ways->len && !met) return;
    if (next == ways->len && name->num_choices == CHOICES_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has too many combinations of schemas");
        return;
    }
    if (next == ways->len) {
        uint32_t item = schema_named_member(reader, &chosen, false);
        name->choices[name->num_choices++] = (struct schema_choice){.item = item, .met = met};
        return;
    }
    for (size_t goes = 2; goes-- > 0;) {
        struct schema_object with = *object; // one more rule about the key
        struct schema_member *member = schema_alloc(reader, sizeof *member);
        if (!member) return;
        *member =
            (struct schema_member){name->key, name->len, {ways->schemas[next], goes}, with.members};
        with.members = member;
        add_choices(reader, &with, name, ways, next + 1, met | (goes ? ways->bits[next] : 0));
    }
}

// The ways of a name, in the order of the clauses.
struct named_ways {
    struct named_way {
        const struct schema_way *way;
        uint64_t bit; // of its clause
        struct named_way *next;
    } * first, *last;
};

static void add_named_way(struct schema_reader *reader, struct named_ways *ways,
                          const struct schema_way *way, uint64_t bit) {
    struct named_way *added = schema_alloc(reader, sizeof *added);
    if (!added) return;
    *added = (struct named_way){way, bit, NULL};
    if (ways->last) ways->last->next = added;
    if (!ways->last) ways->first = added;
    ways->last = added;
}

// Finds the ways of each name. Each way's key is among the names. NULL after an error.
static struct named_ways *find_named_ways(struct schema_reader *reader,
                                          const struct schema_object *object,
                                          const struct schema_name *names, size_t num_names) {
    struct named_ways *all = schema_alloc(reader, num_names * sizeof *all);
    if (!all) return NULL;
    struct strmap index_of = {0};
    enum status status = OK;
    for (size_t k = 0; k < num_names && !status; k++) {
        all[k] = (struct named_ways){NULL, NULL};
        status = strmap_put(&index_of, names[k].key, names[k].len, (uint32_t)k, NULL, reader->err);
    }
    if (status && !reader->status) reader->status = status;
    uint64_t bit = 1;
    for (const struct schema_clause *at = object->clauses; at; at = at->next, bit <<= 1) {
        for (const struct schema_way *way = at->ways; way && !schema_failed(reader);
             way = way->next) {
            uint32_t index;
            if (!strmap_get(&index_of, way->key, way->len, &index)) continue;
            add_named_way(reader, &all[index], way, bit);
        }
    }
    strmap_fini(&index_of);
    return schema_failed(reader) ? NULL : all;
}

// Brings the ways of a name together by their schemas.
static struct key_ways join_ways(struct schema_reader *reader, struct schema_name *name,
                                 const struct named_ways *list) {
    struct key_ways ways = {.bits = {0}};
    for (const struct named_way *at = list->first; at; at = at->next) {
        const struct schema_way *way = at->way;
        name->mentioned |= at->bit;
        if (way->may_be_absent) name->met_absent |= at->bit;
        if (!way->schema || name->node == SCHEMA_NOTHING) continue;
        size_t i = 0;
        while (i < ways.len && !schema_is_same(reader, ways.schemas[i], way->schema)) i++;
        if (i == ways.len) ways.schemas[ways.len++] = way->schema;
        ways.bits[i] |= at->bit;
    }
    return ways;
}

void schema_clause_choices(struct schema_reader *reader, const struct schema_object *object,
                           struct schema_name *names, size_t num_names) {
    if (!object->clauses || schema_failed(reader)) return;
    const struct named_ways *all = find_named_ways(reader, object, names, num_names);
    for (size_t k = 0; all && k < num_names && !schema_failed(reader); k++) {
        struct schema_name *name = &names[k];
        const struct key_ways ways = join_ways(reader, name, &all[k]);
        if (!ways.len) continue;
        name->choices = schema_alloc(reader, CHOICES_MAX * sizeof *name->choices);
        if (!name->choices) return;
        add_choices(reader, object, name, &ways, 0, 0);
    }
}

bool schema_clauses_have(struct schema_reader *reader, const struct schema_object *object,
                         const json_t *value) {
    for (const struct schema_clause *at = object->clauses; at; at = at->next) {
        bool is_met = false;
        for (const struct schema_way *way = at->ways; way && !is_met; way = way->next) {
            const json_t *member = json_object_getn(value, way->key, way->len);
            const struct schema_literal literal = {way->schema, 1};
            is_met = member ? way->schema &&
                                  schema_node_has(reader, schema_node(reader, &literal, 1), member)
                            : way->may_be_absent;
        }
        if (!is_met) return false;
    }
    return true;
}
