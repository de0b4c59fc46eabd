/* The store of expressions: nodes, lists and sets of bytes, each kept once. */
#include "structured/expr/expr.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text/c_locale.h"
#include "structured/expr/expr_internal.h"

enum { BYTES_MAX = 64 << 20, STEPS_MAX = 20000000 };

uint64_t exprs_steps_left(const struct exprs *exprs) {
    return exprs->out_of_steps ? 0 : exprs->steps_left;
}

bool exprs_count(struct exprs *exprs, uint64_t steps) {
    if (exprs->err.status) return false;
    if (steps > exprs->steps_left) {
        exprs->out_of_steps = true;
        err_set(&exprs->err, ERR_CAPACITY, "the constraint takes more than %llu steps",
                (unsigned long long)exprs->steps_max);
        return false;
    }
    exprs->steps_left -= steps;
    return true;
}

bool exprs_grow(struct exprs *exprs, void *data, uint32_t *capacity, uint32_t need, size_t size) {
    if (exprs->err.status) return false;
    if (need <= *capacity) return true;
    uint32_t grown = *capacity ? *capacity * 2 : 64;
    while (grown < need) grown *= 2;
    size_t more = (size_t)(grown - *capacity) * size;
    if (need > UINT32_MAX / 4 || more > exprs->bytes_max - exprs->bytes) {
        err_set(&exprs->err, ERR_CAPACITY, "the constraint takes more than %zu KiB of memory",
                exprs->bytes_max >> 10);
        return false;
    }
    void *moved;
    memcpy(&moved, data, sizeof moved);
    moved = realloc(moved, grown * size);
    if (!moved) {
        err_nomem(&exprs->err, "structured output");
        return false;
    }
    memcpy(data, &moved, sizeof moved);
    exprs->bytes += more;
    *capacity = grown;
    return true;
}

enum status exprs_create(struct exprs **out, const struct expr_limits *limits, struct err *err) {
    struct exprs *exprs = calloc(1, sizeof *exprs);
    if (!exprs) return err_nomem(err, "structured output");
    exprs->bytes_max = limits && limits->bytes_max ? limits->bytes_max : BYTES_MAX;
    exprs->steps_max = limits && limits->steps_max ? limits->steps_max : STEPS_MAX;
    exprs->steps_left = exprs->steps_max;
    exprs->num_classes = 1;
    uint32_t nothing = exprs_intern(exprs, EXPR_KIND_NOTHING, 0, 0, 0);
    uint32_t epsilon = exprs_intern(exprs, EXPR_KIND_EPSILON, 0, 0, 0);
    uint32_t anything = exprs_intern(exprs, EXPR_KIND_NOT, nothing, 0, 0);
    enum status status = exprs_status(exprs, err);
    if (status) {
        exprs_destroy(exprs);
        return status;
    }
    CHECK(nothing == EXPR_NOTHING && epsilon == EXPR_EPSILON && anything == EXPR_ANYTHING,
          "%u %u %u", nothing, epsilon, anything);
    *out = exprs;
    return OK;
}

void exprs_destroy(struct exprs *exprs) {
    if (!exprs) return;
    free(exprs->nodes);
    free(exprs->lists);
    free(exprs->sets);
    free(exprs->node_table);
    free(exprs->set_table);
    free(exprs->memo);
    free(exprs->scratch);
    free(exprs);
}

enum status exprs_status(const struct exprs *exprs, struct err *err) {
    if (exprs->err.status && err) *err = exprs->err;
    return exprs->err.status;
}

uint32_t exprs_fail(struct exprs *exprs, enum status status, const char *format, ...) {
    if (exprs->err.status) return EXPR_NOTHING;
    char message[sizeof exprs->err.message];
    va_list args;
    va_start(args, format);
    c_locale_vsnprintf(message, sizeof message, format, args);
    va_end(args);
    err_set(&exprs->err, status, "%s", message);
    return EXPR_NOTHING;
}

// ---- nodes ----

static uint32_t hash_node(const struct exprs *exprs, const struct expr_node *node) {
    uint64_t hash = node->kind;
    if (node->kind == EXPR_KIND_ALT || node->kind == EXPR_KIND_AND) {
        for (uint32_t i = 0; i < node->b; i++) {
            hash = expr_mix(hash * 31 + exprs->lists[node->a + i]);
        }
        return (uint32_t)hash;
    }
    hash = (hash << 32 | node->a) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)expr_mix(hash ^ ((uint64_t)node->b << 32 | node->c));
}

static bool node_equals(const struct exprs *exprs, const struct expr_node *x,
                        const struct expr_node *y) {
    if (x->kind != y->kind || x->b != y->b) return false;
    if (x->kind == EXPR_KIND_ALT || x->kind == EXPR_KIND_AND) {
        return memcmp(exprs->lists + x->a, exprs->lists + y->a, x->b * sizeof(uint32_t)) == 0;
    }
    return x->a == y->a && x->c == y->c;
}

// Doubles a table of elements of `size` bytes when it is more than half full, and clears it. The
// caller inserts anew.
static bool grow_table(struct exprs *exprs, void *table, uint32_t *len, uint32_t count, size_t size,
                       bool *moved) {
    *moved = false;
    if ((uint64_t)count * 2 + 2 <= *len) return true;
    if (!exprs_grow(exprs, table, len, *len ? *len * 2 : 256, size)) return false;
    void *cleared;
    memcpy(&cleared, table, sizeof cleared);
    memset(cleared, 0, *len * size);
    *moved = true;
    return true;
}

static bool node_table_grow(struct exprs *exprs) {
    bool moved;
    if (!grow_table(exprs, &exprs->node_table, &exprs->node_table_len, exprs->num_nodes,
                    sizeof *exprs->node_table, &moved)) {
        return false;
    }
    for (uint32_t id = 0; moved && id < exprs->num_nodes; id++) {
        uint32_t mask = exprs->node_table_len - 1, hash = hash_node(exprs, &exprs->nodes[id]);
        uint32_t at = hash & mask;
        while (exprs->node_table[at].id) at = (at + 1) & mask;
        exprs->node_table[at] = (struct expr_entry){id + 1, hash};
    }
    return true;
}

static unsigned flag_live(unsigned flags) {
    return flags & (EXPR_LIVE | EXPR_DEAD);
}

// Flags of a node with a list: ALT is nullable, or live, if one of its nodes is; AND is nullable if
// all are.
static unsigned list_flags(const struct exprs *exprs, const struct expr_node *node) {
    bool is_alt = node->kind == EXPR_KIND_ALT;
    unsigned any = 0, all = EXPR_NULLABLE | EXPR_DEAD;
    for (uint32_t i = 0; i < node->b; i++) {
        unsigned flags = exprs->nodes[exprs->lists[node->a + i]].flags;
        any |= flags;
        all &= flags;
    }
    if (is_alt) return (any & (EXPR_NULLABLE | EXPR_LIVE)) | (all & EXPR_DEAD);
    return (all & EXPR_NULLABLE) | (any & EXPR_DEAD);
}

static unsigned node_flags(const struct exprs *exprs, const struct expr_node *node) {
    bool is_list = node->kind == EXPR_KIND_ALT || node->kind == EXPR_KIND_AND;
    const struct expr_node *a = &exprs->nodes[is_list ? 0 : node->a];
    switch ((enum expr_kind)node->kind) {
    case EXPR_KIND_NOTHING:
        return EXPR_DEAD;
    case EXPR_KIND_EPSILON:
        return EXPR_NULLABLE;
    case EXPR_KIND_BYTES:
        return EXPR_LIVE;
    case EXPR_KIND_CONCAT: {
        const struct expr_node *b = &exprs->nodes[node->b];
        return (a->flags & b->flags & (EXPR_NULLABLE | EXPR_LIVE)) |
               ((a->flags | b->flags) & EXPR_DEAD);
    }
    case EXPR_KIND_ALT:
    case EXPR_KIND_AND:
        return list_flags(exprs, node);
    case EXPR_KIND_NOT:
        return ~a->flags & EXPR_NULLABLE;
    case EXPR_KIND_REPEAT:
        return node->b == 0 ? EXPR_NULLABLE : a->flags;
    case EXPR_KIND_JSON:
        return a->flags;
    case EXPR_KIND_JSON_ESCAPE:
    case EXPR_KIND_JSON_HEX:
    case EXPR_KIND_JSON_PAIR:
        return 0;
    }
    return 0;
}

// Operators inside each other, without the tails of CONCAT.
static uint32_t node_depth(const struct exprs *exprs, const struct expr_node *node) {
    if (node->kind <= EXPR_KIND_BYTES) return 0;
    if (node->kind == EXPR_KIND_CONCAT) {
        uint32_t a = exprs->nodes[node->a].depth + 1u, b = exprs->nodes[node->b].depth;
        return a > b ? a : b;
    }
    if (node->kind != EXPR_KIND_ALT && node->kind != EXPR_KIND_AND) {
        return exprs->nodes[node->a].depth + 1u;
    }
    uint32_t depth = 0;
    for (uint32_t i = 0; i < node->b; i++) {
        uint32_t child = exprs->nodes[exprs->lists[node->a + i]].depth + 1u;
        if (child > depth) depth = child;
    }
    return depth;
}

// Finds or adds the node. *is_new tells which.
static uint32_t intern(struct exprs *exprs, struct expr_node *node, bool *is_new) {
    *is_new = false;
    if (!exprs_count(exprs, 1) || !node_table_grow(exprs)) return EXPR_NOTHING;
    uint32_t mask = exprs->node_table_len - 1, hash = hash_node(exprs, node);
    uint32_t at = hash & mask;
    for (; exprs->node_table[at].id; at = (at + 1) & mask) {
        if (exprs->node_table[at].hash != hash) continue;
        uint32_t id = exprs->node_table[at].id - 1;
        if (node_equals(exprs, &exprs->nodes[id], node)) return id;
    }
    if (!exprs_grow(exprs, &exprs->nodes, &exprs->nodes_capacity, exprs->num_nodes + 1,
                    sizeof *exprs->nodes)) {
        return EXPR_NOTHING;
    }
    uint32_t depth = node_depth(exprs, node);
    if (depth > EXPR_DEPTH_MAX) {
        return exprs_fail(exprs, ERR_CAPACITY, "the constraint nests more than %d operators",
                          EXPR_DEPTH_MAX);
    }
    unsigned flags = node_flags(exprs, node);
    if (flags & EXPR_NULLABLE) flags = EXPR_NULLABLE | EXPR_LIVE;
    node->flags = (uint8_t)flags;
    node->depth = (uint16_t)depth;
    CHECK(flag_live(flags) != (EXPR_LIVE | EXPR_DEAD), "kind=%u", node->kind);
    exprs->nodes[exprs->num_nodes] = *node;
    exprs->node_table[at] = (struct expr_entry){++exprs->num_nodes, hash};
    *is_new = true;
    return exprs->num_nodes - 1;
}

uint32_t exprs_intern(struct exprs *exprs, enum expr_kind kind, uint32_t a, uint32_t b,
                      uint32_t c) {
    struct expr_node node = {.kind = (uint8_t)kind, .a = a, .b = b, .c = c};
    bool is_new;
    return intern(exprs, &node, &is_new);
}

uint32_t exprs_intern_list(struct exprs *exprs, enum expr_kind kind, const uint32_t *list,
                           uint32_t len) {
    // The list lies behind the others already when it is looked up, and stays if it is new.
    if (!exprs_count(exprs, len) || !exprs_grow(exprs, &exprs->lists, &exprs->lists_capacity,
                                                exprs->lists_len + len, sizeof *exprs->lists)) {
        return EXPR_NOTHING;
    }
    memcpy(exprs->lists + exprs->lists_len, list, len * sizeof *list);
    struct expr_node node = {.kind = (uint8_t)kind, .a = exprs->lists_len, .b = len};
    bool is_new;
    uint32_t id = intern(exprs, &node, &is_new);
    if (is_new) exprs->lists_len += len;
    return id;
}

bool exprs_push(struct exprs *exprs, uint32_t e) {
    if (!exprs_grow(exprs, &exprs->scratch, &exprs->scratch_capacity, exprs->scratch_len + 1,
                    sizeof *exprs->scratch)) {
        return false;
    }
    exprs->scratch[exprs->scratch_len++] = e;
    return true;
}

// ---- sets and classes ----

// Gives a byte its own class.
static void split_byte(struct exprs *exprs, unsigned char byte) {
    uint8_t class = exprs->class_of[byte];
    uint32_t other = 0;
    while (other < 256 && (other == byte || exprs->class_of[other] != class)) other++;
    if (other == 256) return; // it has one
    exprs->class_byte[class] = (uint8_t)other;
    exprs->class_of[byte] = (uint8_t)exprs->num_classes;
    exprs->class_byte[exprs->num_classes++] = byte;
}

void exprs_split_classes(struct exprs *exprs, const struct expr_set *set) {
    unsigned char byte_alone;
    if (expr_set_is_single(set, &byte_alone)) {
        split_byte(exprs, byte_alone);
        return;
    }
    uint32_t inside[256] = {0}, total[256] = {0};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint8_t class = exprs->class_of[byte];
        total[class]++;
        inside[class] += expr_set_has(set, (unsigned char)byte);
    }
    uint8_t moved_to[256];
    uint32_t num_classes = exprs->num_classes;
    for (uint32_t i = 0; i < num_classes; i++) {
        moved_to[i] = (uint8_t)i;
        if (inside[i] && inside[i] < total[i]) moved_to[i] = (uint8_t)exprs->num_classes++;
    }
    if (num_classes == exprs->num_classes) return;
    for (uint32_t byte = 256; byte-- > 0;) { // the lowest byte of a class stands for it
        uint8_t *class = &exprs->class_of[byte];
        if (expr_set_has(set, (unsigned char)byte)) *class = moved_to[*class];
        exprs->class_byte[*class] = (uint8_t)byte;
    }
}

static uint32_t set_hash(const struct expr_set *set) {
    uint64_t hash = 0;
    for (size_t i = 0; i < 4; i++) hash = expr_mix(hash * 31 + set->bytes[i]);
    return (uint32_t)hash;
}

uint32_t exprs_intern_set(struct exprs *exprs, const struct expr_set *set, bool splits) {
    bool moved;
    if (!(set->bytes[0] | set->bytes[1] | set->bytes[2] | set->bytes[3])) return EXPR_NOTHING;
    if (!grow_table(exprs, &exprs->set_table, &exprs->set_table_len, exprs->num_sets,
                    sizeof *exprs->set_table, &moved)) {
        return EXPR_NOTHING;
    }
    uint32_t mask = exprs->set_table_len - 1;
    for (uint32_t id = 0; moved && id < exprs->num_sets; id++) {
        uint32_t at = set_hash(&exprs->sets[id]) & mask;
        while (exprs->set_table[at]) at = (at + 1) & mask;
        exprs->set_table[at] = id + 1;
    }
    uint32_t at = set_hash(set) & mask;
    for (; exprs->set_table[at]; at = (at + 1) & mask) {
        uint32_t id = exprs->set_table[at] - 1;
        if (memcmp(&exprs->sets[id], set, sizeof *set) == 0) {
            return exprs_intern(exprs, EXPR_KIND_BYTES, id, 0, 0);
        }
    }
    if (!exprs_grow(exprs, &exprs->sets, &exprs->sets_capacity, exprs->num_sets + 1,
                    sizeof *exprs->sets)) {
        return EXPR_NOTHING;
    }
    if (splits) exprs_split_classes(exprs, set);
    exprs->sets[exprs->num_sets] = *set;
    exprs->set_table[at] = ++exprs->num_sets;
    return exprs_intern(exprs, EXPR_KIND_BYTES, exprs->num_sets - 1, 0, 0);
}
