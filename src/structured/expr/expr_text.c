/* Expressions of characters, texts and JSON strings. */
#include <stdlib.h>
#include <string.h>

#include "base/text/utf8.h"
#include "structured/expr/expr_internal.h"

// ---- bytes and characters ----

uint32_t expr_byte_set(struct exprs *exprs, const uint64_t bytes[4]) {
    struct expr_set set;
    memcpy(set.bytes, bytes, sizeof set.bytes);
    return exprs_intern_set(exprs, &set, true);
}

uint32_t expr_byte_range(struct exprs *exprs, unsigned char first, unsigned char last) {
    struct expr_set set = {{0}};
    for (uint32_t byte = first; byte <= last; byte++) expr_set_add(&set, (unsigned char)byte);
    return exprs_intern_set(exprs, &set, true);
}

static uint32_t one_byte(struct exprs *exprs, unsigned char byte) {
    uint32_t *known = &exprs->byte_exprs[byte];
    if (!*known) *known = expr_byte_range(exprs, byte, byte);
    return *known;
}

uint32_t expr_literal_before(struct exprs *exprs, const void *bytes, size_t len, uint32_t tail) {
    const unsigned char *at = bytes;
    while (len-- > 0) tail = expr_concat(exprs, one_byte(exprs, at[len]), tail);
    return tail;
}

uint32_t expr_literal(struct exprs *exprs, const void *bytes, size_t len) {
    return expr_literal_before(exprs, bytes, len, EXPR_EPSILON);
}

uint32_t expr_string(struct exprs *exprs, const char *str) {
    return expr_literal(exprs, str, strlen(str));
}

static uint32_t low_bits(uint32_t num_bits) {
    return (1u << num_bits) - 1;
}

// One range whose encodings have one length.
static uint32_t split_range(uint32_t first, uint32_t last, struct expr_utf8_range *out) {
    uint32_t num_out = 0;
    while (first <= last) {
        // The largest part at `first` whose encodings are a product of byte ranges: its last
        // bytes run through all values, the byte before those from one to another.
        uint32_t end = last, len = first < 0x80 ? 1 : first < 0x800 ? 2 : first < 0x10000 ? 3 : 4;
        for (uint32_t bits = 6; bits < 6 * len; bits += 6) {
            if ((first & ~low_bits(bits)) == (end & ~low_bits(bits))) break;
            if (first & low_bits(bits)) {
                end = first | low_bits(bits);
                break;
            }
            if ((end & low_bits(bits)) != low_bits(bits)) {
                end = (end & ~low_bits(bits)) - 1;
            }
        }
        char low[4], high[4];
        struct expr_utf8_range *range = &out[num_out++];
        range->len = (uint32_t)utf8_write(first, low);
        utf8_write(end, high);
        memcpy(range->first, low, range->len);
        memcpy(range->last, high, range->len);
        first = end + 1;
    }
    return num_out;
}

uint32_t exprs_utf8_ranges(uint32_t first, uint32_t last,
                           struct expr_utf8_range out[EXPR_UTF8_RANGES_MAX]) {
    static const uint32_t parts[][2] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    uint32_t num_out = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        uint32_t from = first > parts[i][0] ? first : parts[i][0];
        uint32_t to = last < parts[i][1] ? last : parts[i][1];
        if (from <= to) num_out += split_range(from, to, out + num_out);
    }
    return num_out;
}

uint32_t expr_char_set(struct exprs *exprs, const struct expr_char_range *ranges,
                       size_t num_ranges) {
    uint32_t base = exprs->scratch_len;
    struct expr_set single = {{0}}; // ASCII
    for (size_t i = 0; i < num_ranges && !exprs->err.status; i++) {
        struct expr_utf8_range split[EXPR_UTF8_RANGES_MAX];
        uint32_t num_split = exprs_utf8_ranges(ranges[i].first, ranges[i].last, split);
        for (uint32_t k = 0; k < num_split; k++) {
            uint32_t e = EXPR_EPSILON;
            if (split[k].len == 1) {
                for (uint32_t b = split[k].first[0]; b <= split[k].last[0]; b++) {
                    expr_set_add(&single, (unsigned char)b);
                }
                continue;
            }
            for (uint32_t at = split[k].len; at-- > 0;) {
                uint32_t set = expr_byte_range(exprs, split[k].first[at], split[k].last[at]);
                e = expr_concat(exprs, set, e);
            }
            if (!exprs_push(exprs, e)) break;
        }
    }
    exprs_push(exprs, exprs_intern_set(exprs, &single, true));
    return exprs_alt_scratch(exprs, base);
}

uint32_t expr_char_range(struct exprs *exprs, uint32_t first, uint32_t last) {
    return expr_char_set(exprs, &(struct expr_char_range){first, last}, 1);
}

uint32_t expr_any_char(struct exprs *exprs) {
    return expr_char_range(exprs, 0, 0x10ffff);
}

uint32_t expr_any_text(struct exprs *exprs) {
    return expr_repeat(exprs, expr_any_char(exprs), 0, EXPR_FOREVER);
}

uint32_t expr_special_token(struct exprs *exprs, const char *name, size_t len) {
    // UTF-8 has no byte FF. The second one ends the name, which may begin another's.
    uint32_t edge = expr_byte_range(exprs, 0xff, 0xff);
    return expr_concat(exprs, edge, expr_concat(exprs, expr_literal(exprs, name, len), edge));
}

// ---- many texts ----

static int compare_texts(const void *x, const void *y) {
    const struct expr_text *a = x, *b = y;
    size_t len = a->len < b->len ? a->len : b->len;
    int order = len ? memcmp(a->bytes, b->bytes, len) : 0;
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

// The texts, which are sorted and equal up to `at`, from there on.
static uint32_t make_tree(struct exprs *exprs, const struct expr_text *texts, size_t num_texts,
                          size_t at, uint32_t depth) {
    enum { DEPTH_MAX = 200 }; // deeper only for hostile lists, whose rest is not shared
    size_t common = at;
    const struct expr_text *last = &texts[num_texts - 1];
    while (common < texts[0].len && texts[0].bytes[common] == last->bytes[common]) common++;
    uint32_t base = exprs->scratch_len;
    for (size_t i = 0; i < num_texts && !exprs->err.status;) {
        size_t end = i + 1;
        uint32_t e = EXPR_EPSILON;
        if (texts[i].len == common) {
            while (end < num_texts && texts[end].len == common) end++;
        } else if (depth >= DEPTH_MAX) {
            e = expr_literal(exprs, texts[i].bytes + common, texts[i].len - common);
        } else {
            while (end < num_texts && texts[end].bytes[common] == texts[i].bytes[common]) end++;
            e = make_tree(exprs, texts + i, end - i, common, depth + 1);
        }
        if (!exprs_push(exprs, e)) break;
        i = end;
    }
    uint32_t rest = exprs_alt_scratch(exprs, base);
    return expr_literal_before(exprs, texts[0].bytes + at, common - at, rest);
}

uint32_t expr_one_of(struct exprs *exprs, const struct expr_text *texts, size_t num_texts) {
    if (num_texts == 0) return EXPR_NOTHING;
    struct expr_text *sorted = malloc(num_texts * sizeof *sorted);
    if (!sorted) return exprs_fail(exprs, ERR_NOMEM, "out of memory: structured output");
    memcpy(sorted, texts, num_texts * sizeof *sorted);
    qsort(sorted, num_texts, sizeof *sorted, compare_texts);
    uint32_t result = make_tree(exprs, sorted, num_texts, 0, 0);
    free(sorted);
    return result;
}

uint32_t expr_text_without(struct exprs *exprs, const struct expr_text *marks, size_t num_marks) {
    uint32_t marked =
        expr_concat(exprs, EXPR_ANYTHING,
                    expr_concat(exprs, expr_one_of(exprs, marks, num_marks), EXPR_ANYTHING));
    return expr_minus(exprs, expr_any_text(exprs), marked);
}

uint32_t expr_until(struct exprs *exprs, const char *mark, size_t len) {
    if (len == 0) return exprs_fail(exprs, ERR_INVALID, "a mark in a text is empty");
    uint32_t literal = expr_literal(exprs, mark, len);
    uint32_t one_byte = expr_byte_range(exprs, 0, 255);
    uint32_t early =
        expr_concat(exprs, EXPR_ANYTHING,
                    expr_concat(exprs, literal, expr_concat(exprs, one_byte, EXPR_ANYTHING)));
    uint32_t ends = expr_concat(exprs, expr_any_text(exprs), literal);
    return expr_minus(exprs, ends, early);
}

// ---- JSON ----

uint32_t expr_json_content(struct exprs *exprs, uint32_t e) {
    if (e == EXPR_NOTHING || exprs->err.status) return EXPR_NOTHING;
    if (e == EXPR_EPSILON) return e;
    if (!exprs->has_json) {
        exprs->has_json = true;
        struct expr_set control = {{0}};
        for (unsigned char byte = 0; byte < 0x20; byte++) expr_set_add(&control, byte);
        exprs_split_classes(exprs, &control);
        static const char letters[] = "\"\\/nrtu0123456789abcdefABCDEF";
        for (size_t i = 0; i + 1 < sizeof letters; i++) {
            struct expr_set set = {{0}};
            expr_set_add(&set, (unsigned char)letters[i]);
            exprs_split_classes(exprs, &set);
        }
    }
    return exprs_intern(exprs, EXPR_KIND_JSON, e, 0, 0);
}

uint32_t expr_json_literal_before(struct exprs *exprs, const char *text, size_t len,
                                  uint32_t tail) {
    static const char letters[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t",
                      digits[] = "0123456789abcdef";
    for (size_t i = len; i-- > 0;) {
        unsigned char c = (unsigned char)text[i];
        const char *value = c ? strchr(values, c) : NULL;
        char escape[6] = {'\\', 'u', '0', '0', digits[c >> 4 & 15], digits[c & 15]};
        size_t escape_len = c < 0x20 ? 6 : 0;
        if (value) {
            escape[1] = letters[value - values];
            escape_len = 2;
        }
        tail = escape_len ? expr_literal_before(exprs, escape, escape_len, tail)
                          : expr_concat(exprs, one_byte(exprs, c), tail);
    }
    return tail;
}

uint32_t expr_json_literal(struct exprs *exprs, const char *text, size_t len) {
    return expr_json_literal_before(exprs, text, len, EXPR_EPSILON);
}
