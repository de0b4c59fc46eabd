#include "structured/schema/schema.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/text/c_locale.h"
#include "structured/schema/schema_internal.h"

enum {
    NODES_MAX = 50000,
    DEPTH_MAX = 48, // of nodes that are expanded inside each other; deeper ones wait
    TERMINAL_WEIGHT_MAX = 48, // members of the objects that are part of one terminal
    HOPS_MAX = 20, // references behind each other
    PARTS_MAX = 50000, // members and items, of all alternatives
    FINDINGS_MAX = 64,
    SENTENCES_MAX = 500,
    BYTES_MAX = 64 << 20,
};

// ---- errors ----

void schema_report_fini(struct schema_report *report) {
    for (size_t i = 0; i < report->num_findings; i++) free(report->findings[i].text);
    free(report->findings);
    *report = (struct schema_report){0};
}

bool schema_failed(struct schema_reader *reader) {
    if (!reader->status) reader->status = grammar_status(reader->grammar, reader->err);
    return reader->status != OK;
}

void schema_fail(struct schema_reader *reader, enum status status, const char *sentence) {
    if (reader->status) return;
    reader->status = err_set(reader->err, status, "%s", sentence);
}

void *schema_alloc(struct schema_reader *reader, size_t size) {
    reader->num_bytes += size;
    if (reader->num_bytes > reader->options.bytes_max) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema needs too much memory to be read");
        return NULL;
    }
    void *memory = arena_alloc(&reader->arena, size);
    if (!memory) schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
    return memory;
}

void *schema_grow(struct schema_reader *reader, void *list, size_t len, size_t *capacity,
                  size_t size) {
    if (len < *capacity) return list;
    size_t more = *capacity ? 2 * *capacity : 16;
    void *grown = schema_alloc(reader, more * size);
    if (!grown) return NULL;
    if (len) memcpy(grown, list, len * size);
    *capacity = more;
    return grown;
}

const char *schema_say(struct schema_reader *reader, const json_t *schema, const char *format,
                       ...) {
    // Finding a place takes a walk through the schema.
    if (++reader->num_sentences > SENTENCES_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has too many parts that are refused");
        return "";
    }
    char text[sizeof reader->first.message];
    va_list args;
    va_start(args, format);
    c_locale_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct err err;
    err_set(&err, ERR_UNSUPPORTED, "%s: %s", schema_refs_pointer(reader, schema), text);
    char *copy = arena_strndup(&reader->arena, err.message, strlen(err.message));
    if (!copy) schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
    return copy ? copy : "";
}

void schema_count_part(struct schema_reader *reader) {
    reader->weight++;
    if (++reader->num_parts > PARTS_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has too many combinations of schemas");
    }
}

static void add_finding(struct schema_reader *reader, const char *sentence, bool refused) {
    struct schema_report *report = reader->report;
    if (!report || report->num_findings == FINDINGS_MAX) return;
    for (size_t i = 0; i < report->num_findings; i++) {
        if (strcmp(report->findings[i].text, sentence) == 0) return;
    }
    if (!report->findings) {
        report->findings = calloc(FINDINGS_MAX, sizeof *report->findings);
    }
    char *text = report->findings ? strdup(sentence) : NULL;
    if (!text) {
        schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
        return;
    }
    report->findings[report->num_findings++] =
        (struct schema_finding){.refused = refused, .text = text};
}

void schema_refuse(struct schema_reader *reader, const char *sentence) {
    if (!reader->first.status) err_set(&reader->first, ERR_UNSUPPORTED, "%s", sentence);
    add_finding(reader, sentence, true);
}

void schema_note(struct schema_reader *reader, const json_t *schema, const char *what,
                 const char *name, const char *why) {
    if (!reader->report || reader->report->num_findings == FINDINGS_MAX) return;
    if (reader->num_sentences == SENTENCES_MAX) return;
    add_finding(reader, schema_say(reader, schema, "%s\"%.100s\" %s", what, name, why), false);
}

// ---- nodes ----

// The schema that `schema` only refers to, as {"$ref": ..., "description": ...} does, so that all
// references to a schema are one node.
static const json_t *follow_reference(struct schema_reader *reader, const json_t *schema) {
    static const char *const says_nothing[] = {"title",    "description", "default",  "examples",
                                               "$comment", "deprecated",  "readOnly", "writeOnly"};
    for (size_t hops = 0; hops < HOPS_MAX && jread_is_object(schema); hops++) {
        const json_t *ref = json_object_get(schema, "$ref"), *all = NULL;
        if (!ref) all = json_object_get(schema, "allOf");
        if (!json_is_string(ref) && json_array_size(all) != 1) break;
        size_t num_others = json_object_size(schema) - 1;
        if (ref && reader->draft <= SCHEMA_DRAFT_7) num_others = 0; // they count for nothing
        for (size_t i = 0; i < ARRAY_LEN(says_nothing) && num_others; i++) {
            num_others -= json_object_get(schema, says_nothing[i]) != NULL;
        }
        if (num_others) break;
        const char *why;
        const json_t *target =
            ref ? schema_refs_resolve(reader, schema, json_string_value(ref), &why)
                : json_array_get(all, 0);
        if (!target) break;
        schema = target;
    }
    return schema;
}

// Leaves out what says nothing, and repetitions. Returns false where nothing satisfies the list.
static bool keep_literals(struct schema_reader *reader, const struct schema_literal *literals,
                          size_t num_literals, struct schema_literal *kept, size_t *num_kept) {
    size_t count = 0;
    for (size_t i = 0; i < num_literals; i++) {
        struct schema_literal literal = literals[i];
        literal.schema = follow_reference(reader, literal.schema);
        bool is_empty = jread_is_object(literal.schema) && !json_object_size(literal.schema);
        bool is_true = json_is_true(literal.schema) || is_empty;
        if (is_true || json_is_false(literal.schema)) {
            if (is_true == (literal.negated != 0)) return false;
            continue;
        }
        size_t j = 0;
        while (j < count && kept[j].schema != literal.schema) j++;
        if (j < count && kept[j].negated != literal.negated) return false;
        if (j == count) kept[count++] = literal;
    }
    *num_kept = count;
    return true;
}

static int compare_literals(const void *a, const void *b) {
    return memcmp(a, b, sizeof(struct schema_literal));
}

// The list as a key of node_of. The same schemas in another order mean the same: lists that are
// combined in many ways would else have a node for each order.
static const char *node_key(struct schema_reader *reader, const struct schema_literal *kept,
                            size_t num_kept) {
    if (num_kept < 2) return (const char *)kept;
    struct schema_literal *sorted = schema_alloc(reader, num_kept * sizeof *sorted);
    if (!sorted) return NULL;
    memcpy(sorted, kept, num_kept * sizeof *sorted);
    qsort(sorted, num_kept, sizeof *sorted, compare_literals);
    return (const char *)sorted;
}

uint32_t schema_node(struct schema_reader *reader, const struct schema_literal *literals,
                     size_t num_literals) {
    struct schema_literal *kept = schema_alloc(reader, (num_literals + 1) * sizeof *kept);
    size_t num_kept;
    if (!kept || !keep_literals(reader, literals, num_literals, kept, &num_kept))
        return SCHEMA_NOTHING;
    uint32_t node;
    const char *key = node_key(reader, kept, num_kept);
    if (!key) return SCHEMA_NOTHING;
    if (strmap_get(&reader->node_of, key, num_kept * sizeof *kept, &node)) return node;
    if (reader->num_nodes == NODES_MAX) {
        schema_fail(reader, ERR_CAPACITY, "the JSON schema has too many combinations of schemas");
        return SCHEMA_NOTHING;
    }
    if (reader->num_nodes == reader->nodes_capacity) {
        size_t capacity = reader->nodes_capacity ? 2 * reader->nodes_capacity : 64;
        struct schema_node *nodes = realloc(reader->nodes, capacity * sizeof *nodes);
        if (!nodes) {
            schema_fail(reader, ERR_NOMEM, "out of memory: JSON schema");
            return SCHEMA_NOTHING;
        }
        reader->nodes = nodes;
        reader->nodes_capacity = capacity;
    }
    node = (uint32_t)reader->num_nodes++;
    reader->nodes[node] =
        (struct schema_node){.literals = kept, .num_literals = (uint32_t)num_kept};
    enum status status =
        strmap_put(&reader->node_of, key, num_kept * sizeof *kept, node, NULL, reader->err);
    if (status && !reader->status) reader->status = status;
    return node;
}

// ---- from branches to items ----

// The items of a node, while its branches come.
struct emission {
    uint32_t exprs; // all scalars
    uint32_t *items; // [num_items], objects and arrays
    size_t num_items, capacity;
    struct schema_branch *seen; // [num_seen], to write equal parts once
    size_t num_seen, seen_capacity;
};

static void emission_add(struct schema_reader *reader, struct emission *emission, uint32_t item) {
    if (emission->num_items == emission->capacity) {
        size_t capacity = emission->capacity ? 2 * emission->capacity : 8;
        uint32_t *items = schema_alloc(reader, capacity * sizeof *items);
        if (!items) return;
        if (emission->num_items) {
            memcpy(items, emission->items, emission->num_items * sizeof *items);
        }
        emission->items = items;
        emission->capacity = capacity;
    }
    emission->items[emission->num_items++] = item;
}

static void emission_add_expr(struct schema_reader *reader, struct emission *emission,
                              uint32_t expr) {
    emission->exprs = expr_alt(reader->exprs, emission->exprs, expr);
}

static bool object_equals(const struct schema_object *a, const struct schema_object *b) {
    return a->groups == b->groups && a->members == b->members && a->required == b->required &&
           a->names == b->names && a->min == b->min && a->max == b->max && a->extra == b->extra &&
           a->clauses == b->clauses && a->refused == b->refused;
}

static bool array_equals(const struct schema_array *a, const struct schema_array *b) {
    return a->groups == b->groups && a->contains == b->contains && a->items == b->items &&
           a->min == b->min && a->max == b->max && a->unique == b->unique &&
           a->refused == b->refused;
}

// Branches of one origin often differ in one type of value only.
static unsigned seen_before(struct schema_reader *reader, struct emission *emission,
                            const struct schema_branch *branch) {
    enum { COMPARED_MAX = 64 }; // with the last ones: there may be thousands
    unsigned seen = 0;
    size_t first = emission->num_seen > COMPARED_MAX ? emission->num_seen - COMPARED_MAX : 0;
    for (size_t i = first; i < emission->num_seen; i++) {
        const struct schema_branch *other = &emission->seen[i];
        if (object_equals(&other->object, &branch->object)) {
            seen |= other->types & SCHEMA_OBJECT;
        }
        if (array_equals(&other->array, &branch->array)) seen |= other->types & SCHEMA_ARRAY;
    }
    if (emission->num_seen == emission->seen_capacity) {
        size_t capacity = emission->seen_capacity ? 2 * emission->seen_capacity : 4;
        struct schema_branch *branches = schema_alloc(reader, capacity * sizeof *branches);
        if (!branches) return seen;
        if (emission->num_seen) {
            memcpy(branches, emission->seen, emission->num_seen * sizeof *branches);
        }
        emission->seen = branches;
        emission->seen_capacity = capacity;
    }
    emission->seen[emission->num_seen++] = *branch;
    return seen;
}

static void emit_values(struct schema_reader *reader, const struct schema_branch *branch,
                        struct emission *emission) {
    const struct schema_value_set *set = branch->values;
    struct expr_text *texts = schema_alloc(reader, (set->num_values + 1) * sizeof *texts);
    if (!texts) return;
    size_t num_texts = 0;
    for (size_t i = 0; i < set->num_values; i++) {
        const json_t *value = set->values[i];
        if (!schema_branch_allows(reader, branch, value)) continue;
        if (json_is_string(value)) {
            texts[num_texts++] =
                (struct expr_text){json_string_value(value), json_string_length(value)};
        } else if (reader->options.any_key_order && schema_value_has_orders(value)) {
            const struct schema_literal equal = {schema_equal_to(reader, value), 0};
            if (!equal.schema) return;
            emission_add(reader, emission,
                         schema_node_item(reader, schema_node(reader, &equal, 1)));
        } else {
            emission_add_expr(reader, emission, schema_value_expr(reader, value));
        }
    }
    if (!num_texts) return;
    struct exprs *exprs = reader->exprs;
    uint32_t quote = expr_string(exprs, "\"");
    uint32_t *list = schema_alloc(reader, num_texts * sizeof *list);
    if (!list) return;
    for (size_t i = 0; i < num_texts; i++) {
        list[i] = expr_json_literal(exprs, texts[i].bytes, texts[i].len);
    }
    uint32_t content = expr_alt_all(exprs, list, num_texts);
    emission_add_expr(reader, emission,
                      expr_concat(exprs, quote, expr_concat(exprs, content, quote)));
}

static void emit(struct schema_reader *reader, const struct schema_branch *branch, void *arg) {
    struct emission *emission = arg;
    struct exprs *exprs = reader->exprs;
    if (branch->values) {
        emit_values(reader, branch, emission);
        return;
    }
    unsigned types = branch->types & ~seen_before(reader, emission, branch);
    static const struct {
        unsigned type;
        const char *text;
    } words[] = {{SCHEMA_NULL, "null"}, {SCHEMA_TRUE, "true"}, {SCHEMA_FALSE, "false"}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (types & words[i].type) {
            emission_add_expr(reader, emission, expr_string(exprs, words[i].text));
        }
    }
    if (types & SCHEMA_NUMBER) {
        emission_add_expr(reader, emission, schema_number_expr(reader, branch));
    }
    if (types & SCHEMA_STRING) {
        emission_add_expr(reader, emission, schema_string_expr(reader, branch));
    }
    if (types & SCHEMA_ARRAY) {
        emission_add(reader, emission, schema_array_item(reader, &branch->array));
    }
    if (types & SCHEMA_OBJECT) {
        emission_add(reader, emission, schema_object_item(reader, &branch->object));
    }
}

// Nothing of it may be kept across a call: the list of nodes moves.
static struct schema_node *node_at(struct schema_reader *reader, uint32_t node) {
    return &reader->nodes[node];
}

static uint32_t node_call(struct schema_reader *reader, uint32_t node) {
    struct schema_node *at = node_at(reader, node);
    if (!at->has_rule) {
        at->rule = grammar_rule(reader->grammar, "a value of the JSON schema");
        at->call = grammar_call(reader->grammar, at->rule);
        at->has_rule = true;
    }
    return at->call;
}

static void expand_node(struct schema_reader *reader, uint32_t node) {
    node_at(reader, node)->state = NODE_OPEN;
    size_t outer_weight = reader->weight;
    reader->weight = 0;
    reader->depth++;
    struct emission emission = {.exprs = EXPR_NOTHING};
    const struct schema_sink sink = {emit, &emission};
    const struct schema_literal *literals = node_at(reader, node)->literals;
    schema_expand(reader, literals, node_at(reader, node)->num_literals, &sink);
    reader->depth--;
    if (emission.exprs != EXPR_NOTHING || !emission.num_items) {
        emission_add(reader, &emission, grammar_terminal(reader->grammar, emission.exprs));
    }
    uint32_t item = grammar_choice(reader->grammar, emission.items, emission.num_items);
    node_at(reader, node)->state = NODE_DONE;
    node_at(reader, node)->item = item;
    uint32_t expr;
    bool is_small =
        grammar_as_expr(reader->grammar, item, &expr) && reader->weight <= TERMINAL_WEIGHT_MAX;
    if (!is_small) node_call(reader, node);
    if (node_at(reader, node)->has_rule) {
        grammar_define(reader->grammar, node_at(reader, node)->rule, item);
    }
    node_at(reader, node)->weight = is_small ? reader->weight : 0;
    reader->weight = outer_weight;
}

uint32_t schema_node_item(struct schema_reader *reader, uint32_t node) {
    if (schema_failed(reader)) return GRAMMAR_EMPTY;
    if (node == SCHEMA_NOTHING) return grammar_terminal(reader->grammar, EXPR_NOTHING);
    // A node that waits for its turn is called; schema_add expands it later.
    if (node_at(reader, node)->state == NODE_NEW) {
        if (reader->depth >= DEPTH_MAX) return node_call(reader, node);
        expand_node(reader, node);
    }
    if (node_at(reader, node)->state == NODE_OPEN || node_at(reader, node)->has_rule) {
        return node_call(reader, node);
    }
    reader->weight += node_at(reader, node)->weight;
    return node_at(reader, node)->item;
}

// ---- the reader ----

static uint32_t space_expr(struct schema_reader *reader) {
    struct exprs *exprs = reader->exprs;
    const char *pattern = reader->options.space_pattern;
    if (!pattern && reader->options.space == SCHEMA_SPACE_NONE) return EXPR_EPSILON;
    if (!pattern) pattern = "^[ \\t]{0,2}(\\r?\\n[ \\t]{0,40})?$";
    uint32_t space = EXPR_EPSILON;
    struct err err = {0};
    enum status status = schema_pattern_whole(exprs, pattern, strlen(pattern), &space, &err);
    if (status) {
        schema_fail(reader, status, err.message);
        return space;
    }
    const uint64_t blanks[4] = {1ull << ' ' | 1 << '\t' | 1 << '\n' | 1 << '\r'};
    uint32_t all = expr_repeat(exprs, expr_byte_set(exprs, blanks), 0, EXPR_FOREVER);
    bool is_space = true;
    if (reader->options.space_pattern) {
        status = expr_is_nothing(exprs, expr_minus(exprs, space, all), &is_space, reader->err);
        if (status) reader->status = status;
    }
    if (!is_space) {
        schema_fail(reader, ERR_INVALID,
                    "whitespace_pattern matches more than blanks, tabs and line ends");
    }
    return space;
}

static uint32_t spaced(struct schema_reader *reader, const char *mark) {
    struct exprs *exprs = reader->exprs;
    uint32_t text = expr_concat(exprs, expr_string(exprs, mark), reader->space);
    return expr_concat(exprs, reader->space, text);
}

// By the drafts' own names, as validators know them. Another name, such as one with https, names
// none of them, and then all keywords count.
static enum schema_draft find_draft(const json_t *schema) {
    static const char *const old[] = {
        "http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-05/schema",
        "http://json-schema.org/draft-06/schema", "http://json-schema.org/draft-07/schema"};
    const char *draft = json_string_value(json_object_get(schema, "$schema"));
    if (draft && strstr(draft, "draft-03")) return SCHEMA_DRAFT_3;
    for (size_t i = 0; draft && i < ARRAY_LEN(old); i++) {
        size_t len = strlen(old[i]);
        bool is_same = !strncmp(draft, old[i], len);
        if (is_same && (!draft[len] || !strcmp(draft + len, "#"))) return SCHEMA_DRAFT_7;
    }
    return SCHEMA_DRAFT_NEW;
}

static uint32_t read_root(struct schema_reader *reader, const json_t *schema) {
    reader->space = space_expr(reader);
    reader->comma = spaced(reader, ",");
    reader->colon = spaced(reader, ":");
    reader->any_text = expr_any_text(reader->exprs);
    // The first node is SCHEMA_NOTHING. No list of literals is so short.
    static const struct schema_literal nothing[1];
    (void)schema_node(reader, nothing, 1);
    const struct schema_literal literal = {schema, 0};
    uint32_t root = schema_node(reader, &literal, 1);
    uint32_t rule = grammar_rule(reader->grammar, "JSON schema");
    grammar_define(reader->grammar, rule, schema_node_item(reader, root));
    for (uint32_t i = 1; i < reader->num_nodes && !schema_failed(reader); i++) {
        if (node_at(reader, i)->state == NODE_NEW && node_at(reader, i)->has_rule) {
            expand_node(reader, i);
        }
    }
    return rule;
}

enum status schema_add(struct grammar *grammar, const json_t *schema,
                       const struct schema_options *options, uint32_t *rule,
                       struct schema_report *report, struct err *err) {
    struct schema_reader reader = {
        .grammar = grammar, .exprs = grammar_exprs(grammar), .report = report, .err = err};
    if (options) reader.options = *options;
    if (!reader.options.bytes_max) reader.options.bytes_max = BYTES_MAX;
    if (!jread_is_object(schema) && !json_is_boolean(schema)) {
        return err_set(err, ERR_FORMAT, "a JSON schema is an object, or true or false");
    }
    reader.draft = find_draft(schema);
    reader.status = schema_refs_init(&reader, schema);
    if (!reader.status) *rule = read_root(&reader, schema);
    schema_failed(&reader);
    if (!reader.status && reader.first.status) {
        reader.status = err_set(err, reader.first.status, "%s", reader.first.message);
    }
    schema_refs_fini(&reader.refs);
    strmap_fini(&reader.node_of);
    strmap_fini(&reader.pattern_of);
    strmap_fini(&reader.key_of);
    strmap_fini(&reader.others_of);
    strmap_fini(&reader.object_of);
    strmap_fini(&reader.equal_of);
    json_decref(reader.equals);
    free(reader.nodes);
    arena_fini(&reader.arena);
    return reader.status;
}
