// Counters: states that differ only in them share masks where no token reaches the end, and masks
// are right near it.
#include <string.h>

#include "structured/schema/schema.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

// Items that are long expressions are counted by stacks. So the mask at a place in an item is that
// of other items, unless a token reaches the last item that must or may come.
static void counted_items(void **state) {
    (void)state;
    static const char *const texts[] = {
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        ":",
        "a",
        "_long",
        "_name",
        "1",
        "2",
        "a_long_name",
        "\":1}",
        "},{\"a",
        ",{\"a",
        "\":2},{",
        "{\"a_long_name\":1},{\"a_long_name\":2},{\"a_long_name\":1}",
        "}]",
        ",{\"a_long_name\":1},{\"a_long_name\":1},{\"a_long_name\":1",
        "1},{\"a_long_name\":1},{\"a_long_name\":1}]"};
    static const char item[] = "{\"a_long_name\":1}";
    static const struct {
        uint32_t min, max, begun, made_max;
    } rows[] = {{0, 60, 60, 120}, {50, EXPR_FOREVER, 60, 120}, {30, 40, 40, 200}, {0, 3, 3, 80}};
    struct vocabulary *vocabulary = fixture_vocabulary(texts, ARRAY_LEN(texts));
    for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
        struct grammar *grammar;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        uint32_t rule = grammar_rule(grammar, "list");
        uint32_t digit = expr_byte_range(exprs, '1', '2');
        uint32_t begin = expr_concat(exprs, expr_string(exprs, "{\"a_long_name\":"), digit);
        uint32_t value = expr_concat(exprs, begin, expr_string(exprs, "}"));
        uint32_t more = expr_concat(exprs, expr_string(exprs, ","), value);
        uint32_t rest =
            grammar_repeat(grammar, grammar_terminal(grammar, more), rows[row].min, rows[row].max);
        uint32_t list[] = {
            grammar_terminal(grammar, expr_concat(exprs, expr_string(exprs, "["), value)), rest,
            grammar_terminal(grammar, expr_string(exprs, "]"))};
        grammar_define(grammar, rule, grammar_sequence(grammar, list, ARRAY_LEN(list)));
        grammar_start(grammar, rule);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        uint32_t at = automaton_start(automaton);
        for (uint32_t i = 0; i <= rows[row].begun; i++) {
            assert_int_equal(automaton_advance(automaton, at, i ? "," : "[", 1, &at, NULL), OK);
            for (size_t k = 0; item[k]; k++) {
                fixture_check_mask(automaton, at);
                assert_int_equal(automaton_advance(automaton, at, &item[k], 1, &at, NULL), OK);
            }
            fixture_check_mask(automaton, at);
        }
        struct automaton_stats stats;
        automaton_stats(automaton, &stats);
        assert_in_range(stats.num_masks_made, 10, rows[row].made_max);
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// A counter of 100,000 makes no more states than what is read, and texts of thousands of
// characters share one mask.
static void long_counters(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct automaton *automaton = fixture_run(fixture_json_grammar(0, 100000, 100000), vocabulary);
    struct automaton_stats stats;
    uint32_t at = automaton_start(automaton), words[16];
    assert_int_equal(automaton_advance(automaton, at, "[\"", 2, &at, NULL), OK);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(automaton_mask(automaton, at, words, NULL, NULL), OK);
        assert_int_equal(automaton_advance(automaton, at, "x", 1, &at, NULL), OK);
    }
    assert_int_equal(automaton_advance(automaton, at, "\"", 1, &at, NULL), OK);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(automaton_mask(automaton, at, words, NULL, NULL), OK);
        assert_int_equal(automaton_advance(automaton, at, ",1", 2, &at, NULL), OK);
    }
    automaton_stats(automaton, &stats);
    assert_in_range(stats.num_states, 2000, 15000);
    assert_in_range(stats.num_masks, 4000, 4000);
    assert_in_range(stats.num_masks_made, 1, 60);
    automaton_release(automaton);

    // Behind its minimum an endless loop counts no further.
    automaton = fixture_run(fixture_json_grammar(3, EXPR_FOREVER, 5), vocabulary);
    at = automaton_start(automaton);
    assert_int_equal(automaton_advance(automaton, at, "[1", 2, &at, NULL), OK);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(automaton_advance(automaton, at, ",1", 2, &at, NULL), OK);
    }
    automaton_stats(automaton, &stats);
    assert_in_range(stats.num_states, 8, 30);
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// Checks the mask behind n characters and fewer, the longest text first: what is remembered of its
// state must not count for others.
static void check_backwards(struct automaton *automaton, uint32_t n) {
    for (uint32_t len = n + 1; len-- > 0;) {
        uint32_t at = automaton_start(automaton), next;
        for (uint32_t i = 0; i < len; i++) {
            assert_int_equal(automaton_advance(automaton, at, "a", 1, &next, NULL), OK);
            if (next == AUTOMATON_DEAD) break;
            at = next;
        }
        fixture_check_mask(automaton, at);
    }
}

static const char *const patterns[] = {"[^.,]{1,50}",
                                       "[^.]{2,5}",
                                       "[^@]{0,33}",
                                       "[a-z]{1,36}@[a-z]{1,40}",
                                       "[^-]{1,45}1",
                                       "[^.,]{1,4}(\\.[^.,]{1,4}){1,3}",
                                       "[^,b]{3,60}",
                                       "([a-z]{1,3}-){2}[^,]{3,60}",
                                       "[^.1]{1,3}1.*",
                                       "[^A-Z]{1,8}[A-Z]{1,8}",
                                       "([^.]{1,40}|[a-m]{1,41})[.]",
                                       "[a-z]{3}1b*",
                                       "[^.]+",
                                       "[ab]{2,38}",
                                       "[^1]{3,9}",
                                       "[^1]{5,9}",
                                       "[^1]{0,12}",
                                       "[^.]{5,9}",
                                       "[^.]{0,12}",
                                       "([^1][^1]){0,20}",
                                       "([^1]|[a-z]b){2,14}",
                                       "[^1]{0,30}[^,]{0,3}"};

// Patterns that count characters of some kinds: at each place of random texts the mask is right.
static void counted_kinds(void **state) {
    (void)state;
    static const char *const texts[] = {"a",
                                        "b",
                                        "A",
                                        "1",
                                        "-",
                                        ".",
                                        ",",
                                        "_",
                                        " ",
                                        "@",
                                        "\"",
                                        "\\",
                                        "ab",
                                        "Ab1",
                                        "a-",
                                        "-a",
                                        "a.b",
                                        ".a",
                                        "a,",
                                        "a\"",
                                        "a@b",
                                        "\xc3",
                                        "\xc3\xa9",
                                        "\xa9",
                                        "1.1",
                                        "abab",
                                        "A.B",
                                        "a_b-",
                                        "--",
                                        "\xc3\xa9.",
                                        "a b a",
                                        "aba1b",
                                        "ca\"",
                                        "ac\\\\c\",",
                                        "aaaaa",
                                        "abababa",
                                        "ababababa",
                                        "abababababababa",
                                        "ab.ab.ab",
                                        "@@",
                                        "b1b1",
                                        "----",
                                        "\n",
                                        "a\n",
                                        "abababababababababababababababababababab",
                                        "--------------------------------------"};
    uint64_t random = 5;
    struct vocabulary *vocabulary = fixture_vocabulary(texts, ARRAY_LEN(texts));
    for (size_t i = 0; i < 4 * ARRAY_LEN(patterns); i++) {
        struct grammar *grammar;
        const char *pattern = patterns[i / 4];
        uint32_t expr;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        assert_int_equal(schema_pattern_whole(exprs, pattern, strlen(pattern), &expr, NULL), OK);
        // Counters in intersections are not forgotten (exprs_forget_counters).
        uint32_t limit = expr_repeat(exprs, expr_any_char(exprs), 0, 58);
        if (i % 4 == 1) expr = expr_and(exprs, expr, limit);
        if (i % 4 >= 2) { // in a JSON string, or before what may look like one
            uint32_t behind = expr_string(exprs, i % 4 == 2 ? "\",a" : "ab\"");
            expr = expr_concat(exprs, expr_json_content(exprs, expr), behind);
        }
        uint32_t rule = grammar_rule(grammar, "root");
        grammar_define(grammar, rule, grammar_terminal(grammar, expr));
        grammar_start(grammar, rule);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        check_backwards(automaton, 41);
        for (int walk = 0; walk < 20; walk++) {
            uint32_t at = automaton_start(automaton);
            for (int step = 0; step < 60; step++) {
                fixture_check_mask(automaton, at);
                const char *text = texts[fixture_below(&random, ARRAY_LEN(texts))];
                uint32_t next;
                assert_int_equal(automaton_advance(automaton, at, text, strlen(text), &next, NULL),
                                 OK);
                if (next != AUTOMATON_DEAD) at = next;
            }
        }
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// A text whose limit is near the length of the longest token, 42 characters: at each place tokens
// that are too long are banned.
static void limits_near_the_longest_token(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    for (uint32_t limit = 40; limit <= 46; limit++) {
        struct grammar *grammar;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        uint32_t rule = grammar_rule(grammar, "root");
        uint32_t text = expr_repeat(exprs, expr_any_char(exprs), 0, limit);
        grammar_define(grammar, rule, grammar_terminal(grammar, text));
        grammar_start(grammar, rule);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        uint32_t at = automaton_start(automaton);
        for (uint32_t i = 0; i < limit; i++) {
            fixture_check_mask(automaton, at);
            assert_int_equal(automaton_advance(automaton, at, "a", 1, &at, NULL), OK);
        }
        fixture_check_mask(automaton, at);
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_items),
        cmocka_unit_test(long_counters),
        cmocka_unit_test(counted_kinds),
        cmocka_unit_test(limits_near_the_longest_token),
    };
    return cmocka_run_group_tests_name("automaton_counters", tests, NULL, NULL);
}
