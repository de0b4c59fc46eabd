/* The operators. Each puts its operands into a normal form, so that the derivatives of an
 * expression are few: lists are flat and ascending, sequences lean to the right, and repetitions of
 * the same expression are joined. */
#include <string.h>

#include "structured/expr/expr_internal.h"

static const struct expr_node *node_of(const struct exprs *exprs, uint32_t e) {
    return &exprs->nodes[e];
}

// Puts the lists of nodes of `kind` in scratch[base ..] in their place, then sorts without repeats.
static bool flatten(struct exprs *exprs, enum expr_kind kind, uint32_t base) {
    uint32_t end = exprs->scratch_len;
    for (uint32_t i = base; i < end; i++) {
        struct expr_node node = *node_of(exprs, exprs->scratch[i]);
        if (node.kind != kind) continue;
        if (!exprs_count(exprs, node.b)) return false;
        exprs->scratch[i] = exprs->lists[node.a];
        for (uint32_t k = 1; k < node.b; k++) {
            if (!exprs_push(exprs, exprs->lists[node.a + k])) return false;
        }
    }
    return true;
}

// Sorts by merging, with the memory behind the list on the scratch stack.
static bool sort_scratch(struct exprs *exprs, uint32_t base) {
    uint32_t len = exprs->scratch_len - base;
    if (len < 2) return true;
    if (len <= 16) {
        uint32_t *list = exprs->scratch + base;
        for (uint32_t i = 1; i < len; i++) {
            uint32_t e = list[i], k = i;
            for (; k > 0 && list[k - 1] > e; k--) list[k] = list[k - 1];
            list[k] = e;
        }
        return exprs_count(exprs, len);
    }
    if (!exprs_grow(exprs, &exprs->scratch, &exprs->scratch_capacity, exprs->scratch_len + len,
                    sizeof *exprs->scratch)) {
        return false;
    }
    uint32_t *from = exprs->scratch + base, *to = from + len;
    uint64_t steps = len;
    for (uint32_t width = 1; width < len; width *= 2, steps += len) {
        for (uint32_t start = 0; start < len; start += 2 * width) {
            uint32_t mid = start + width < len ? start + width : len;
            uint32_t end = mid + width < len ? mid + width : len;
            uint32_t i = start, k = mid;
            for (uint32_t out = start; out < end; out++) {
                to[out] = k == end || (i < mid && from[i] <= from[k]) ? from[i++] : from[k++];
            }
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != exprs->scratch + base) memcpy(to, from, len * sizeof *to);
    return exprs_count(exprs, steps);
}

static void remove_repeats(struct exprs *exprs, uint32_t base) {
    uint32_t *list = exprs->scratch, out = base;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        if (out == base || list[out - 1] != list[i]) list[out++] = list[i];
    }
    exprs->scratch_len = out;
}

// Joins the sets of bytes in the ascending list into one. *changed: the order may be lost.
static bool join_sets(struct exprs *exprs, uint32_t base, bool is_alt, bool *changed) {
    *changed = false;
    struct expr_set joined = {{0}};
    uint32_t out = base, num_sets = 0;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        const struct expr_node *node = node_of(exprs, exprs->scratch[i]);
        if (node->kind != EXPR_KIND_BYTES) continue;
        const struct expr_set *set = &exprs->sets[node->a];
        for (size_t k = 0; k < 4; k++) {
            if (num_sets == 0 || is_alt) {
                joined.bytes[k] |= set->bytes[k];
            } else {
                joined.bytes[k] &= set->bytes[k];
            }
        }
        num_sets++;
    }
    if (num_sets < 2) return true;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        uint32_t e = exprs->scratch[i];
        if (node_of(exprs, e)->kind != EXPR_KIND_BYTES) exprs->scratch[out++] = e;
    }
    exprs->scratch_len = out;
    *changed = true;
    return exprs_push(exprs, exprs_intern_set(exprs, &joined, false)) && !exprs->err.status;
}

// ---- alternatives ----

struct repeat_parts {
    uint32_t body, min, max, tail;
};

// Reads r{min,max} and r{min,max} tail.
static bool read_repeat(const struct exprs *exprs, uint32_t e, struct repeat_parts *parts) {
    const struct expr_node *node = node_of(exprs, e);
    parts->tail = EXPR_EPSILON;
    if (node->kind == EXPR_KIND_CONCAT) {
        parts->tail = node->b;
        node = node_of(exprs, node->a);
    }
    parts->body = node->a;
    parts->min = node->b;
    parts->max = node->c;
    return node->kind == EXPR_KIND_REPEAT;
}

// r{1,4} x | r{3,7} x is r{1,7} x. Without this, a text with many places where a bounded repetition
// may have begun would need as many alternatives. Marks what is dropped with EXPR_NOTHING.
static bool join_repeats(struct exprs *exprs, uint32_t base, bool *changed) {
    enum { PAIRS_MAX = 64 }; // a longer list is compared with its last ones only
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        struct repeat_parts x, y;
        if (!read_repeat(exprs, exprs->scratch[i], &x)) continue;
        for (uint32_t k = i; k-- > base && i - k <= PAIRS_MAX;) {
            if (!read_repeat(exprs, exprs->scratch[k], &y)) continue;
            if (x.body != y.body || x.tail != y.tail) continue;
            if (!exprs_count(exprs, 1)) return false;
            bool apart = (y.max != EXPR_FOREVER && x.min > y.max + 1) ||
                         (x.max != EXPR_FOREVER && y.min > x.max + 1);
            if (apart) continue;
            x.min = x.min < y.min ? x.min : y.min;
            x.max = x.max > y.max ? x.max : y.max; // EXPR_FOREVER is the largest
            uint32_t joined = expr_concat(exprs, expr_repeat(exprs, x.body, x.min, x.max), x.tail);
            exprs->scratch[i] = joined;
            exprs->scratch[k] = EXPR_NOTHING;
            *changed = true;
        }
    }
    return !exprs->err.status;
}

static uint32_t head_of(const struct exprs *exprs, uint32_t e) {
    const struct expr_node *node = node_of(exprs, e);
    return node->kind == EXPR_KIND_CONCAT ? node->a : EXPR_NOTHING;
}

// Whether two alternatives begin with the same expression. Takes linear time.
static bool has_common_head(struct exprs *exprs, uint32_t base, bool *found) {
    uint32_t len = exprs->scratch_len - base, table_len = 4;
    *found = false;
    while (table_len < len * 2) table_len *= 2;
    if (!exprs_count(exprs, len) ||
        !exprs_grow(exprs, &exprs->scratch, &exprs->scratch_capacity,
                    exprs->scratch_len + table_len, sizeof *exprs->scratch)) {
        return false;
    }
    uint32_t *table = exprs->scratch + exprs->scratch_len;
    memset(table, 0, table_len * sizeof *table);
    for (uint32_t i = base; i < base + len && !*found; i++) {
        uint32_t head = head_of(exprs, exprs->scratch[i]);
        if (head == EXPR_NOTHING) continue;
        uint32_t at = (uint32_t)expr_mix(head) & (table_len - 1);
        while (table[at] && table[at] != head) at = (at + 1) & (table_len - 1);
        *found = table[at] == head;
        table[at] = head;
    }
    return true;
}

// x y | x z is x (y | z). So the keys of an object are a tree of their letters, and only one
// alternative is left where their beginning is common. Marks what is dropped with EXPR_NOTHING.
static bool join_heads(struct exprs *exprs, uint32_t base, bool *changed) {
    enum { NESTED_MAX = 200, LEN_MAX = 5000 }; // deeper common beginnings stay apart
    uint32_t end = exprs->scratch_len;
    bool found = false;
    if (end - base < 2 || exprs->nested_joins >= NESTED_MAX || end - base > LEN_MAX) return true;
    if (!has_common_head(exprs, base, &found)) return false;
    if (!found) return true;
    exprs->nested_joins++;
    for (uint32_t i = base; i < end; i++) {
        uint32_t head = head_of(exprs, exprs->scratch[i]);
        if (head == EXPR_NOTHING || !exprs_count(exprs, end - i)) continue;
        for (uint32_t k = i; k < end; k++) {
            uint32_t e = exprs->scratch[k];
            if (head_of(exprs, e) != head) continue;
            if (!exprs_push(exprs, node_of(exprs, e)->b)) break;
            if (k > i) exprs->scratch[k] = EXPR_NOTHING;
        }
        if (exprs->scratch_len == end + 1) {
            exprs->scratch_len = end;
            continue;
        }
        uint32_t joined = expr_concat(exprs, head, exprs_alt_scratch(exprs, end));
        exprs->scratch[i] = joined;
        *changed = true;
    }
    exprs->nested_joins--;
    return !exprs->err.status;
}

// Drops what adds nothing. *all: the list has every string.
static void drop_needless(struct exprs *exprs, uint32_t base, bool *all) {
    bool others_nullable = false;
    *all = false;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        uint32_t e = exprs->scratch[i];
        if (e == EXPR_ANYTHING) *all = true;
        if (e != EXPR_EPSILON) {
            others_nullable |= (node_of(exprs, e)->flags & EXPR_NULLABLE) != 0;
        }
    }
    uint32_t out = base;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        uint32_t e = exprs->scratch[i];
        if (e == EXPR_NOTHING || (e == EXPR_EPSILON && others_nullable)) continue;
        exprs->scratch[out++] = e;
    }
    exprs->scratch_len = out;
}

static bool normalise_alt(struct exprs *exprs, uint32_t base, bool *all) {
    bool changed = false;
    if (!flatten(exprs, EXPR_KIND_ALT, base) || !sort_scratch(exprs, base)) return false;
    remove_repeats(exprs, base);
    if (!join_sets(exprs, base, true, &changed)) return false;
    if (!join_repeats(exprs, base, &changed)) return false;
    if (!join_heads(exprs, base, &changed)) return false;
    drop_needless(exprs, base, all);
    if (changed && !sort_scratch(exprs, base)) return false;
    remove_repeats(exprs, base);
    return true;
}

uint32_t exprs_alt_scratch(struct exprs *exprs, uint32_t base) {
    bool all = false;
    uint32_t result = EXPR_NOTHING;
    if (normalise_alt(exprs, base, &all)) {
        uint32_t len = exprs->scratch_len - base;
        if (all) {
            result = EXPR_ANYTHING;
        } else if (len == 1) {
            result = exprs->scratch[base];
        } else if (len > 1) {
            result = exprs_intern_list(exprs, EXPR_KIND_ALT, exprs->scratch + base, len);
        }
    }
    exprs->scratch_len = base;
    return result;
}

uint32_t expr_alt(struct exprs *exprs, uint32_t a, uint32_t b) {
    if (a == b || b == EXPR_NOTHING) return a;
    if (a == EXPR_NOTHING) return b;
    return expr_alt_all(exprs, (uint32_t[]){a, b}, 2);
}

static bool push_all(struct exprs *exprs, const uint32_t *list, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (!exprs_push(exprs, list[i])) return false;
    }
    return true;
}

uint32_t expr_alt_all(struct exprs *exprs, const uint32_t *list, size_t len) {
    uint32_t base = exprs->scratch_len;
    if (push_all(exprs, list, len)) return exprs_alt_scratch(exprs, base);
    exprs->scratch_len = base;
    return EXPR_NOTHING;
}

uint32_t expr_optional(struct exprs *exprs, uint32_t e) {
    return expr_alt(exprs, e, EXPR_EPSILON);
}

// ---- intersections ----

// JSON(x) & JSON(y) is JSON(x & y), and JSON(x) & ~JSON(y) is JSON(x & ~y).
static bool join_json(struct exprs *exprs, uint32_t base, bool *changed) {
    uint32_t end = exprs->scratch_len, num_json = 0, num_not = 0;
    for (uint32_t i = base; i < end; i++) {
        const struct expr_node *node = node_of(exprs, exprs->scratch[i]);
        num_json += node->kind == EXPR_KIND_JSON;
        num_not += node->kind == EXPR_KIND_NOT && node_of(exprs, node->a)->kind == EXPR_KIND_JSON;
    }
    if (num_json == 0 || num_json + num_not < 2) return true;
    for (uint32_t i = base; i < end; i++) {
        struct expr_node node = *node_of(exprs, exprs->scratch[i]);
        uint32_t inner = node.a;
        if (node.kind == EXPR_KIND_NOT) {
            struct expr_node child = *node_of(exprs, node.a);
            if (child.kind != EXPR_KIND_JSON) continue;
            inner = expr_not(exprs, child.a);
        } else if (node.kind != EXPR_KIND_JSON) {
            continue;
        }
        exprs->scratch[i] = EXPR_ANYTHING;
        if (!exprs_push(exprs, inner)) return false;
    }
    uint32_t inner = exprs_and_scratch(exprs, end);
    *changed = true;
    return exprs_push(exprs, expr_json_content(exprs, inner)) && !exprs->err.status;
}

// Drops EXPR_ANYTHING. Returns whether the list has EXPR_NOTHING, or some x and ~x.
static bool excludes_itself(struct exprs *exprs, uint32_t base) {
    uint32_t out = base;
    bool nothing = false;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        uint32_t e = exprs->scratch[i];
        if (e == EXPR_ANYTHING) continue;
        exprs->scratch[out++] = e;
        const struct expr_node *node = node_of(exprs, e);
        nothing |= (node->flags & EXPR_DEAD) != 0;
        if (node->kind != EXPR_KIND_NOT || !exprs_count(exprs, exprs->scratch_len - base)) continue;
        for (uint32_t k = base; k < exprs->scratch_len; k++) {
            nothing |= exprs->scratch[k] == node->a;
        }
    }
    exprs->scratch_len = out;
    return nothing;
}

// The intersection with the empty string, when that is one of the list's.
static bool meets_epsilon(const struct exprs *exprs, uint32_t base, uint32_t *result) {
    bool has_epsilon = false, all_nullable = true;
    for (uint32_t i = base; i < exprs->scratch_len; i++) {
        uint32_t e = exprs->scratch[i];
        has_epsilon |= e == EXPR_EPSILON;
        all_nullable &= (node_of(exprs, e)->flags & EXPR_NULLABLE) != 0;
    }
    *result = all_nullable ? EXPR_EPSILON : EXPR_NOTHING;
    return has_epsilon;
}

uint32_t exprs_and_scratch(struct exprs *exprs, uint32_t base) {
    uint32_t result = EXPR_NOTHING;
    bool changed = false, joined = false;
    if (flatten(exprs, EXPR_KIND_AND, base) && sort_scratch(exprs, base) &&
        exprs_count(exprs, exprs->scratch_len - base)) {
        remove_repeats(exprs, base);
        bool fine = join_sets(exprs, base, false, &changed) && join_json(exprs, base, &joined) &&
                    (!(changed || joined) || sort_scratch(exprs, base));
        if (fine) remove_repeats(exprs, base);
        if (fine && !excludes_itself(exprs, base) && !meets_epsilon(exprs, base, &result)) {
            uint32_t len = exprs->scratch_len - base;
            result = len == 0 ? EXPR_ANYTHING
                     : len == 1
                         ? exprs->scratch[base]
                         : exprs_intern_list(exprs, EXPR_KIND_AND, exprs->scratch + base, len);
        }
    }
    exprs->scratch_len = base;
    return result;
}

uint32_t expr_and(struct exprs *exprs, uint32_t a, uint32_t b) {
    if (a == b) return a;
    return expr_and_all(exprs, (uint32_t[]){a, b}, 2);
}

uint32_t expr_and_all(struct exprs *exprs, const uint32_t *list, size_t len) {
    uint32_t base = exprs->scratch_len;
    if (push_all(exprs, list, len)) return exprs_and_scratch(exprs, base);
    exprs->scratch_len = base;
    return EXPR_NOTHING;
}

uint32_t expr_not(struct exprs *exprs, uint32_t e) {
    if (exprs->err.status) return EXPR_NOTHING;
    const struct expr_node *node = node_of(exprs, e);
    if (node->kind == EXPR_KIND_NOT) return node->a;
    return exprs_intern(exprs, EXPR_KIND_NOT, e, 0, 0);
}

uint32_t expr_minus(struct exprs *exprs, uint32_t a, uint32_t b) {
    return expr_and(exprs, a, expr_not(exprs, b));
}

// ---- sequences and repetitions ----

// a + b; EXPR_FOREVER stays.
static uint32_t add_counts(uint32_t a, uint32_t b) {
    return a == EXPR_FOREVER || b >= EXPR_FOREVER - a ? EXPR_FOREVER : a + b;
}

// `head`, which is no CONCAT, before `tail`.
static uint32_t put_before(struct exprs *exprs, uint32_t head, uint32_t tail) {
    if (head == EXPR_NOTHING || tail == EXPR_NOTHING) return EXPR_NOTHING;
    if (head == EXPR_EPSILON) return tail;
    if (tail == EXPR_EPSILON) return head;
    struct expr_node first = *node_of(exprs, head), rest = *node_of(exprs, tail);
    uint32_t next = rest.kind == EXPR_KIND_CONCAT ? rest.a : tail;
    uint32_t after = rest.kind == EXPR_KIND_CONCAT ? rest.b : EXPR_EPSILON;
    struct expr_node second = *node_of(exprs, next);
    if (head == EXPR_ANYTHING && next == EXPR_ANYTHING) return tail;
    bool first_repeats = first.kind == EXPR_KIND_REPEAT;
    bool second_repeats = second.kind == EXPR_KIND_REPEAT;
    if (first_repeats || second_repeats) {
        uint32_t body = first_repeats ? first.a : head;
        if (body == (second_repeats ? second.a : next)) { // r{1,2} r{3,4} is r{4,6}
            uint32_t min = add_counts(first_repeats ? first.b : 1, second_repeats ? second.b : 1);
            uint32_t max = add_counts(first_repeats ? first.c : 1, second_repeats ? second.c : 1);
            return put_before(exprs, expr_repeat(exprs, body, min, max), after);
        }
    }
    return exprs_intern(exprs, EXPR_KIND_CONCAT, head, tail, 0);
}

uint32_t expr_concat(struct exprs *exprs, uint32_t a, uint32_t b) {
    if (exprs->err.status) return EXPR_NOTHING;
    if (node_of(exprs, a)->kind != EXPR_KIND_CONCAT) return put_before(exprs, a, b);
    uint32_t base = exprs->scratch_len;
    while (node_of(exprs, a)->kind == EXPR_KIND_CONCAT) {
        if (!exprs_push(exprs, node_of(exprs, a)->a)) break;
        a = node_of(exprs, a)->b;
    }
    b = put_before(exprs, a, b);
    while (exprs->scratch_len > base) {
        b = put_before(exprs, exprs->scratch[--exprs->scratch_len], b);
    }
    return exprs->err.status ? EXPR_NOTHING : b;
}

uint32_t expr_concat_all(struct exprs *exprs, const uint32_t *list, size_t len) {
    uint32_t result = EXPR_EPSILON;
    while (len > 0) result = expr_concat(exprs, list[--len], result);
    return result;
}

uint32_t expr_repeat(struct exprs *exprs, uint32_t e, uint32_t min, uint32_t max) {
    if (exprs->err.status) return EXPR_NOTHING;
    if (min > max) return exprs_fail(exprs, ERR_INVALID, "a repetition {%u,%u}", min, max);
    if (max == 0 || e == EXPR_EPSILON) return EXPR_EPSILON;
    if (e == EXPR_NOTHING) return min == 0 ? EXPR_EPSILON : EXPR_NOTHING;
    if (e == EXPR_ANYTHING) return e;
    struct expr_node node = *node_of(exprs, e);
    if (max == 1 && (min == 1 || (node.flags & EXPR_NULLABLE))) return e;
    if (node.flags & EXPR_NULLABLE) min = 0;
    if (node.kind == EXPR_KIND_ALT && (node.flags & EXPR_NULLABLE)) { // (x|)* is x*
        uint32_t base = exprs->scratch_len;
        for (uint32_t i = 0; i < node.b; i++) {
            uint32_t child = exprs->lists[node.a + i];
            if (child != EXPR_EPSILON && !exprs_push(exprs, child)) break;
        }
        e = exprs_alt_scratch(exprs, base);
        if (exprs->err.status) return EXPR_NOTHING;
        node = *node_of(exprs, e);
    }
    if (node.kind == EXPR_KIND_REPEAT && node.c == EXPR_FOREVER && node.b <= 1) {
        // (r+){2,3} is r{2,}, and (r*){2,3} is r*.
        return expr_repeat(exprs, node.a, node.b * min, EXPR_FOREVER);
    }
    return exprs_intern(exprs, EXPR_KIND_REPEAT, e, min, max);
}
