/* Derivatives, and whether an expression has any string.
 *
 * The derivative of e by a byte has the strings s with byte s in e (Brzozowski 1964). Of a list or
 * a complement it is the list or complement of derivatives, and r{m,n} leaves r{m-1,n-1} behind
 * r's. So an automaton needs no other form: an expression is its own state. */
#include <stdlib.h>
#include <string.h>

#include "structured/expr/expr_internal.h"

static const struct expr_node *node_of(const struct exprs *exprs, uint32_t e) {
    return &exprs->nodes[e];
}

// ---- memo ----

static bool memo_find(const struct exprs *exprs, uint64_t key, uint32_t *value) {
    if (!exprs->memo_len) return false;
    uint32_t mask = exprs->memo_len - 1;
    for (uint32_t at = (uint32_t)expr_mix(key) & mask;; at = (at + 1) & mask) {
        if (exprs->memo[at].key == key) {
            *value = exprs->memo[at].value;
            return true;
        }
        if (!exprs->memo[at].key) return false;
    }
}

static void memo_put(struct exprs *exprs, uint64_t key, uint32_t value) {
    enum { MEMO_MAX = 1 << 19 }; // entries; then it begins anew
    if (exprs->memo_count * 2 >= exprs->memo_len) {
        uint32_t old_len = exprs->memo_len;
        if (old_len >= MEMO_MAX) {
            memset(exprs->memo, 0, old_len * sizeof *exprs->memo);
        } else {
            uint32_t len = old_len;
            if (!exprs_grow(exprs, &exprs->memo, &len, old_len ? old_len * 2 : 256,
                            sizeof *exprs->memo)) {
                return;
            }
            // The entries are dropped, not moved: they are soon computed again.
            memset(exprs->memo, 0, len * sizeof *exprs->memo);
            exprs->memo_len = len;
        }
        exprs->memo_count = 0;
    }
    uint32_t mask = exprs->memo_len - 1, at = (uint32_t)expr_mix(key) & mask;
    while (exprs->memo[at].key) at = (at + 1) & mask;
    exprs->memo[at].key = key;
    exprs->memo[at].value = value;
    exprs->memo_count++;
}

// ---- JSON strings ----

static int hex_value(unsigned char byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

// The text behind the character in `e`.
static uint32_t derive_char(struct exprs *exprs, uint32_t e, uint32_t c) {
    struct expr_utf8_range range[EXPR_UTF8_RANGES_MAX];
    if (exprs_utf8_ranges(c, c, range) == 0) return EXPR_NOTHING;
    for (uint32_t i = 0; i < range[0].len; i++) e = exprs_derive(exprs, e, range[0].first[i]);
    return e;
}

static uint32_t derive_json(struct exprs *exprs, uint32_t inner, unsigned char byte) {
    if (byte == '\\') return exprs_intern(exprs, EXPR_KIND_JSON_ESCAPE, inner, 0, 0);
    if (byte < 0x20 || byte == '"') return EXPR_NOTHING;
    return expr_json_content(exprs, exprs_derive(exprs, inner, byte));
}

static const char escape_letters[] = "\"\\/bfnrt", escape_values[] = "\"\\/\b\f\n\r\t";

static uint32_t derive_json_escape(struct exprs *exprs, uint32_t inner, unsigned char byte) {
    if (byte == 'u') return exprs_intern(exprs, EXPR_KIND_JSON_HEX, inner, 0, 0);
    const char *letter = byte ? strchr(escape_letters, byte) : NULL;
    if (!letter) return EXPR_NOTHING;
    unsigned char value = (unsigned char)escape_values[letter - escape_letters];
    return expr_json_content(exprs, exprs_derive(exprs, inner, value));
}

static bool is_high_half(uint32_t unit) {
    return unit >= 0xd800 && unit < 0xdc00;
}
static bool is_low_half(uint32_t unit) {
    return unit >= 0xdc00 && unit < 0xe000;
}

static uint32_t derive_json_hex(struct exprs *exprs, struct expr_node node, unsigned char byte) {
    int digit = hex_value(byte);
    if (digit < 0) return EXPR_NOTHING;
    uint32_t high = node.c >> 16, unit = (node.c & 0xffff) << 4 | (uint32_t)digit;
    if (node.b < 3) {
        return exprs_intern(exprs, EXPR_KIND_JSON_HEX, node.a, node.b + 1, high << 16 | unit);
    }
    if (high) {
        if (!is_low_half(unit)) return EXPR_NOTHING;
        uint32_t c = 0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
        return expr_json_content(exprs, derive_char(exprs, node.a, c));
    }
    if (is_low_half(unit)) return EXPR_NOTHING;
    if (is_high_half(unit)) {
        return exprs_intern(exprs, EXPR_KIND_JSON_PAIR, node.a, 0, unit << 16);
    }
    return expr_json_content(exprs, derive_char(exprs, node.a, unit));
}

static uint32_t derive_json_pair(struct exprs *exprs, struct expr_node node, unsigned char byte) {
    if (node.b == 0) {
        return byte == '\\' ? exprs_intern(exprs, EXPR_KIND_JSON_PAIR, node.a, 1, node.c)
                            : EXPR_NOTHING;
    }
    return byte == 'u' ? exprs_intern(exprs, EXPR_KIND_JSON_HEX, node.a, 0, node.c) : EXPR_NOTHING;
}

// ---- operators ----

static uint32_t derive_list(struct exprs *exprs, struct expr_node node, unsigned char byte) {
    uint32_t base = exprs->scratch_len;
    bool is_alt = node.kind == EXPR_KIND_ALT;
    for (uint32_t i = 0; i < node.b; i++) {
        uint32_t e = exprs_derive(exprs, exprs->lists[node.a + i], byte);
        if (is_alt && e == EXPR_NOTHING) continue;
        if (!is_alt && e == EXPR_NOTHING) {
            exprs->scratch_len = base;
            return EXPR_NOTHING;
        }
        if (!exprs_push(exprs, e)) break;
    }
    return is_alt ? exprs_alt_scratch(exprs, base) : exprs_and_scratch(exprs, base);
}

// x y: behind x's first byte; and, where x may be empty, behind y's. A loop, as sequences are long.
static uint32_t derive_concat(struct exprs *exprs, uint32_t e, unsigned char byte) {
    uint32_t base = exprs->scratch_len;
    while (!exprs->err.status) {
        struct expr_node node = *node_of(exprs, e);
        bool is_concat = node.kind == EXPR_KIND_CONCAT;
        uint32_t head = exprs_derive(exprs, is_concat ? node.a : e, byte);
        if (is_concat) head = expr_concat(exprs, head, node.b);
        if (head != EXPR_NOTHING && !exprs_push(exprs, head)) break;
        if (!is_concat || !(node_of(exprs, node.a)->flags & EXPR_NULLABLE)) break;
        e = node.b;
    }
    if (exprs->scratch_len == base + 1) return exprs->scratch[--exprs->scratch_len];
    return exprs_alt_scratch(exprs, base);
}

static uint32_t derive_repeat(struct exprs *exprs, struct expr_node node, unsigned char byte) {
    uint32_t head = exprs_derive(exprs, node.a, byte);
    if (head == EXPR_NOTHING) return head;
    uint32_t min = node.b > 0 ? node.b - 1 : 0;
    uint32_t max = node.c == EXPR_FOREVER ? EXPR_FOREVER : node.c - 1;
    return expr_concat(exprs, head, expr_repeat(exprs, node.a, min, max));
}

static uint32_t derive(struct exprs *exprs, uint32_t e, unsigned char byte) {
    struct expr_node node = *node_of(exprs, e);
    switch ((enum expr_kind)node.kind) {
    case EXPR_KIND_NOTHING:
    case EXPR_KIND_EPSILON:
        return EXPR_NOTHING;
    case EXPR_KIND_BYTES:
        return expr_set_has(&exprs->sets[node.a], byte) ? EXPR_EPSILON : EXPR_NOTHING;
    case EXPR_KIND_CONCAT:
        return derive_concat(exprs, e, byte);
    case EXPR_KIND_ALT:
    case EXPR_KIND_AND:
        return derive_list(exprs, node, byte);
    case EXPR_KIND_NOT:
        return expr_not(exprs, exprs_derive(exprs, node.a, byte));
    case EXPR_KIND_REPEAT:
        return derive_repeat(exprs, node, byte);
    case EXPR_KIND_JSON:
        return derive_json(exprs, node.a, byte);
    case EXPR_KIND_JSON_ESCAPE:
        return derive_json_escape(exprs, node.a, byte);
    case EXPR_KIND_JSON_HEX:
        return derive_json_hex(exprs, node, byte);
    case EXPR_KIND_JSON_PAIR:
        return derive_json_pair(exprs, node, byte);
    }
    return EXPR_NOTHING;
}

uint32_t exprs_derive(struct exprs *exprs, uint32_t e, unsigned char byte) {
    if (exprs->err.status) return EXPR_NOTHING;
    const struct expr_node *node = node_of(exprs, e);
    if (node->kind <= EXPR_KIND_BYTES) return derive(exprs, e, byte);
    uint64_t key = ((uint64_t)e << 8 | exprs->class_byte[exprs->class_of[byte]]) + 1;
    uint32_t result;
    if (memo_find(exprs, key, &result)) return result;
    if (!exprs_count(exprs, 1)) return EXPR_NOTHING;
    result = derive(exprs, e, byte);
    if (exprs->err.status) return EXPR_NOTHING;
    memo_put(exprs, key, result);
    return result;
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

// Goes through all derivatives of `e` until one is known to be live. When none is, all are dead.
static bool search_live(struct exprs *exprs, uint32_t e, struct search *search) {
    if (!search_add(exprs, search, e, 0)) return false;
    for (uint32_t i = 0; i < search->len; i++) {
        for (uint32_t k = 0; k < exprs->num_classes; k++) {
            uint32_t from = search->list[i].e;
            uint32_t next = exprs_derive(exprs, from, exprs->class_byte[k]);
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

// ---- counters ----

static uint32_t forget(struct exprs *exprs, uint32_t e, uint32_t bytes, uint32_t depth);

static uint32_t forget_list(struct exprs *exprs, struct expr_node node, uint32_t bytes,
                            uint32_t depth) {
    uint32_t base = exprs->scratch_len;
    for (uint32_t i = 0; i < node.b; i++) {
        uint32_t e = forget(exprs, exprs->lists[node.a + i], bytes, depth + 1);
        if (!exprs_push(exprs, e)) break;
    }
    return exprs_alt_scratch(exprs, base);
}

// Not inside AND and NOT: there, whether any string is left depends on the numbers.
static uint32_t forget(struct exprs *exprs, uint32_t e, uint32_t bytes, uint32_t depth) {
    enum { DEPTH_MAX = 16 }; // further inside counters stay, which is never wrong
    struct expr_node node = *node_of(exprs, e);
    if (depth > DEPTH_MAX || !exprs_count(exprs, 1)) return e;
    switch ((enum expr_kind)node.kind) {
    case EXPR_KIND_CONCAT: {
        uint32_t head = forget(exprs, node.a, bytes, depth);
        uint32_t tail = forget(exprs, node.b, bytes, depth + 1);
        return head == node.a && tail == node.b ? e : expr_concat(exprs, head, tail);
    }
    case EXPR_KIND_ALT:
        return forget_list(exprs, node, bytes, depth);
    case EXPR_KIND_REPEAT: {
        uint32_t body = forget(exprs, node.a, bytes, depth + 1);
        uint32_t min = node.b > bytes ? bytes + 1 : node.b;
        uint32_t max = node.c > bytes ? EXPR_FOREVER : node.c;
        return expr_repeat(exprs, body, min, max);
    }
    case EXPR_KIND_JSON: {
        uint32_t inner = forget(exprs, node.a, bytes, depth + 1);
        return inner == node.a ? e : expr_json_content(exprs, inner);
    }
    case EXPR_KIND_JSON_ESCAPE:
    case EXPR_KIND_JSON_HEX:
    case EXPR_KIND_JSON_PAIR: {
        uint32_t inner = forget(exprs, node.a, bytes, depth + 1);
        return exprs_intern(exprs, node.kind, inner, node.b, node.c);
    }
    case EXPR_KIND_NOTHING:
    case EXPR_KIND_EPSILON:
    case EXPR_KIND_BYTES:
    case EXPR_KIND_AND:
    case EXPR_KIND_NOT:
        return e;
    }
    return e;
}

uint32_t exprs_forget_counters(struct exprs *exprs, uint32_t e, uint32_t bytes) {
    return forget(exprs, e, bytes, 0);
}
