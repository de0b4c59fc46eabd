/* Whether an expression has any string, and which bytes have the same derivative. */
#include <stdlib.h>
#include <string.h>

#include "structured/expr/expr_internal.h"

static const struct expr_node *node_of(const struct exprs *exprs, uint32_t e) {
    return &exprs->nodes[e];
}

// ---- which bytes differ ----

void exprs_sign(struct exprs *exprs, uint32_t e, uint64_t *signatures) {
    for (; exprs_count(exprs, 1);) {
        struct expr_node node = exprs->nodes[e];
        switch ((enum expr_kind)node.kind) {
        case EXPR_KIND_NOTHING:
        case EXPR_KIND_EPSILON:
            return;
        case EXPR_KIND_BYTES: {
            uint64_t mark = expr_mix(node.a + 1);
            const struct expr_set *set = &exprs->sets[node.a];
            unsigned char byte;
            if (expr_set_is_single(set, &byte)) {
                signatures[exprs->class_of[byte]] += mark;
                return;
            }
            for (uint32_t k = 0; k < exprs->num_classes; k++) {
                if (expr_set_has(set, exprs->class_byte[k])) signatures[k] += mark;
            }
            return;
        }
        case EXPR_KIND_CONCAT:
            exprs_sign(exprs, node.a, signatures);
            if (!expr_is_nullable(exprs, node.a)) return;
            e = node.b;
            continue;
        case EXPR_KIND_ALT:
        case EXPR_KIND_AND:
            for (uint32_t i = 0; i < node.b; i++) {
                exprs_sign(exprs, exprs->lists[node.a + i], signatures);
            }
            return;
        case EXPR_KIND_JSON:
            signatures[exprs->class_of['"']] += expr_mix(~UINT64_C(1));
            signatures[exprs->class_of['\\']] += expr_mix(~UINT64_C(2));
            for (uint32_t k = 0; k < exprs->num_classes; k++) {
                if (exprs->class_byte[k] < 0x20) signatures[k] += expr_mix(~UINT64_C(3));
            }
            e = node.a;
            continue;
        case EXPR_KIND_NOT:
        case EXPR_KIND_REPEAT:
            e = node.a;
            continue;
        case EXPR_KIND_JSON_ESCAPE:
        case EXPR_KIND_JSON_HEX:
        case EXPR_KIND_JSON_PAIR:
            for (const char *p = "\"\\/bfnrtu0123456789abcdefABCDEF"; *p; p++) {
                signatures[exprs->class_of[(unsigned char)*p]] += expr_mix(~(uint64_t)(4 + *p));
            }
            return;
        }
    }
}

// ---- whether there is some string ----

static bool has_range(struct exprs *exprs, uint32_t e, const struct expr_utf8_range *range,
                      uint32_t at) {
    if (at >= range->len || at >= sizeof range->first) return exprs_is_live(exprs, e);
    bool seen[256] = {false};
    for (uint32_t byte = range->first[at]; byte <= range->last[at]; byte++) {
        uint8_t class = exprs->class_of[byte];
        if (seen[class]) continue;
        seen[class] = true;
        uint32_t next = exprs_derive(exprs, e, (unsigned char)byte);
        if (next != EXPR_NOTHING && has_range(exprs, next, range, at + 1)) return true;
    }
    return false;
}

bool exprs_has_char(struct exprs *exprs, uint32_t e, uint32_t first, uint32_t last) {
    struct expr_utf8_range ranges[EXPR_UTF8_RANGES_MAX];
    uint32_t num_ranges = exprs_utf8_ranges(first, last, ranges);
    for (uint32_t i = 0; i < num_ranges; i++) {
        if (has_range(exprs, e, &ranges[i], 0)) return true;
    }
    return false;
}

// Whether the escape that has begun can end. Looks at the characters that it may still become, not
// at the 16^4 ways to write digits.
static bool escape_is_live(struct exprs *exprs, struct expr_node node) {
    if (node.kind == EXPR_KIND_JSON_ESCAPE) {
        return exprs_has_char(exprs, node.a, 0, 0x10ffff);
    }
    uint32_t high = node.c >> 16, value = node.c & 0xffff;
    uint32_t shift = node.kind == EXPR_KIND_JSON_HEX ? 4 * (4 - node.b) : 16;
    uint32_t first = shift == 16 ? 0 : value << shift;
    uint32_t last = shift == 16 ? 0xffff : first | ((1u << shift) - 1);
    if (high) {
        if (last < 0xdc00 || first > 0xdfff) return false;
        uint32_t low_first = first < 0xdc00 ? 0xdc00 : first,
                 low_last = last > 0xdfff ? 0xdfff : last;
        uint32_t start = 0x10000 + ((high - 0xd800) << 10);
        return exprs_has_char(exprs, node.a, start + low_first - 0xdc00, start + low_last - 0xdc00);
    }
    if (exprs_has_char(exprs, node.a, first, last)) return true; // leaves surrogates out
    if (last < 0xd800 || first > 0xdbff) return false;
    uint32_t high_first = first < 0xd800 ? 0xd800 : first,
             high_last = last > 0xdbff ? 0xdbff : last;
    return exprs_has_char(exprs, node.a, 0x10000 + ((high_first - 0xd800) << 10),
                          0x10000 + ((high_last - 0xd800) << 10) + 0x3ff);
}

static bool is_escape(const struct expr_node *node) {
    return node->kind >= EXPR_KIND_JSON_ESCAPE;
}

// LIVE, DEAD or 0, as far as that is known without a search.
static unsigned known(struct exprs *exprs, uint32_t e) {
    struct expr_node node = *node_of(exprs, e);
    unsigned flags = node.flags & (EXPR_LIVE | EXPR_DEAD);
    if (!flags && is_escape(&node)) {
        flags = escape_is_live(exprs, node) ? EXPR_LIVE : EXPR_DEAD;
    } else if (!flags && node.kind == EXPR_KIND_JSON) {
        // Each text of `a` has a spelling.
        flags = exprs_is_live(exprs, node.a) ? EXPR_LIVE : EXPR_DEAD;
    } else if (!flags && node.kind == EXPR_KIND_CONCAT) {
        flags = EXPR_LIVE;
        for (uint32_t at = e; flags == EXPR_LIVE;) {
            struct expr_node part = *node_of(exprs, at);
            bool is_concat = part.kind == EXPR_KIND_CONCAT;
            if (!exprs_is_live(exprs, is_concat ? part.a : at)) flags = EXPR_DEAD;
            if (!is_concat) break;
            at = part.b;
        }
    } else if (!flags && node.kind == EXPR_KIND_REPEAT) {
        flags = exprs_is_live(exprs, node.a) ? EXPR_LIVE : EXPR_DEAD;
    } else if (!flags && node.kind == EXPR_KIND_ALT) {
        flags = EXPR_DEAD;
        for (uint32_t i = 0; i < node.b && flags == EXPR_DEAD; i++) {
            if (exprs_is_live(exprs, exprs->lists[node.a + i])) flags = EXPR_LIVE;
        }
    }
    if (exprs->err.status) return EXPR_DEAD;
    exprs->nodes[e].flags |= (uint8_t)flags;
    return flags;
}

// An expression that the search has reached, and the one that it came from.
struct reached {
    uint32_t e, from;
};

struct search {
    struct reached *list; // [len]
    uint32_t len, capacity;
    uint32_t *seen; // [seen_len], places in `list` + 1
    uint32_t seen_len;
};

static bool search_add(struct exprs *exprs, struct search *search, uint32_t e, uint32_t from) {
    if ((search->len + 1) * 2 > search->seen_len) {
        if (!exprs_grow(exprs, &search->seen, &search->seen_len, search->seen_len * 2 + 64,
                        sizeof *search->seen)) {
            return false;
        }
        memset(search->seen, 0, search->seen_len * sizeof *search->seen);
        for (uint32_t i = 0; i < search->len; i++) {
            uint32_t at = (uint32_t)expr_mix(search->list[i].e) & (search->seen_len - 1);
            while (search->seen[at]) at = (at + 1) & (search->seen_len - 1);
            search->seen[at] = i + 1;
        }
    }
    uint32_t at = (uint32_t)expr_mix(e) & (search->seen_len - 1);
    for (; search->seen[at]; at = (at + 1) & (search->seen_len - 1)) {
        if (search->list[search->seen[at] - 1].e == e) return true;
    }
    if (!exprs_grow(exprs, &search->list, &search->capacity, search->len + 1,
                    sizeof *search->list)) {
        return false;
    }
    search->list[search->len++] = (struct reached){.e = e, .from = from};
    search->seen[at] = search->len;
    return true;
}

static void mark_path(struct exprs *exprs, const struct search *search, uint32_t at) {
    for (;; at = search->list[at].from) {
        exprs->nodes[search->list[at].e].flags |= EXPR_LIVE;
        if (at == 0) return;
    }
}

// One class of bytes for each group of classes that the sets in `e` do not tell apart: all bytes of
// a group lead to the same expression.
static uint32_t first_classes(struct exprs *exprs, uint32_t e, uint8_t classes[256]) {
    uint64_t signatures[256] = {0};
    uint16_t table[512] = {0}; // classes + 1
    uint32_t len = 0;
    exprs_sign(exprs, e, signatures);
    for (uint32_t k = 0; k < exprs->num_classes; k++) {
        uint32_t at = (uint32_t)expr_mix(signatures[k]) & 511;
        while (table[at] && signatures[table[at] - 1] != signatures[k]) at = (at + 1) & 511;
        if (table[at]) continue;
        table[at] = (uint16_t)(k + 1);
        classes[len++] = (uint8_t)k;
    }
    return len;
}

// Goes through all derivatives of `e` until one is known to be live. When none is, all are dead.
static bool search_live(struct exprs *exprs, uint32_t e, struct search *search) {
    if (!search_add(exprs, search, e, 0)) return false;
    for (uint32_t i = 0; i < search->len; i++) {
        uint8_t classes[256];
        uint32_t from = search->list[i].e;
        uint32_t num_classes = first_classes(exprs, from, classes);
        for (uint32_t k = 0; k < num_classes; k++) {
            uint32_t next = exprs_derive(exprs, from, exprs->class_byte[classes[k]]);
            if (exprs->err.status) return false;
            if (next == EXPR_NOTHING) continue;
            bool is_and_or_not = node_of(exprs, next)->kind == EXPR_KIND_AND ||
                                 node_of(exprs, next)->kind == EXPR_KIND_NOT;
            unsigned flags = is_and_or_not ? node_of(exprs, next)->flags & (EXPR_LIVE | EXPR_DEAD)
                                           : known(exprs, next);
            if (flags == EXPR_LIVE) {
                mark_path(exprs, search, i);
                return true;
            }
            if (flags != EXPR_DEAD && !search_add(exprs, search, next, i)) return false;
        }
    }
    for (uint32_t i = 0; i < search->len && !exprs->err.status; i++) {
        exprs->nodes[search->list[i].e].flags |= EXPR_DEAD;
    }
    return false;
}

bool exprs_is_live(struct exprs *exprs, uint32_t e) {
    const struct expr_node *node = node_of(exprs, e);
    unsigned flags = node->flags & (EXPR_LIVE | EXPR_DEAD);
    if (!flags && node->kind != EXPR_KIND_AND && node->kind != EXPR_KIND_NOT) {
        flags = known(exprs, e);
    }
    if (flags || exprs->err.status) return flags == EXPR_LIVE && !exprs->err.status;
    struct search search = {0};
    bool live = search_live(exprs, e, &search);
    free(search.list);
    free(search.seen);
    exprs->bytes -= search.capacity * sizeof *search.list + search.seen_len * sizeof *search.seen;
    return live && !exprs->err.status;
}

// ---- questions ----

bool expr_is_nullable(const struct exprs *exprs, uint32_t e) {
    return (node_of(exprs, e)->flags & EXPR_NULLABLE) != 0;
}

enum status expr_is_nothing(struct exprs *exprs, uint32_t e, bool *nothing, struct err *err) {
    exprs_allow(exprs, exprs->steps_max);
    *nothing = !exprs_is_live(exprs, e);
    return exprs_status(exprs, err);
}

enum status expr_matches(struct exprs *exprs, uint32_t e, const void *text, size_t len,
                         bool *matches, struct err *err) {
    const unsigned char *bytes = text;
    exprs_allow(exprs, exprs->steps_max);
    for (size_t i = 0; i < len && e != EXPR_NOTHING; i++) e = exprs_derive(exprs, e, bytes[i]);
    *matches = expr_is_nullable(exprs, e);
    return exprs_status(exprs, err);
}

// ---- length ----

static uint32_t shortest(const struct exprs *exprs, uint32_t e, uint32_t most, uint32_t *nodes) {
    uint64_t sum = 0;
    for (;;) {
        struct expr_node node = *node_of(exprs, e);
        if (!*nodes || sum >= most) break;
        --*nodes;
        switch ((enum expr_kind)node.kind) {
        case EXPR_KIND_CONCAT:
            sum += shortest(exprs, node.a, most, nodes);
            e = node.b;
            continue;
        case EXPR_KIND_ALT: {
            uint32_t least = most;
            for (uint32_t i = 0; i < node.b && least; i++) {
                least = shortest(exprs, exprs->lists[node.a + i], least, nodes);
            }
            sum += least;
            break;
        }
        case EXPR_KIND_REPEAT:
            sum += node.b ? (uint64_t)node.b * shortest(exprs, node.a, most, nodes) : 0;
            break;
        case EXPR_KIND_BYTES:
        case EXPR_KIND_JSON_ESCAPE:
        case EXPR_KIND_JSON_HEX:
        case EXPR_KIND_JSON_PAIR:
            sum += 1;
            break;
        case EXPR_KIND_NOTHING:
        case EXPR_KIND_EPSILON:
        case EXPR_KIND_AND:
        case EXPR_KIND_NOT:
        case EXPR_KIND_JSON:
            break;
        }
        break;
    }
    return sum < most ? (uint32_t)sum : most;
}

uint32_t exprs_shortest(const struct exprs *exprs, uint32_t e, uint32_t most) {
    uint32_t nodes = 1000;
    return shortest(exprs, e, most, &nodes);
}
