/* unevaluatedProperties and unevaluatedItems: about the keys and items that neither their schema
 * nor one that it applies to the same value says something about.
 *
 * A branch has the keywords of the schemas that hold, in the order in which they were applied. So
 * those of a schema and of all that it applies stand behind each other: its scope. */
#include "structured/schema/schema_internal.h"

enum { OPTIONS_MAX = 5 };

bool schema_opens_scope(const json_t *schema) {
    return json_object_get(schema, "unevaluatedProperties") ||
           json_object_get(schema, "unevaluatedItems");
}

struct schema_agenda *schema_scope_push(struct schema_reader *reader,
                                        const struct schema_work *work, const json_t *schema) {
    struct schema_agenda *agenda = schema_agenda_push(reader, work->agenda, NULL, false);
    struct schema_scope *scope = schema_alloc(reader, sizeof *scope);
    if (!agenda || !scope) return agenda;
    *scope = (struct schema_scope){.schema = schema,
                                   .properties = work->branch.object.groups,
                                   .items = work->branch.array.groups,
                                   .num_contains = work->branch.array.num_contains};
    agenda->scope = scope;
    return agenda;
}

static void add_rest(struct schema_reader *reader, const struct schema_group **list,
                     const json_t *schema, const struct schema_group *since) {
    struct schema_group *group = schema_alloc(reader, sizeof *group);
    if (!group) return;
    *group =
        (struct schema_group){.schema = schema, .next = *list, .since = since, .is_rest = true};
    *list = group;
}

void schema_scope_end(struct schema_reader *reader, struct schema_branch *branch,
                      const struct schema_scope *scope) {
    const json_t *schema = scope->schema;
    if (json_object_get(schema, "unevaluatedProperties")) {
        add_rest(reader, &branch->object.groups, schema, scope->properties);
    }
    if (!json_object_get(schema, "unevaluatedItems")) return;
    if (branch->array.num_contains != scope->num_contains) { // items that match are evaluated
        branch->array.refused = schema_say(
            reader, schema, "keyword \"unevaluatedItems\" cannot be enforced beside \"contains\"");
        return;
    }
    add_rest(reader, &branch->array.groups, schema, scope->items);
}

// A branch for each set of options: all of the set hold, and others may.
void schema_scope_any_of(struct schema_reader *reader, const struct schema_work *work,
                         const json_t *options, const struct schema_sink *sink) {
    size_t len = json_array_size(options);
    if (len > OPTIONS_MAX) {
        schema_refuse(reader, schema_say(reader, reader->refs.root,
                                         "keyword \"unevaluatedProperties\" or "
                                         "\"unevaluatedItems\" cannot be enforced above an "
                                         "\"anyOf\" of more than %d options",
                                         OPTIONS_MAX));
        return;
    }
    for (size_t set = 1; set < (size_t)1 << len && !schema_failed(reader); set++) {
        struct schema_work copy = *work;
        for (size_t i = len; i-- > 0;) {
            if (!(set >> i & 1)) continue;
            const json_t *option = json_array_get(options, i);
            copy.agenda = schema_agenda_push(reader, copy.agenda, option, false);
        }
        schema_run(reader, &copy, sink);
    }
}

// Whether the group says something about the key, so that it is evaluated.
static bool evaluates(struct schema_reader *reader, const struct schema_group *group,
                      const char *key, size_t len) {
    const json_t *schema = group->schema;
    if (group->is_rest || json_object_get(schema, "additionalProperties")) return true;
    if (json_object_getn(json_object_get(schema, "properties"), key, len)) return true;
    const char *pattern;
    size_t pattern_len;
    json_t *value;
    json_object_keylen_foreach(json_object_get(schema, "patternProperties"), pattern, pattern_len,
                               value) {
        if (schema_pattern_matches(reader, schema, pattern, pattern_len, key, len)) return true;
    }
    return false;
}

const json_t *schema_unevaluated_property(struct schema_reader *reader,
                                          const struct schema_group *rest, const char *key,
                                          size_t len) {
    const struct schema_group *at = rest->next;
    while (at != rest->since && !evaluates(reader, at, key, len)) at = at->next;
    return at == rest->since ? json_object_get(rest->schema, "unevaluatedProperties") : NULL;
}
