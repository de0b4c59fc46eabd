// Expressions match what their operators say: random ones against a matcher that tries every
// division of the text; and the numbers of steps stay small for expressions that explode elsewhere.
#include <stdlib.h>
#include <string.h>

#include "structured/expr/expr_internal.h"
#include "support/cmocka_all.h"

static struct exprs *create(void) {
    struct exprs *exprs;
    assert_int_equal(exprs_create(&exprs, NULL, NULL), OK);
    return exprs;
}

static bool matches(struct exprs *exprs, uint32_t e, const char *text, size_t len) {
    bool found;
    struct err err = {0};
    if (expr_matches(exprs, e, text, len, &found, &err)) fail_msg("%s", err.message);
    return found;
}

static void check(struct exprs *exprs, uint32_t e, const char *text, bool expected) {
    if (matches(exprs, e, text, strlen(text)) != expected) {
        fail_msg("\"%s\" %s", text, expected ? "does not match" : "matches");
    }
}

static bool is_nothing(struct exprs *exprs, uint32_t e) {
    bool nothing;
    struct err err = {0};
    if (expr_is_nothing(exprs, e, &nothing, &err)) fail_msg("%s", err.message);
    return nothing;
}

// ---- a second matcher ----

enum { NUM_NODES = 12, TEXT_MAX = 9 };
enum form { BYTE, PAIR, CONCAT, ALT, AND, NOT, REPEAT, NUM_FORMS };

// A random expression: node i has operands below i. ends[i][at]: bit k where it may match at .. k.
struct model {
    enum form forms[NUM_NODES];
    int a[NUM_NODES], b[NUM_NODES];
    uint32_t min[NUM_NODES], max[NUM_NODES];
    uint32_t ends[NUM_NODES][TEXT_MAX + 1];
};

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return n ? (uint32_t)(random_state >> 33) % n : 0;
}

static void model_draw(struct model *model) {
    for (int i = 0; i < NUM_NODES; i++) {
        model->forms[i] = i < 3 ? (enum form)random_below(2) : (enum form)random_below(NUM_FORMS);
        bool is_leaf = model->forms[i] <= PAIR;
        model->a[i] = is_leaf ? (int)random_below(3) : (int)random_below((uint32_t)i);
        model->b[i] = is_leaf ? 0 : (int)random_below((uint32_t)i);
        model->min[i] = random_below(6);
        model->max[i] = random_below(3) == 0 ? EXPR_FOREVER : model->min[i] + random_below(3);
    }
}

static uint32_t model_build(const struct model *model, struct exprs *exprs) {
    uint32_t e[NUM_NODES];
    for (int i = 0; i < NUM_NODES; i++) {
        int a = model->a[i], b = model->b[i];
        switch (model->forms[i]) {
        case BYTE:
            e[i] = expr_byte_range(exprs, (unsigned char)('a' + a), (unsigned char)('a' + a));
            break;
        case PAIR:
            e[i] = expr_byte_range(exprs, 'a', (unsigned char)('a' + a));
            break;
        case CONCAT:
            e[i] = expr_concat(exprs, e[a], e[b]);
            break;
        case ALT:
            e[i] = expr_alt(exprs, e[a], e[b]);
            break;
        case AND:
            e[i] = expr_and(exprs, e[a], e[b]);
            break;
        case NOT:
            e[i] = expr_not(exprs, e[a]);
            break;
        default:
            e[i] = expr_repeat(exprs, e[a], model->min[i], model->max[i]);
            break;
        }
    }
    return e[NUM_NODES - 1];
}

static uint32_t then(const uint32_t ends[TEXT_MAX + 1], uint32_t starts, size_t len) {
    uint32_t result = 0;
    for (size_t at = 0; at <= len; at++) {
        if (starts >> at & 1) result |= ends[at];
    }
    return result;
}

static uint32_t repeat_ends(const uint32_t ends[TEXT_MAX + 1], size_t at, uint32_t min,
                            uint32_t max, size_t len) {
    uint32_t reached = 1u << at, result = min == 0 ? reached : 0;
    for (uint32_t n = 1; n <= 40 && n <= max; n++) { // more only repeat empty matches
        reached = then(ends, reached, len);
        if (n >= min) result |= reached;
    }
    return result;
}

static bool model_matches(struct model *model, const char *text, size_t len) {
    for (int i = 0; i < NUM_NODES; i++) {
        int a = model->a[i], b = model->b[i];
        for (size_t at = 0; at <= len; at++) {
            uint32_t all = ((2u << len) - 1) & ~((1u << at) - 1), *out = &model->ends[i][at];
            switch (model->forms[i]) {
            case BYTE:
                *out = at < len && text[at] == 'a' + a ? 2u << at : 0;
                break;
            case PAIR:
                *out = at < len && text[at] <= 'a' + a ? 2u << at : 0;
                break;
            case CONCAT:
                *out = then(model->ends[b], model->ends[a][at], len);
                break;
            case ALT:
                *out = model->ends[a][at] | model->ends[b][at];
                break;
            case AND:
                *out = model->ends[a][at] & model->ends[b][at];
                break;
            case NOT:
                *out = all & ~model->ends[a][at];
                break;
            default:
                *out = repeat_ends(model->ends[a], at, model->min[i], model->max[i], len);
                break;
            }
        }
    }
    return model->ends[NUM_NODES - 1][0] >> len & 1;
}

static void random_expressions(void **state) {
    (void)state;
    size_t num_matches = 0, num_empty = 0;
    for (int round = 0; round < 3000; round++) {
        struct exprs *exprs = create();
        struct model model = {0};
        model_draw(&model);
        uint32_t e = model_build(&model, exprs), shortest = exprs_shortest(exprs, e, 100);
        bool found_any = false;
        for (int n = 0; n < 40; n++) {
            char text[TEXT_MAX];
            size_t len = random_below(TEXT_MAX + 1);
            for (size_t i = 0; i < len; i++) text[i] = (char)('a' + random_below(3));
            bool expected = model_matches(&model, text, len);
            if (matches(exprs, e, text, len) != expected) {
                fail_msg("round %d: \"%.*s\" should %smatch", round, (int)len, text,
                         expected ? "" : "not ");
            }
            if (expected && len < shortest) fail_msg("round %d: %zu bytes match", round, len);
            found_any |= expected;
            num_matches += expected;
        }
        bool nothing = is_nothing(exprs, e);
        if (nothing && found_any) fail_msg("round %d: empty, yet has a match", round);
        num_empty += nothing;
        exprs_destroy(exprs);
    }
    assert_in_range(num_matches, 10000, 110000);
    assert_in_range(num_empty, 50, 2900);
}

static void shortest_texts(void **state) {
    (void)state;
    struct exprs *exprs = create();
    uint32_t a = expr_string(exprs, "a"), abc = expr_string(exprs, "abc");
    uint32_t two = expr_repeat(exprs, abc, 2, 9), both = expr_concat(exprs, two, abc);
    uint32_t text = expr_json_content(exprs, expr_any_text(exprs));
    assert_int_equal(exprs_shortest(exprs, two, 100), 6);
    assert_int_equal(exprs_shortest(exprs, both, 100), 9);
    assert_int_equal(exprs_shortest(exprs, both, 5), 5);
    assert_int_equal(exprs_shortest(exprs, expr_alt(exprs, both, a), 100), 1);
    assert_int_equal(exprs_shortest(exprs, expr_repeat(exprs, abc, 0, 9), 100), 0);
    assert_int_equal(exprs_shortest(exprs, expr_concat(exprs, text, a), 100), 1);
    exprs_destroy(exprs);
}

// Forgetting counters keeps all beginnings up to that length, and whether they can be continued.
static void forgotten_counters(void **state) {
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct exprs *exprs = create();
        struct model model = {0};
        model_draw(&model);
        uint32_t e = model_build(&model, exprs), loose = exprs_forget_counters(exprs, e, 3);
        for (int n = 0; n < 30; n++) {
            uint32_t x = e, y = loose;
            for (int i = 0; i < 3; i++) {
                unsigned char byte = (unsigned char)('a' + random_below(3));
                x = exprs_derive(exprs, x, byte);
                y = exprs_derive(exprs, y, byte);
                assert_int_equal(exprs_is_live(exprs, x), exprs_is_live(exprs, y));
                assert_int_equal(expr_is_nullable(exprs, x), expr_is_nullable(exprs, y));
            }
        }
        exprs_destroy(exprs);
    }
}

// ---- emptiness ----

static void emptiness(void **state) {
    (void)state;
    struct exprs *exprs = create();
    uint32_t a = expr_string(exprs, "a"), b = expr_string(exprs, "b"), ab = expr_alt(exprs, a, b);
    uint32_t a4999 = expr_repeat(exprs, a, 0, 4999),
             ab5000 = expr_repeat(exprs, ab, 5000, EXPR_FOREVER);
    assert_true(is_nothing(exprs, expr_and(exprs, a4999, ab5000)));
    assert_false(is_nothing(exprs, expr_and(exprs, expr_repeat(exprs, a, 0, 5000), ab5000)));
    uint32_t all = expr_repeat(exprs, ab, 0, EXPR_FOREVER);
    uint32_t pieces = expr_repeat(exprs, expr_alt(exprs, expr_repeat(exprs, a, 1, EXPR_FOREVER), b),
                                  0, EXPR_FOREVER);
    assert_true(is_nothing(exprs, expr_minus(exprs, all, pieces)));
    assert_true(is_nothing(exprs, expr_minus(exprs, pieces, all)));
    exprs_destroy(exprs);
}

// Repetitions of one expression are one where their counts have no gap.
static void joined_repeats(void **state) {
    (void)state;
    struct exprs *exprs = create();
    uint32_t a = expr_string(exprs, "a");
    static const char text[] = "aaaaaaabc";
    for (size_t order = 0; order < 2; order++) { // which of the two is made first
        uint32_t end = expr_string(exprs, text + 7 + order);
        uint32_t low = order ? expr_concat(exprs, expr_repeat(exprs, a, 2, 2), end) : 0;
        uint32_t high = expr_concat(exprs, expr_repeat(exprs, a, 4, 5), end);
        if (!order) low = expr_concat(exprs, expr_repeat(exprs, a, 2, 2), end);
        uint32_t gap = expr_alt(exprs, low, high);
        for (uint32_t num = 0; num <= 7; num++) {
            uint32_t letters = expr_concat(exprs, expr_repeat(exprs, a, num, num), end);
            bool part = !is_nothing(exprs, expr_and(exprs, letters, gap));
            assert_int_equal(part, num == 2 || num == 4 || num == 5);
        }
    }
    assert_int_equal(
        expr_alt(exprs, expr_repeat(exprs, a, 1, 2), expr_repeat(exprs, a, 3, EXPR_FOREVER)),
        expr_repeat(exprs, a, 1, EXPR_FOREVER));
    exprs_destroy(exprs);
}

// ---- steps ----

static uint64_t steps_of(uint32_t (*build)(struct exprs *exprs), const char *piece, size_t times) {
    struct exprs *exprs = create();
    uint32_t e = build(exprs);
    exprs_allow(exprs, exprs->steps_max);
    for (size_t i = 0; i < times; i++) {
        for (const char *p = piece; *p; p++) e = exprs_derive(exprs, e, (unsigned char)*p);
    }
    assert_int_equal(exprs_status(exprs, NULL), OK);
    assert_int_not_equal(e, EXPR_NOTHING);
    uint64_t steps = exprs->steps_max - exprs->steps_left;
    exprs_destroy(exprs);
    return steps;
}

static uint32_t nested_plus(struct exprs *exprs) { // (a+)+b
    uint32_t a = expr_string(exprs, "a");
    uint32_t inner = expr_repeat(exprs, a, 1, EXPR_FOREVER);
    return expr_concat(exprs, expr_repeat(exprs, inner, 1, EXPR_FOREVER), expr_string(exprs, "b"));
}

static uint32_t long_count(struct exprs *exprs) { // .{0,100000}
    return expr_repeat(exprs, expr_any_char(exprs), 0, 100000);
}

static uint32_t window(struct exprs *exprs) { // [ab]*a[ab]{0,1000}: 2^1000 states as a whole
    uint32_t ab = expr_byte_range(exprs, 'a', 'b');
    return expr_concat(
        exprs, expr_repeat(exprs, ab, 0, EXPR_FOREVER),
        expr_concat(exprs, expr_string(exprs, "a"), expr_repeat(exprs, ab, 0, 1000)));
}

static uint32_t optional_words(struct exprs *exprs) { // (a?){0,1000}(aa|aaa)*
    uint32_t a = expr_string(exprs, "a"), aa = expr_string(exprs, "aa");
    uint32_t some = expr_alt(exprs, aa, expr_string(exprs, "aaa"));
    return expr_concat(exprs, expr_repeat(exprs, expr_optional(exprs, a), 0, 1000),
                       expr_repeat(exprs, some, 0, EXPR_FOREVER));
}

static uint32_t many_keys(struct exprs *exprs) { // field_000:0;|field_001:1;...
    uint32_t all[500];
    for (uint32_t i = 0; i < 500; i++) {
        char text[] = "field_000:";
        for (uint32_t at = 8, rest = i; at > 5; at--, rest /= 10)
            text[at] = (char)('0' + rest % 10);
        uint32_t value = expr_byte_range(exprs, '0', (unsigned char)('0' + i % 7));
        all[i] = expr_concat(
            exprs, expr_string(exprs, text),
            expr_concat(exprs, expr_repeat(exprs, value, 1, 9), expr_string(exprs, ";")));
    }
    return expr_repeat(exprs, expr_alt_all(exprs, all, 500), 0, EXPR_FOREVER);
}

static void steps_are_linear(void **state) {
    (void)state;
    assert_in_range(steps_of(nested_plus, "a", 2000), 1, 3000);
    assert_in_range(steps_of(long_count, "x", 5000), 1, 50000);
    assert_in_range(steps_of(window, "aab", 2000), 1, 600000);
    assert_in_range(steps_of(optional_words, "a", 900), 1, 100000);
    assert_in_range(steps_of(many_keys, "field_123:0;", 1), 1, 500);
}

static void limits_end_with_a_sentence(void **state) {
    (void)state;
    struct exprs *exprs;
    struct err err = {0};
    assert_int_equal(exprs_create(&exprs, &(struct expr_limits){.steps_max = 10000}, NULL), OK);
    // [ab]*a[ab]{200} followed by a b: each place of an a is one more alternative.
    uint32_t ab = expr_byte_range(exprs, 'a', 'b');
    uint32_t e =
        expr_concat(exprs, expr_repeat(exprs, ab, 0, EXPR_FOREVER),
                    expr_concat(exprs, expr_string(exprs, "a"), expr_repeat(exprs, ab, 200, 200)));
    uint32_t other = expr_concat(exprs, e, expr_string(exprs, "b"));
    bool nothing;
    assert_int_equal(
        expr_is_nothing(exprs, expr_and(exprs, e, expr_not(exprs, other)), &nothing, &err),
        ERR_CAPACITY);
    assert_string_equal(err.message, "the constraint takes more than 10000 steps");
    assert_int_equal(expr_string(exprs, "later"), EXPR_NOTHING);
    exprs_destroy(exprs);

    assert_int_equal(exprs_create(&exprs, &(struct expr_limits){.bytes_max = 1 << 20}, NULL), OK);
    char text[100000];
    memset(text, 'x', sizeof text);
    assert_int_equal(expr_literal(exprs, text, sizeof text), EXPR_NOTHING);
    assert_int_equal(exprs_status(exprs, &err), ERR_CAPACITY);
    assert_string_equal(err.message, "the constraint takes more than 1024 KiB of memory");
    exprs_destroy(exprs);

    exprs = create();
    e = expr_string(exprs, "x");
    for (int i = 0; i < 1000; i++) {
        e = expr_repeat(exprs, expr_concat(exprs, e, expr_string(exprs, "y")), 2, 3);
    }
    assert_int_equal(exprs_status(exprs, &err), ERR_CAPACITY);
    assert_string_equal(err.message, "the constraint nests more than 500 operators");
    exprs_destroy(exprs);
}

// ---- texts ----

static void characters(void **state) {
    (void)state;
    static const uint32_t edges[] = {0,      0x41,    0x7f,    0x80,     0x7ff,
                                     0x800,  0xfff,   0x1000,  0xd7ff,   0xe000,
                                     0xffff, 0x10000, 0x3ffff, 0x100000, 0x10ffff};
    struct exprs *exprs = create();
    for (size_t first = 0; first < ARRAY_LEN(edges); first++) {
        for (size_t last = first; last < ARRAY_LEN(edges); last++) {
            uint32_t e = expr_char_range(exprs, edges[first], edges[last]);
            for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
                struct expr_utf8_range c[EXPR_UTF8_RANGES_MAX];
                assert_int_equal(exprs_utf8_ranges(edges[i], edges[i], c), 1);
                assert_memory_equal(c[0].first, c[0].last, c[0].len);
                assert_int_equal(matches(exprs, e, (const char *)c[0].first, c[0].len),
                                 i >= first && i <= last);
            }
        }
    }
    uint32_t any = expr_any_char(exprs);
    check(exprs, any, "\xed\xa0\x80", false); // a surrogate
    check(exprs, any, "\xc0\x80", false); // over-long
    check(exprs, any, "\xf4\x90\x80\x80", false); // U+110000
    check(exprs, any, "\xff", false);
    exprs_destroy(exprs);
}

static void lists_of_texts(void **state) {
    (void)state;
    struct exprs *exprs = create();
    static const struct expr_text texts[] = {{"", 0},     {"red", 3},   {"redder", 6},
                                             {"reed", 4}, {"green", 5}, {"red", 3}};
    uint32_t e = expr_one_of(exprs, texts, ARRAY_LEN(texts));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) check(exprs, e, texts[i].bytes, true);
    check(exprs, e, "re", false);
    check(exprs, e, "redde", false);
    check(exprs, e, "greenred", false);
    assert_int_equal(expr_one_of(exprs, texts, 0), EXPR_NOTHING);

    uint32_t until = expr_until(exprs, "aab", 3), without = expr_text_without(exprs, texts + 1, 3);
    check(exprs, until, "aab", true);
    check(exprs, until, "aaab", true);
    check(exprs, until, "xaabyaab", false);
    check(exprs, until, "aaba", false);
    check(exprs, without,
          "gre\xc3\xa9"
          "dre",
          true);
    check(exprs, without, "a red", false);
    check(exprs, without, "\xc3", false);
    exprs_destroy(exprs);
}

static void special_tokens(void **state) {
    (void)state;
    struct exprs *exprs = create();
    uint32_t e = expr_special_token(exprs, "<x>", 3);
    check(exprs, e, "\xff<x>\xff", true);
    check(exprs, e, "<x>", false);
    check(exprs, expr_any_text(exprs), "\xff<x>\xff", false);
    exprs_destroy(exprs);
}

static void json_strings(void **state) {
    (void)state;
    struct exprs *exprs = create();
    // Two or three characters.
    uint32_t any = expr_json_content(exprs, expr_repeat(exprs, expr_any_char(exprs), 2, 3));
    check(exprs, any, "ab", true);
    check(exprs, any, "a\\n", true);
    check(exprs, any, "\\u0041\\\"\xc3\xa9", true);
    check(exprs, any, "\\ud83d\\ude00x", true);
    check(exprs, any, "\\ud83d\\ude00", false); // one character
    check(exprs, any, "\\ud83dxx", false); // half a pair
    check(exprs, any, "\\ude00xx", false);
    check(exprs, any, "\\u00e9\\/", true);
    check(exprs, any, "a\"b", false);
    check(exprs, any, "a\nb", false);
    check(exprs, any, "\\x41bc", false);
    // Texts that are not a name, in any spelling of the name.
    uint32_t name = expr_string(exprs, "id");
    uint32_t other = expr_json_content(exprs, expr_minus(exprs, expr_any_text(exprs), name));
    check(exprs, other, "ie", true);
    check(exprs, other, "idx", true);
    check(exprs, other, "id", false);
    check(exprs, other, "\\u0069d", false);
    uint32_t both = expr_minus(exprs, any, expr_json_content(exprs, name));
    check(exprs, both, "i\\u0064", false);
    check(exprs, both, "i\\u0065", true);
    check(exprs, both, "i", false);
    // An escape is begun only where it can end.
    uint32_t digits =
        expr_json_content(exprs, expr_repeat(exprs, expr_byte_range(exprs, '0', '9'), 1, 9));
    static const struct {
        const char *text;
        bool live;
    } begun[] = {{"\\", true},   {"\\u003", true},  {"\\u00", true}, {"\\u01", false},
                 {"\\n", false}, {"\\u004", false}, {"\\ud", false}, {"\\u003a", false}};
    for (size_t i = 0; i < ARRAY_LEN(begun); i++) {
        uint32_t e = digits;
        for (const char *p = begun[i].text; *p; p++) e = exprs_derive(exprs, e, (unsigned char)*p);
        if (exprs_is_live(exprs, e) != begun[i].live) fail_msg("%s", begun[i].text);
    }
    uint32_t literal = expr_json_literal(exprs, "a\"\\\n\x01/\0z", 8);
    static const char spelled[] = "a\\\"\\\\\\n\\u0001/\\u0000z";
    check(exprs, literal, spelled, true);
    assert_false(is_nothing(
        exprs, expr_and(exprs, literal, expr_json_content(exprs, expr_any_text(exprs)))));
    exprs_destroy(exprs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_expressions),
        cmocka_unit_test(shortest_texts),
        cmocka_unit_test(forgotten_counters),
        cmocka_unit_test(emptiness),
        cmocka_unit_test(joined_repeats),
        cmocka_unit_test(steps_are_linear),
        cmocka_unit_test(limits_end_with_a_sentence),
        cmocka_unit_test(characters),
        cmocka_unit_test(lists_of_texts),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
