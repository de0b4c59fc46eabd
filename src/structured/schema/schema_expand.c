/* From literals to branches.
 *
 * Keywords apply in the order of the document, so that keys come in the order in which a reader of
 * the schema meets them; only type, const and enum come first. A keyword with alternatives copies
 * the work and runs each copy to its end. Negated schemas wait until all others are applied: then
 * most are trivially true. */
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "structured/schema/schema_internal.h"

enum {
    RUNS_MAX = 50000, // alternatives of all nodes
    KEYWORDS_MAX = 2000000,
    SPLITS_MAX = 300, // alternatives inside each other
    REFS_MAX = 100, // in one branch: more refer to themselves
};

struct schema_agenda *schema_agenda_push(struct schema_reader *reader,
                                         const struct schema_agenda *next, const json_t *schema,
                                         bool negated) {
    struct schema_agenda *agenda = schema_alloc(reader, sizeof *agenda);
    if (!agenda) return NULL;
    *agenda = (struct schema_agenda){.literal = {schema, negated}, .next = next};
    return agenda;
}

// ---- keywords with alternatives ----

static void refuse_branch(struct schema_reader *reader, const struct schema_branch *branch,
                          const char *sentence) {
    if (branch->types) schema_refuse(reader, sentence);
}

static bool want_list(struct schema_reader *reader, const json_t *schema, const char *key,
                      const json_t *value) {
    if (json_is_array(value) && json_array_size(value)) return true;
    schema_fail(reader, ERR_FORMAT,
                schema_say(reader, schema, "\"%s\" is not a list of schemas", key));
    return false;
}

static void run_any_of(struct schema_reader *reader, const struct schema_work *work,
                       const json_t *options, const struct schema_sink *sink) {
    if (work->num_scopes) {
        schema_scope_any_of(reader, work, options, sink);
        return;
    }
    for (size_t i = 0; i < json_array_size(options) && !schema_failed(reader); i++) {
        struct schema_work copy = *work;
        copy.agenda = schema_agenda_push(reader, work->agenda, json_array_get(options, i), false);
        schema_run(reader, &copy, sink);
    }
}

// One option holds and no other. The others are dropped again where they cannot hold.
static void run_one_of(struct schema_reader *reader, const struct schema_work *work,
                       const json_t *options, const struct schema_sink *sink) {
    for (size_t i = 0; i < json_array_size(options) && !schema_failed(reader); i++) {
        struct schema_work copy = *work;
        copy.agenda = schema_agenda_push(reader, work->agenda, json_array_get(options, i), false);
        for (size_t j = 0; j < json_array_size(options); j++) {
            if (j == i) continue;
            copy.negated =
                schema_agenda_push(reader, copy.negated, json_array_get(options, j), true);
        }
        schema_run(reader, &copy, sink);
    }
}

// A negated condition is applied at once where it leaves one branch, so that conditions about the
// same member exclude each other while they are read. Otherwise it waits.
static void negate_early(struct schema_reader *reader, struct schema_work *work,
                         const json_t *schema) {
    if (schema_is_disjoint(reader, &work->branch, schema, 0)) return;
    if (schema_negate_alone(reader, &work->branch, schema)) return;
    work->negated = schema_agenda_push(reader, work->negated, schema, true);
}

static void run_if(struct schema_reader *reader, const struct schema_work *work,
                   const json_t *schema, const json_t *condition, const struct schema_sink *sink) {
    const json_t *then_schema = json_object_get(schema, "then");
    const json_t *else_schema = json_object_get(schema, "else");
    struct schema_work copy = *work;
    if (then_schema) {
        copy.agenda = schema_agenda_push(reader, copy.agenda, then_schema, false);
    }
    copy.agenda = schema_agenda_push(reader, copy.agenda, condition, false);
    schema_run(reader, &copy, sink);
    copy = *work;
    if (else_schema) {
        copy.agenda = schema_agenda_push(reader, copy.agenda, else_schema, false);
    }
    // Without "then" and "else" the condition only tells what is evaluated.
    if (then_schema || else_schema) negate_early(reader, &copy, condition);
    schema_run(reader, &copy, sink);
}

static void add_member(struct schema_reader *reader, const struct schema_member **list,
                       const char *key, size_t len, const json_t *schema, bool negated) {
    struct schema_member *member = schema_alloc(reader, sizeof *member);
    if (!member) return;
    *member =
        (struct schema_member){.key = key, .len = len, .literal = {schema, negated}, .next = *list};
    *list = member;
}

static void require_keys(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *keys) {
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const json_t *key = json_array_get(keys, i);
        add_member(reader, &branch->object.required, json_string_value(key),
                   json_string_length(key), NULL, false);
    }
}

// Each key of `map` is absent, or its dependency holds. `at` is the next key, NULL behind the last.
static void run_dependencies(struct schema_reader *reader, const struct schema_work *work,
                             const json_t *map, void *at, const struct schema_sink *sink) {
    struct schema_work copy = *work;
    if (!at || !(work->branch.types & SCHEMA_OBJECT)) {
        schema_run(reader, work, sink);
        return;
    }
    const char *key = json_object_iter_key(at);
    size_t len = json_object_iter_key_len(at);
    const json_t *needed = json_object_iter_value(at);
    struct schema_agenda *rest = schema_agenda_push(reader, work->agenda, NULL, false);
    if (!rest) return;
    rest->dependencies = map;
    rest->dependency = json_object_iter_next((json_t *)(uintptr_t)map, at);
    copy.agenda = rest;
    add_member(reader, &copy.branch.object.members, key, len, json_false(), false);
    // About one member: it holds, or it does not and the key is absent. So dependencies about the
    // same member exclude each other.
    struct schema_branch without = copy.branch;
    bool may_be_alone = jread_is_object(needed) && !work->num_scopes;
    bool is_alone = may_be_alone && schema_negate_alone(reader, &without, needed) &&
                    without.excluded == work->branch.excluded;
    // Excluded values would be excluded from the other types too, which have no dependencies.
    if (is_alone) copy.branch = without;
    copy.branch.types |= work->branch.types & ~(unsigned)SCHEMA_OBJECT;
    schema_run(reader, &copy, sink);
    copy = *work;
    copy.agenda = rest;
    copy.branch.types &= SCHEMA_OBJECT; // other values are in the first branch
    if (!is_alone) add_member(reader, &copy.branch.object.required, key, len, NULL, false);
    if (json_is_array(needed)) {
        require_keys(reader, &copy.branch, needed);
    } else {
        copy.agenda = schema_agenda_push(reader, copy.agenda, needed, false);
    }
    schema_run(reader, &copy, sink);
}

// ---- one schema ----

// Pushes what the keyword, a kind of $ref, means. False: there is no such schema.
static bool push_ref(struct schema_reader *reader, struct schema_work *work, const json_t *schema,
                     const char *key) {
    const char *uri = json_string_value(json_object_get(schema, key)), *why;
    const json_t *target = schema_refs_target(reader, schema, key, &why);
    if (target && ++work->num_refs > REFS_MAX) {
        target = NULL;
        why = "refers to itself without a value between";
    }
    if (!target) {
        refuse_branch(reader, &work->branch,
                      schema_say(reader, schema, "%s \"%.200s\" %s", key, uri ? uri : "?", why));
        return false;
    }
    work->agenda = schema_agenda_push(reader, work->agenda, target, false);
    return true;
}

static bool is_in_place(const char *key) {
    static const char *const keys[] = {
        "$ref", "$dynamicRef",       "$recursiveRef",    "allOf",       "anyOf", "oneOf", "not",
        "if",   "dependentRequired", "dependentSchemas", "dependencies"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (key[0] == keys[i][0] && strcmp(key, keys[i]) == 0) return true;
    }
    return false;
}

// Applies one of these keywords. False: the rest of the work was run here, or nothing is left.
static bool apply_in_place(struct schema_reader *reader, struct schema_work *work,
                           const json_t *schema, const char *key, const json_t *value,
                           const struct schema_sink *sink) {
    if (key[0] == '$') return push_ref(reader, work, schema, key);
    if (strcmp(key, "not") == 0) {
        work->negated = schema_agenda_push(reader, work->negated, value, true);
        return true;
    }
    if (strcmp(key, "if") == 0) {
        bool has_branch = json_object_get(schema, "then") || json_object_get(schema, "else");
        if (!has_branch && !work->num_scopes) return true;
        run_if(reader, work, schema, value, sink);
        return false;
    }
    if (jread_is_object(value)) {
        void *first = json_object_iter((json_t *)(uintptr_t)value);
        run_dependencies(reader, work, value, first, sink);
        return false;
    }
    if (!want_list(reader, schema, key, value)) return false;
    if (strcmp(key, "allOf") == 0) {
        for (size_t i = json_array_size(value); i-- > 0;) {
            const json_t *part = json_array_get(value, i);
            work->agenda = schema_agenda_push(reader, work->agenda, part, false);
        }
        return true;
    }
    (strcmp(key, "anyOf") == 0 ? run_any_of : run_one_of)(reader, work, value, sink);
    return false;
}

// Applies what narrows the types, before all other keywords.
static void apply_first(struct schema_reader *reader, struct schema_branch *branch,
                        const json_t *schema) {
    if (json_object_get(schema, "type")) branch->types &= schema_read_types(reader, schema);
    const json_t *value = json_object_get(schema, "const");
    if (value) schema_limit_values(reader, branch, value, false);
    value = json_object_get(schema, "enum");
    if (value && !json_is_array(value)) {
        schema_fail(reader, ERR_FORMAT, schema_say(reader, schema, "\"enum\" is not a list"));
    }
    if (value) schema_limit_values(reader, branch, value, true);
}

// Applies the keywords of one schema, beginning at item->at. False: as in apply_in_place.
static bool apply_schema(struct schema_reader *reader, struct schema_work *work,
                         const struct schema_agenda *item, const struct schema_sink *sink) {
    json_t *schema = (json_t *)(uintptr_t)item->literal.schema;
    void *at = item->at;
    if (item->dependencies) {
        run_dependencies(reader, work, item->dependencies, item->dependency, sink);
        return false;
    }
    if (item->scope) {
        schema_scope_end(reader, &work->branch, item->scope);
        work->num_scopes--;
        return true;
    }
    if (!at) {
        // In older drafts the neighbours of $ref count for nothing.
        const json_t *ref = json_object_get(schema, "$ref");
        if (ref && reader->draft <= SCHEMA_DRAFT_7) return push_ref(reader, work, schema, "$ref");
        if (schema_opens_scope(schema)) {
            work->agenda = schema_scope_push(reader, work, schema);
            work->num_scopes++;
        }
        apply_first(reader, &work->branch, schema);
        at = json_object_iter(schema);
    }
    for (; at && work->branch.types && !schema_failed(reader);) {
        const char *key = json_object_iter_key(at);
        const json_t *value = json_object_iter_value(at);
        at = json_object_iter_next(schema, at);
        if (++reader->num_keywords > KEYWORDS_MAX) {
            schema_fail(reader, ERR_CAPACITY, "the JSON schema has too many alternatives");
        }
        if (!is_in_place(key)) {
            schema_apply(reader, &work->branch, schema, key, value);
            continue;
        }
        if (at) {
            struct schema_agenda *rest = schema_agenda_push(reader, work->agenda, schema, false);
            if (rest) rest->at = at;
            work->agenda = rest;
        }
        return apply_in_place(reader, work, schema, key, value, sink);
    }
    return true;
}

// ---- running ----

// Takes the next schema from a list. False: no value is left.
static bool next_object(struct schema_reader *reader, const struct schema_agenda **list,
                        const struct schema_agenda **item) {
    for (; *list; *list = (*list)->next) {
        const json_t *schema = (*list)->literal.schema;
        bool negated = (*list)->literal.negated;
        if (jread_is_object(schema) || (*list)->dependencies || (*list)->scope) break;
        if (!json_is_boolean(schema)) {
            schema_fail(reader, ERR_FORMAT,
                        schema_say(reader, schema, "a schema is an object, or true or false"));
            return false;
        }
        if (json_is_true(schema) == negated) return false;
    }
    *item = *list;
    if (*list) *list = (*list)->next;
    return true;
}

static bool is_listed(const struct schema_member *list, const char *key, size_t len) {
    for (; list; list = list->next) {
        if (list->len == len && memcmp(list->key, key, len) == 0) return true;
    }
    return false;
}

static bool is_named_in(const struct schema_group *list, const char *key, size_t len) {
    for (; list; list = list->next) {
        if (json_object_getn(json_object_get(list->schema, "properties"), key, len)) return true;
    }
    return false;
}

// The extra member has this key, if it may.
static void run_extra_key(struct schema_reader *reader, const struct schema_work *work,
                          const char *key, size_t len, const struct schema_sink *sink) {
    struct schema_work copy = *work;
    struct schema_object *object = &copy.branch.object;
    const struct schema_literal *literal = &object->extra->literal;
    bool matches = false;
    if (schema_failed(reader)) return;
    enum status status =
        expr_matches(reader->exprs, object->extra->keys, key, len, &matches, reader->err);
    if (status && !reader->status) reader->status = status;
    if (!matches) return;
    add_member(reader, &object->required, key, len, NULL, false);
    if (literal->schema) {
        add_member(reader, &object->members, key, len, literal->schema, literal->negated);
    }
    object->extra = NULL;
    schema_run(reader, &copy, sink);
}

// The branch is complete. Its extra member may have a key that was named since it was asked for.
static void take_branch(struct schema_reader *reader, const struct schema_work *work,
                        const struct schema_sink *sink) {
    const struct schema_object *object = &work->branch.object;
    const struct schema_extra *extra = work->branch.values ? NULL : object->extra;
    const struct schema_group *group = extra ? object->groups : NULL;
    for (; group && group != extra->groups; group = group->next) {
        const char *key;
        size_t len;
        json_t *value;
        json_object_keylen_foreach(json_object_get(group->schema, "properties"), key, len, value) {
            if (is_named_in(group->next, key, len)) continue;
            if (!is_listed(object->required, key, len)) {
                run_extra_key(reader, work, key, len, sink);
            }
        }
    }
    const struct schema_member *at = extra ? object->required : NULL;
    for (; at && at != extra->required; at = at->next) {
        if (!is_listed(at->next, at->key, at->len)) {
            run_extra_key(reader, work, at->key, at->len, sink);
        }
    }
    for (at = extra ? object->members : NULL; at; at = at->next) {
        if (is_listed(at->next, at->key, at->len) ||
            is_listed(object->required, at->key, at->len) ||
            is_named_in(object->groups, at->key, at->len)) {
            continue;
        }
        run_extra_key(reader, work, at->key, at->len, sink);
    }
    for (const struct schema_clause *clause = extra ? object->clauses : NULL; clause;
         clause = clause->next) {
        for (const struct schema_way *way = clause->ways; way; way = way->next) {
            if (is_listed(object->required, way->key, way->len) ||
                is_listed(object->members, way->key, way->len) ||
                is_named_in(object->groups, way->key, way->len)) {
                continue;
            }
            run_extra_key(reader, work, way->key, way->len, sink);
        }
    }
    if (!schema_failed(reader)) sink->take(reader, &work->branch, sink->arg);
}

static bool was_applied(const struct schema_agenda *applied, const json_t *schema) {
    for (; applied; applied = applied->next) {
        if (applied->literal.schema == schema) return true;
    }
    return false;
}

size_t schema_num_failures(struct schema_reader *reader, const json_t *schema) {
    schema = schema_follow_refs(reader, schema);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (is_in_place(key)) return SIZE_MAX;
    }
    const json_t *more = json_object_get(schema, "additionalProperties");
    return json_object_size(json_object_get(schema, "properties")) +
           json_object_size(json_object_get(schema, "patternProperties")) +
           json_array_size(json_object_get(schema, "required")) + (more && !json_is_true(more));
}

enum { LOOK_AHEAD = 16 };

// Puts the negated schema with the fewest ways to fail before the others, because what is chosen
// first often settles the others too: a key that one schema forbids is unknown to closed ones.
static void put_easiest_first(struct schema_reader *reader, const struct schema_agenda **list) {
    const struct schema_agenda *best = NULL;
    size_t fewest = 0;
    if (!*list || !(*list)->next) return;
    size_t left = LOOK_AHEAD;
    for (const struct schema_agenda *at = *list; at && left && (!best || fewest);
         at = at->next, left--) {
        size_t count = schema_num_failures(reader, at->literal.schema);
        if (best && count >= fewest) continue;
        best = at;
        fewest = count;
    }
    if (best == *list) return;
    struct schema_agenda *first = schema_alloc(reader, sizeof *first);
    if (!first) return;
    *first = *best;
    const struct schema_agenda **end = &first->next;
    for (const struct schema_agenda *at = *list; at != best; at = at->next) {
        struct schema_agenda *copy = schema_alloc(reader, sizeof *copy);
        if (!copy) return;
        *copy = *at;
        *end = copy;
        end = &copy->next;
    }
    *end = best->next;
    *list = first;
}

void schema_run(struct schema_reader *reader, const struct schema_work *work,
                const struct schema_sink *sink) {
    struct schema_work local = *work;
    if (++local.num_splits > SPLITS_MAX || ++reader->num_runs > RUNS_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has too many alternatives");
    }
    while (local.branch.types && !schema_failed(reader)) {
        const struct schema_agenda *item;
        schema_drop_dead(reader, &local);
        if (!next_object(reader, &local.agenda, &item)) return;
        if (item) {
            if (!apply_schema(reader, &local, item, sink)) return;
            continue;
        }
        if (!local.is_counted && !local.has_clauses) {
            local.is_counted = true;
            local.has_clauses = schema_has_many_ways(reader, &local);
        }
        put_easiest_first(reader, &local.negated);
        if (!next_object(reader, &local.negated, &item)) return;
        if (!item) {
            take_branch(reader, &local, sink);
            return;
        }
        const json_t *schema = item->literal.schema;
        if (was_applied(local.applied, schema)) continue;
        local.applied = schema_agenda_push(reader, local.applied, schema, true);
        if (schema_is_disjoint(reader, &local.branch, schema, 0)) continue;
        schema_negate(reader, &local, schema, sink);
        return;
    }
}

void schema_expand(struct schema_reader *reader, const struct schema_literal *literals,
                   size_t num_literals, const struct schema_sink *sink) {
    struct schema_work work = {
        .branch = {.types = SCHEMA_ALL,
                   .text = reader->any_text,
                   .length_max = EXPR_FOREVER,
                   .object = {.max = EXPR_FOREVER},
                   .array = {.max = EXPR_FOREVER}},
    };
    for (size_t i = num_literals; i-- > 0;) {
        bool negated = literals[i].negated;
        const struct schema_agenda **list = negated ? &work.negated : &work.agenda;
        *list = schema_agenda_push(reader, *list, literals[i].schema, negated);
    }
    schema_run(reader, &work, sink);
}
