/* The nodes of expressions: shared by the files expr*.c and, for derivatives, the automaton. */
#ifndef STRUCTURED_EXPR_INTERNAL_H
#define STRUCTURED_EXPR_INTERNAL_H

#include "structured/expr/expr.h"

enum expr_kind {
    EXPR_KIND_NOTHING,
    EXPR_KIND_EPSILON,
    EXPR_KIND_BYTES, // one byte of set a
    EXPR_KIND_CONCAT, // a, which is no CONCAT, then b
    EXPR_KIND_ALT, // lists[a .. a + b), ascending
    EXPR_KIND_AND, // lists[a .. a + b), ascending
    EXPR_KIND_NOT, // not a
    EXPR_KIND_REPEAT, // a, b to c times
    EXPR_KIND_JSON, // JSON text of a
    // Inside an escape. c: the first half of a surrogate pair << 16 | the digits' value so far.
    EXPR_KIND_JSON_ESCAPE, // behind the backslash, a follows
    EXPR_KIND_JSON_HEX, // behind \u and b digits
    EXPR_KIND_JSON_PAIR, // the second half of a pair, from its backslash (b = 0) or its u (b = 1)
};

enum {
    EXPR_NULLABLE = 1, // has the empty string
    EXPR_LIVE = 2, // has some string
    EXPR_DEAD = 4, // has none; neither bit: not known yet
    EXPR_DEPTH_MAX = 500, // nested operators
};

struct expr_node {
    uint8_t kind, flags;
    uint16_t depth; // of nested operators, without the tails of CONCAT
    uint32_t a, b, c;
};

struct expr_set {
    uint64_t bytes[4];
};

struct exprs {
    struct expr_node *nodes; // [num_nodes]
    uint32_t num_nodes, nodes_capacity;
    uint32_t *lists; // [lists_len]
    uint32_t lists_len, lists_capacity;
    struct expr_set *sets; // [num_sets], different ones
    uint32_t num_sets, sets_capacity;
    // Open addressing; id 0 is free.
    struct expr_entry {
        uint32_t id; // a node + 1
        uint32_t hash;
    } * node_table; // [node_table_len]
    uint32_t node_table_len;
    uint32_t *set_table; // [set_table_len], set ids + 1
    uint32_t set_table_len;

    // Derivatives that are known: key = expression << 8 | byte, + 1; 0 is free.
    struct expr_memo {
        uint64_t key;
        uint32_t value;
    } * memo; // [memo_len]
    uint32_t memo_len, memo_count;

    // Bytes that no set tells apart have one class. A class has one byte that stands for all.
    uint32_t byte_exprs[256]; // the expression of each single byte; 0: not made yet
    uint8_t class_of[256];
    uint8_t class_byte[256]; // [num_classes]
    uint32_t num_classes;
    bool has_json; // the bytes of escapes have their own classes

    uint32_t *scratch; // [scratch_len], a stack of lists under construction
    uint32_t scratch_len, scratch_capacity;

    uint32_t nested_joins; // of alternatives with a common beginning

    size_t bytes, bytes_max;
    uint64_t steps_left, steps_max;
    bool out_of_steps; // that is the error
    struct err err; // status OK: none
};

// Counts `steps` and returns whether the limit still allows them; if not the error is set.
bool exprs_count(struct exprs *exprs, uint64_t steps);
// Gives a question or a step of the automaton its own number of steps.
static inline void exprs_allow(struct exprs *exprs, uint64_t steps) {
    exprs->steps_left = steps;
}
// Reserves `need` elements of `size` bytes in *data. false: the error is set.
bool exprs_grow(struct exprs *exprs, void *data, uint32_t *capacity, uint32_t need, size_t size);

// The node with these parts, made if there is none.
uint32_t exprs_intern(struct exprs *exprs, enum expr_kind kind, uint32_t a, uint32_t b, uint32_t c);
// ALT or AND of the list, which is ascending, without repeats, and has at least two elements.
uint32_t exprs_intern_list(struct exprs *exprs, enum expr_kind kind, const uint32_t *list,
                           uint32_t len);
// `splits` false: the set is made of whole classes.
uint32_t exprs_intern_set(struct exprs *exprs, const struct expr_set *set, bool splits);
// Gives the bytes of the set their own classes.
void exprs_split_classes(struct exprs *exprs, const struct expr_set *set);
// Pushes an expression on the scratch stack.
bool exprs_push(struct exprs *exprs, uint32_t e);

// The expressions whose list is scratch[base ..]; pops them.
uint32_t exprs_alt_scratch(struct exprs *exprs, uint32_t base);
uint32_t exprs_and_scratch(struct exprs *exprs, uint32_t base);

// What may follow `byte`: the strings s with byte s in `e`.
uint32_t exprs_derive(struct exprs *exprs, uint32_t e, unsigned char byte);
// Adds to the signature of each class which sets, of those that decide about the next byte of `e`,
// it is in. Classes with equal signatures lead to equal sets of strings, so few derivatives are
// made.
void exprs_sign(struct exprs *exprs, uint32_t e, uint64_t *signatures);
// Whether `e` has some string. Counts steps; false after an error.
bool exprs_is_live(struct exprs *exprs, uint32_t e);
// Whether some character from first to last can follow next in `e`, a set of texts.
bool exprs_has_char(struct exprs *exprs, uint32_t e, uint32_t first, uint32_t last);
// The expression with each counter above `bytes` forgotten: up to that many bytes, both have the
// same beginnings.
uint32_t exprs_forget_counters(struct exprs *exprs, uint32_t e, uint32_t bytes);

// No string of `e` is shorter. Not always the most: it looks at a limited number of nodes, and not
// inside of intersections and complements. At most `most`.
uint32_t exprs_shortest(const struct exprs *exprs, uint32_t e, uint32_t most);

// Calls `take` for each sequence of byte ranges that encodes the characters first to last.
struct expr_utf8_range {
    unsigned char first[4], last[4];
    uint32_t len;
};
enum { EXPR_UTF8_RANGES_MAX = 24 };
// Splits a range of characters into sequences of byte ranges. Returns their number.
uint32_t exprs_utf8_ranges(uint32_t first, uint32_t last,
                           struct expr_utf8_range out[EXPR_UTF8_RANGES_MAX]);

static inline bool expr_set_has(const struct expr_set *set, unsigned char byte) {
    return set->bytes[byte >> 6] >> (byte & 63) & 1;
}
static inline void expr_set_add(struct expr_set *set, unsigned char byte) {
    set->bytes[byte >> 6] |= UINT64_C(1) << (byte & 63);
}
// Whether the set has one byte.
static inline bool expr_set_is_single(const struct expr_set *set, unsigned char *byte) {
    unsigned found = 0;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word = set->bytes[i];
        if (!word) continue;
        if (found++ || (word & (word - 1))) return false;
        *byte = (unsigned char)(i * 64 + (unsigned)__builtin_ctzll(word));
    }
    return found == 1;
}
// A step of splitmix64. Its first line matters where results are added: without it, twice the
// result of a small x is often the result of 2 * x.
static inline uint64_t expr_mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
