/* Inside the reader of JSON schemas.
 *
 * A node stands for the values that satisfy a list of schemas at the same time, some of them
 * negated. The same list is the same node, so recursive schemas have finitely many nodes. A node is
 * expanded into branches: a value satisfies the node exactly where it satisfies one of them. A
 * branch has no alternatives any more, only limits for each type of value:
 *
 *     node = literals --schema_expand--> branches --schema_emit--> items of the grammar
 *     {"anyOf": [A, B], "type": ...}     {types, numbers, text, object, array}
 *
 * The parts of objects and arrays are nodes again. Memory is one arena, and lists are linked,
 * newest first, so that branches share their beginnings. */
#ifndef STRUCTURED_SCHEMA_INTERNAL_H
#define STRUCTURED_SCHEMA_INTERNAL_H

#include "base/arena.h"
#include "base/os/map.h"
#include "structured/schema/schema.h"

enum {
    SCHEMA_NULL = 1,
    SCHEMA_TRUE = 2,
    SCHEMA_FALSE = 4,
    SCHEMA_INTEGER = 8, // a number without a fraction
    SCHEMA_FRACTION = 16, // any other number
    SCHEMA_STRING = 32,
    SCHEMA_ARRAY = 64,
    SCHEMA_OBJECT = 128,
    SCHEMA_BOOLEAN = SCHEMA_TRUE | SCHEMA_FALSE,
    SCHEMA_NUMBER = SCHEMA_INTEGER | SCHEMA_FRACTION,
    SCHEMA_ALL = 255,
};

enum { SCHEMA_NOTHING = 0 }; // the node without values

// A schema, or its negation. Two words, so that lists can be compared as bytes.
struct schema_literal {
    const json_t *schema;
    size_t negated; // 0 or 1
};
struct schema_literals {
    struct schema_literal literal;
    const struct schema_literals *next;
};

// sign * 0.DIGITS * 10^exponent; no digits: zero. No zeros at either end.
struct schema_decimal {
    bool negative;
    int32_t exponent;
    uint32_t num_digits;
    const char *digits; // [num_digits], '0' to '9'
};

struct schema_bound {
    const struct schema_decimal *value; // NULL: none
    bool exclusive;
};
struct schema_decimals {
    struct schema_decimal value;
    const struct schema_decimals *next;
};

// A key of an object with the schema of its value.
struct schema_member {
    const char *key;
    size_t len;
    struct schema_literal literal;
    const struct schema_member *next;
};

// A schema whose keywords on keys (or on items) belong together: additionalProperties is about the
// keys that this schema does not name.
//
// With `is_rest` it is the schema's unevaluatedProperties (unevaluatedItems): about what no group
// behind this one evaluates, up to `since`. Those are the groups of the schema and of all schemas
// that it applies to the same value.
struct schema_group {
    const json_t *schema;
    const struct schema_group *next;
    const struct schema_group *since;
    bool is_rest;
};

struct schema_contains {
    struct schema_literal literal;
    uint32_t min, max;
    const struct schema_contains *next;
};

// The item at `index`, or every item.
struct schema_item {
    size_t index; // SIZE_MAX: every
    struct schema_literal literal;
    const struct schema_item *next;
};

struct schema_value_set {
    const json_t *const *values; // [num_values]
    size_t num_values;
};

// Some member: its key and its value. The key is not of `groups` and `required`, which have
// alternatives of their own.
struct schema_extra {
    uint32_t keys; // expression, decoded
    struct schema_literal literal; // no schema: any value
    // The keys are all but those in "properties" of these schemas. NULL: that is not known.
    const struct schema_group *but;
    const struct schema_group *groups; // the object's lists when this was made
    const struct schema_member *required;
};

// One way for an object to violate a schema: the value of the key does not satisfy `schema`, or the
// key is absent.
struct schema_way {
    const char *key;
    size_t len;
    const json_t *schema; // NULL: the key must be absent
    bool may_be_absent;
    const struct schema_way *next;
};
// The object goes one of these ways. So alternatives need no branches (schema_clause.c).
struct schema_clause {
    const struct schema_way *ways;
    const struct schema_clause *next;
};

struct schema_object {
    const struct schema_group *groups;
    const struct schema_member *members; // more about single keys, from negations
    const struct schema_member *required; // literal unused
    const struct schema_literals *names; // propertyNames
    uint32_t min, max;
    const struct schema_extra *extra; // has such a member; NULL: need not
    const struct schema_clause *clauses;
    const char *refused; // a sentence, if no object can be enforced
};

struct schema_array {
    const struct schema_group *groups;
    const struct schema_contains *contains; // those that demand something
    size_t num_contains; // all that were applied
    const struct schema_item *items; // more about items, from negations
    uint32_t min, max;
    const json_t *unique; // the schema with uniqueItems; NULL: none
    const char *refused;
};

struct schema_branch {
    unsigned types;
    const struct schema_value_set *values; // NULL: any
    const struct schema_value_set *excluded; // NULL: none
    struct schema_bound lower, upper;
    const struct schema_decimals *multiples, *not_multiples;
    uint32_t text; // expression of strings, decoded
    bool text_is_raw; // strings need no escapes
    const char *text_refused;
    uint32_t length_min, length_max; // of strings, in characters
    struct schema_object object;
    struct schema_array array;
};

enum schema_draft { SCHEMA_DRAFT_3, SCHEMA_DRAFT_7, SCHEMA_DRAFT_NEW }; // 7: and 4 to 6

struct schema_place; // schema_refs.c
struct schema_refs {
    const json_t *root;
    struct schema_place *places; // [num_places], of schemas with a base
    size_t num_places, places_capacity;
    struct strmap resources; // URI, maybe with an anchor -> index of targets
    const json_t **targets; // [num_targets]
    size_t num_targets, targets_capacity;
    struct strmap dynamic; // name of a $dynamicAnchor -> number of schemas that have it
    size_t num_recursive; // schemas with $recursiveAnchor
};

struct schema_node {
    const struct schema_literal *literals; // [num_literals]
    uint32_t num_literals;
    enum { NODE_NEW, NODE_OPEN, NODE_DONE } state;
    bool has_rule;
    uint32_t rule, call; // the item that calls it
    uint32_t item; // when done
    size_t weight; // members of its objects, when it is part of other terminals
};

// An object that was written, to write equal ones once.
struct schema_made {
    uint32_t item;
    bool is_shared; // it has a second use
    size_t weight;
};

struct schema_reader {
    struct arena arena;
    struct grammar *grammar;
    struct exprs *exprs;
    struct schema_options options;
    enum schema_draft draft;
    struct schema_refs refs;
    struct schema_node *nodes; // [num_nodes]
    size_t num_nodes, nodes_capacity;
    struct strmap node_of; // a list of literals, as bytes
    struct strmap pattern_of; // an expression's text -> its expr
    struct strmap key_of; // a key -> its number
    struct strmap others_of; // numbers of keys -> the expr of all other texts
    struct strmap object_of; // parts of an object -> index of made
    struct strmap equal_of; // the address of a value -> index of equals
    json_t *equals; // a list of schemas that schema_equal_to made; NULL: none
    struct schema_made *made; // [num_made]
    size_t num_made, made_capacity;
    uint32_t num_keys;
    size_t depth; // nodes that are being expanded
    size_t weight; // members of the objects of the open node
    size_t num_runs, num_keywords, num_sentences, num_bytes; // so far, all are limited
    size_t num_parts; // members and items written so far, limited
    // Terminals that every schema needs.
    uint32_t space, any_text, number, integer;
    uint32_t comma, colon; // with white space
    struct schema_report *report;
    struct err first; // the first refused finding
    struct err *err;
    enum status status; // the first error that ends reading
};

// ---- errors (schema.c) ----

// The keyword cannot be enforced. Reading goes on, so that all such places are found.
void schema_refuse(struct schema_reader *reader, const char *sentence);
// A sentence "#/a/b: <format>", allocated in the arena.
const char *schema_say(struct schema_reader *reader, const json_t *schema, const char *format, ...)
    PRINTF_LIKE(3, 4);
// Notes a keyword that is knowingly not enforced: "<what>" `name` "<why>".
void schema_note(struct schema_reader *reader, const json_t *schema, const char *what,
                 const char *name, const char *why);
// Ends reading.
void schema_fail(struct schema_reader *reader, enum status status, const char *sentence);
bool schema_failed(struct schema_reader *reader);
// Counts a member or an item that is written.
void schema_count_part(struct schema_reader *reader);
// From the arena; NULL after schema_fail.
void *schema_alloc(struct schema_reader *reader, size_t size);
// The list of `len` elements with room for one more.
void *schema_grow(struct schema_reader *reader, void *list, size_t len, size_t *capacity,
                  size_t size);

// ---- nodes (schema.c) ----

uint32_t schema_node(struct schema_reader *reader, const struct schema_literal *literals,
                     size_t num_literals);
// The node's texts: a terminal where that is small, otherwise a call.
uint32_t schema_node_item(struct schema_reader *reader, uint32_t node);

// ---- references (schema_refs.c) ----

MUST_USE enum status schema_refs_init(struct schema_reader *reader, const json_t *root);
void schema_refs_fini(struct schema_refs *refs);
// The schema that `ref` in `schema` means. NULL: none; *why is a sentence.
const json_t *schema_refs_resolve(struct schema_reader *reader, const json_t *schema,
                                  const char *ref, const char **why);
// The same for the value of the keyword `key`: $ref, $dynamicRef or $recursiveRef. NULL also where
// that depends on the schemas by which it is reached.
const json_t *schema_refs_target(struct schema_reader *reader, const json_t *schema,
                                 const char *key, const char **why);
// "#/properties/a"; "?" when it is nowhere.
const char *schema_refs_pointer(struct schema_reader *reader, const json_t *schema);

// ---- branches (schema_expand.c, schema_negate.c) ----

// Called for each branch.
struct schema_sink {
    void (*take)(struct schema_reader *reader, const struct schema_branch *branch, void *arg);
    void *arg;
};
void schema_expand(struct schema_reader *reader, const struct schema_literal *literals,
                   size_t num_literals, const struct schema_sink *sink);

// A schema with unevaluatedProperties or unevaluatedItems: the lists when it began.
struct schema_scope {
    const json_t *schema;
    const struct schema_group *properties, *items;
    size_t num_contains;
};

struct schema_agenda {
    struct schema_literal literal;
    void *at; // iterator of the keyword to go on with; NULL: the first one
    const struct schema_scope *scope; // instead of the literal: all that it applies was applied
    // Instead of the literal: dependencies, and the iterator of the next one.
    const json_t *dependencies;
    void *dependency;
    const struct schema_agenda *next;
};
// A branch in the making: `agenda` has literals to apply first, `negated` those to apply after.
struct schema_work {
    struct schema_branch branch;
    size_t num_refs, num_splits; // references followed, alternatives chosen
    size_t num_scopes; // that have not ended
    bool is_counted, has_clauses; // negated schemas: their ways to fail were counted, and are many
    const struct schema_agenda *agenda, *negated;
    const struct schema_agenda *applied; // negated ones that were applied
    // The object's lists when schema_drop_dead looked at them last.
    const struct schema_group *seen_groups;
    const struct schema_member *seen_members, *seen_required;
};
// In how many ways a schema can fail to hold. Only the keywords that may have many ways are
// counted: those of named keys. SIZE_MAX: unknown, because the schema applies others to the same
// value (allOf, $ref and the like).
size_t schema_num_failures(struct schema_reader *reader, const json_t *schema);
void schema_run(struct schema_reader *reader, const struct schema_work *work,
                const struct schema_sink *sink);
// Applies a negated schema object, and runs what is left of the work.
void schema_negate(struct schema_reader *reader, const struct schema_work *work,
                   const json_t *schema, const struct schema_sink *sink);
// What a schema's $ref means, and that one's, where nothing stands beside them.
const json_t *schema_follow_refs(struct schema_reader *reader, const json_t *schema);
// Takes the values of `schema` out of the branch, if what is left is one branch. False: it may not
// be, and nothing was changed.
bool schema_negate_alone(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *schema);
// Whether no value of the branch satisfies `schema`, as far as that is cheap to see.
bool schema_is_disjoint(struct schema_reader *reader, const struct schema_branch *branch,
                        const json_t *schema, size_t depth);
bool schema_requires(const struct schema_branch *branch, const char *key, size_t len);
bool schema_lists_required(const json_t *schema, const char *key, size_t len); // in "required"
// Whether two schemas are known to mean the same.
bool schema_is_same(const struct schema_reader *reader, const json_t *a, const json_t *b);
// Takes objects out of the branch where it is plain that some required member has no value.
void schema_drop_dead(struct schema_reader *reader, struct schema_work *work);
struct schema_agenda *schema_agenda_push(struct schema_reader *reader,
                                         const struct schema_agenda *next, const json_t *schema,
                                         bool negated);
// Bits of a "type"; 0: it is none. schema_read_types is for a schema that has the keyword, and sets
// an error then.
unsigned schema_types(const json_t *type);
unsigned schema_read_types(struct schema_reader *reader, const json_t *schema);
unsigned schema_type_of(const json_t *value);
bool schema_reads_value(const char *key, json_type want, const json_t *value);
// A keyword whose value is a count; false: an error is set.
bool schema_count(struct schema_reader *reader, const json_t *schema, const char *key,
                  uint32_t *count);
void schema_limit_values(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *list, bool is_list);
// Leaves arrays and objects to schema_equal_to, unless the branch lists its values.
void schema_exclude_values(struct schema_reader *reader, struct schema_branch *branch,
                           const json_t *list, bool is_list);
// Applies a keyword that leaves one branch. False: it is none of these.
bool schema_apply(struct schema_reader *reader, struct schema_branch *branch, const json_t *schema,
                  const char *key, const json_t *value);

// ---- values (schema_value.c) ----

bool schema_values_equal(const json_t *a, const json_t *b); // 1 equals 1.0
// Whether the branch has the value; the second for one of branch->values.
bool schema_branch_has(struct schema_reader *reader, const struct schema_branch *branch,
                       const json_t *value);
bool schema_branch_allows(struct schema_reader *reader, const struct schema_branch *branch,
                          const json_t *value);
bool schema_node_has(struct schema_reader *reader, uint32_t node, const json_t *value);
// A schema, always the same, of the values that equal this array or object. It has a keyword for
// each way to differ from it, so it can be negated. NULL after an error.
const json_t *schema_equal_to(struct schema_reader *reader, const json_t *value);
// Whether the value's texts differ in the order of keys.
bool schema_value_has_orders(const json_t *value);
// The texts of one value, with white space.
uint32_t schema_value_expr(struct schema_reader *reader, const json_t *value);

// ---- numbers (schema_number.c) ----

bool schema_decimal_read(struct schema_reader *reader, const json_t *value,
                         struct schema_decimal *out);
int schema_decimal_compare(const struct schema_decimal *a, const struct schema_decimal *b);
// "12.5"; without an exponent.
const char *schema_decimal_text(struct schema_reader *reader, const struct schema_decimal *value,
                                size_t *len);
uint32_t schema_number_expr(struct schema_reader *reader, const struct schema_branch *branch);
void schema_limit_number(struct schema_reader *reader, struct schema_branch *branch,
                         const json_t *value, bool is_upper, bool exclusive);

// ---- strings (schema_string.c, schema_pattern.c, schema_format.c) ----

// Decoded.
uint32_t schema_text_expr(struct schema_reader *reader, const struct schema_branch *branch);
// With quotes and escapes.
uint32_t schema_string_expr(struct schema_reader *reader, const struct schema_branch *branch);
// EXPR_NOTHING after an error; `schema` is its place.
uint32_t schema_pattern_expr(struct schema_reader *reader, const json_t *schema,
                             const char *pattern, size_t len);
bool schema_pattern_matches(struct schema_reader *reader, const json_t *schema, const char *pattern,
                            size_t pattern_len, const char *text, size_t len);
// The decoded keys that propertyNames allows.
uint32_t schema_names_expr(struct schema_reader *reader, const struct schema_literals *names);
enum schema_format { SCHEMA_FORMAT_KNOWN, SCHEMA_FORMAT_UNKNOWN, SCHEMA_FORMAT_REFUSED };
// `wide`: the texts that somebody may take to be of the format.
enum schema_format schema_format_expr(struct schema_reader *reader, const char *name, bool wide,
                                      uint32_t *expr, bool *is_raw);

// ---- objects and arrays (schema_object.c, schema_order.c, schema_array.c) ----

// A value for a key that meets some clauses.
struct schema_choice {
    uint64_t met; // bits of clauses
    uint32_t item; // key, colon and value
};
// A key that the schema names.
struct schema_name {
    const char *key;
    size_t len;
    bool required;
    uint32_t node; // of the value; SCHEMA_NOTHING: the key must not be there
    uint32_t item; // key, colon and value
    uint32_t number; // of the key
    // Of an object with clauses, beside `item`.
    struct schema_choice *choices; // [num_choices]
    size_t num_choices;
    uint64_t met_absent; // clauses that are met without the key
    uint64_t mentioned; // clauses with a way for the key
};
struct schema_order {
    struct schema_reader *reader;
    const struct schema_object *limits;
    const struct schema_name *names; // [num_names]
    size_t num_names;
    uint32_t others; // item: a member that is not named
    uint32_t extra; // item: the member that limits->extra asks for
    bool has_others;
    bool has_patterns; // keys that are not named fall into classes
    bool has_unique_keys; // out: no key may come twice
    size_t num_distinct; // out: so many keys that are not named must differ from each other
    size_t min, max; // of members
    uint32_t *memo; // [num_names + 1][num_counts], items
    size_t num_counts;
    uint64_t clauses; // bits of all
    uint64_t *behind; // [num_names + 1], clauses that the names from there on mention
    struct strmap states; // place, count and clauses met -> item
};
// Whether an object has members that can come in several orders.
bool schema_has_orders(const struct schema_object *limits, const struct schema_name *names,
                       size_t num_names, bool has_others);
// The members, with commas between, in any order. Their items begin behind the first quote.
uint32_t schema_any_order_members(struct schema_order *order);
// The members, with commas between.
uint32_t schema_order_members(struct schema_order *order);

// `"key" : value`; with `has_orders` without the first quote.
uint32_t schema_named_member(struct schema_reader *reader, const struct schema_name *name,
                             bool has_orders);

// ---- ways to violate schemas (schema_clause.c) ----

// Whether the negated schemas that wait have so many ways to fail that each needs a clause.
bool schema_has_many_ways(struct schema_reader *reader, const struct schema_work *work);
// Fills the choices of the names.
void schema_clause_choices(struct schema_reader *reader, const struct schema_object *object,
                           struct schema_name *names, size_t num_names);
bool schema_clauses_have(struct schema_reader *reader, const struct schema_object *object,
                         const json_t *value);

// ---- unevaluatedProperties, unevaluatedItems (schema_unevaluated.c) ----

bool schema_opens_scope(const json_t *schema);
struct schema_agenda *schema_scope_push(struct schema_reader *reader,
                                        const struct schema_work *work, const json_t *schema);
// All that the schema applies to the value has been applied.
void schema_scope_end(struct schema_reader *reader, struct schema_branch *branch,
                      const struct schema_scope *scope);
// What unevaluatedProperties says about the key; NULL: the key is evaluated.
const json_t *schema_unevaluated_property(struct schema_reader *reader,
                                          const struct schema_group *rest, const char *key,
                                          size_t len);
// Runs the branches of "anyOf" inside a scope: what is evaluated depends on all options that hold.
void schema_scope_any_of(struct schema_reader *reader, const struct schema_work *work,
                         const json_t *options, const struct schema_sink *sink);

// The literals that the value of `key` must satisfy. Returns their node.
uint32_t schema_member_node(struct schema_reader *reader, const struct schema_object *object,
                            const char *key, size_t len);
uint32_t schema_object_item(struct schema_reader *reader, const struct schema_object *object);
uint32_t schema_item_node(struct schema_reader *reader, const struct schema_array *array,
                          size_t index);
uint32_t schema_array_item(struct schema_reader *reader, const struct schema_array *array);

// ---- numbers of values (schema_plenty.c) ----

// Whether the expression surely has so many texts, and the node so many values that differ.
bool schema_has_many_texts(struct schema_reader *reader, uint32_t expr, size_t count);
bool schema_node_has_many(struct schema_reader *reader, uint32_t node, size_t count);

#endif
