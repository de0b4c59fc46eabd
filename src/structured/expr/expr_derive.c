/* Derivatives.
 *
 * The derivative of e by a byte has the strings s with byte s in e (Brzozowski 1964). Of a list or
 * a complement it is the list or complement of derivatives, and r{m,n} leaves r{m-1,n-1} behind
 * r's. So an automaton needs no other form: an expression is its own state. */
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"
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
    int digit = c_locale_hex_value(byte);
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
