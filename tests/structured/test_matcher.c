// What automata refuse and where they end: ambiguous and hostile grammars, steps, memory of masks;
// and matchers, which take tokens and take them back.
#include <string.h>

#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

// ---- ambiguity and hostile grammars ----

static struct automaton *run_text(const struct vocabulary *vocabulary, int shape,
                                  const struct automaton_limits *limits, struct err *err) {
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t s = grammar_rule(grammar, "S"), call = grammar_call(grammar, s);
    uint32_t a = grammar_terminal(grammar, expr_string(exprs, "a"));
    uint32_t b = grammar_terminal(grammar, expr_string(exprs, "b"));
    uint32_t item = a;
    if (shape == 0) { // S = a S S | a S | a: many derivations of one text
        item =
            grammar_choice(grammar,
                           (uint32_t[]){grammar_sequence(grammar, (uint32_t[]){a, call, call}, 3),
                                        grammar_sequence(grammar, (uint32_t[]){a, call}, 2), a},
                           3);
    } else if (shape == 1) { // S = a S b | a S c | a: as many sets of stacks as texts
        uint32_t c = grammar_terminal(grammar, expr_string(exprs, "c"));
        item =
            grammar_choice(grammar,
                           (uint32_t[]){grammar_sequence(grammar, (uint32_t[]){a, call, b}, 3),
                                        grammar_sequence(grammar, (uint32_t[]){a, call, c}, 3), a},
                           3);
    } else if (shape == 2) { // S = (S?){0,100000} a
        uint32_t t = grammar_rule(grammar, "T");
        grammar_define(
            grammar, t,
            grammar_choice(
                grammar,
                (uint32_t[]){
                    grammar_sequence(grammar, (uint32_t[]){a, grammar_call(grammar, t), b}, 3),
                    GRAMMAR_EMPTY},
                2));
        item = grammar_sequence(
            grammar, (uint32_t[]){grammar_repeat(grammar, grammar_call(grammar, t), 50, 100000), b},
            2);
    }
    grammar_define(grammar, s, item);
    grammar_start(grammar, s);
    struct automaton *automaton = NULL;
    enum status status = automaton_create(&automaton, grammar, vocabulary, limits, err);
    assert_int_equal(status, OK);
    return automaton;
}

static void ambiguity(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_letters_vocabulary();
    for (int shape = 0; shape < 3; shape++) {
        struct err err = {0};
        struct automaton *automaton = run_text(vocabulary, shape, NULL, &err);
        uint32_t at = automaton_start(automaton);
        for (int i = 0; i < 400; i++) {
            if (automaton_advance(automaton, at, "a", 1, &at, &err)) fail_msg("%s", err.message);
            assert_int_not_equal(at, AUTOMATON_DEAD);
        }
        struct automaton_stats stats;
        automaton_stats(automaton, &stats);
        assert_in_range(stats.num_stacks, 1, 200000);
        automaton_release(automaton);
    }
    struct automaton *automaton = run_text(vocabulary, 2, NULL, NULL);
    fixture_check(automaton, "b", true);
    fixture_check(automaton, "abaabbabb", true);
    fixture_check(automaton, "abaabbab", false);
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// A call that takes too many steps fails alone; the automaton serves the next one.
static void steps_of_a_call(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_letters_vocabulary();
    struct err err = {0};
    struct automaton *automaton =
        run_text(vocabulary, 0, &(struct automaton_limits){.steps_max = 300}, &err);
    uint32_t at = automaton_start(automaton), next;
    static char many[1000];
    memset(many, 'a', sizeof many);
    assert_int_equal(automaton_advance(automaton, at, many, sizeof many, &next, &err),
                     ERR_CAPACITY);
    assert_string_equal(err.message, "the constraint takes more than 300 steps");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(automaton_advance(automaton, at, "a", 1, &at, &err), OK);
        assert_int_not_equal(at, AUTOMATON_DEAD);
    }
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// ---- what is refused ----

static void check_refused(struct grammar *grammar, const struct vocabulary *vocabulary,
                          enum status expected, const char *sentence) {
    struct automaton *automaton;
    struct err err = {0};
    assert_int_equal(automaton_create(&automaton, grammar, vocabulary, NULL, &err), expected);
    assert_string_equal(err.message, sentence);
}

static void refusals(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_letters_vocabulary();
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    check_refused(grammar, vocabulary, ERR_INVALID, "the grammar has no start rule");

    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    uint32_t a = grammar_rule(grammar, "a"), b = grammar_rule(grammar, "b");
    grammar_start(grammar, a);
    grammar_define(grammar, a, grammar_call(grammar, b));
    check_refused(grammar, vocabulary, ERR_INVALID, "the rule b is not defined");

    // Hidden behind something that may be empty.
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    a = grammar_rule(grammar, "a"), b = grammar_rule(grammar, "b");
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t x = grammar_terminal(grammar, expr_string(exprs, "x"));
    grammar_start(grammar, a);
    grammar_define(grammar, a,
                   grammar_choice(grammar, (uint32_t[]){grammar_call(grammar, b), x}, 2));
    grammar_define(grammar, b,
                   grammar_sequence(
                       grammar,
                       (uint32_t[]){grammar_repeat(grammar, x, 0, 5), grammar_call(grammar, a), x},
                       3));
    check_refused(grammar, vocabulary, ERR_UNSUPPORTED,
                  "the rule b is left-recursive: it can call itself before it has taken any text");

    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    a = grammar_rule(grammar, "a");
    exprs = grammar_exprs(grammar);
    x = grammar_terminal(grammar, expr_string(exprs, "x"));
    grammar_start(grammar, a);
    grammar_define(grammar, a,
                   grammar_sequence(grammar, (uint32_t[]){x, grammar_call(grammar, a)}, 2));
    check_refused(grammar, vocabulary, ERR_INVALID, "no text fits the constraint");

    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    a = grammar_rule(grammar, "a");
    grammar_start(grammar, a);
    grammar_define(grammar, a, GRAMMAR_EMPTY);
    grammar_define(grammar, a, GRAMMAR_EMPTY);
    check_refused(grammar, vocabulary, ERR_INVALID, "the rule a is defined twice");
    vocabulary_destroy(vocabulary);
}

// ---- matchers ----

static void matchers(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct automaton *automaton = fixture_run(fixture_json_grammar(0, EXPR_FOREVER, 9), vocabulary);
    int32_t end = (int32_t)vocabulary->num_tokens - 1;
    struct matcher matcher, copy;
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    automaton_release(automaton); // the matcher holds it
    struct err err = {0};
    enum { QUOTE = 0, OPEN = 4, CLOSE = 5, COMMA = 7, KEY = 12, ONE = 21 };
    assert_int_equal(matcher_take(&matcher, OPEN, NULL), OK);
    assert_int_equal(matcher_take(&matcher, COMMA, &err), ERR_INVALID);
    assert_string_equal(err.message, "token 7 does not fit the constraint");
    assert_int_equal(matcher_take(&matcher, end, NULL), ERR_INVALID);
    assert_int_equal(matcher_take(&matcher, -1, NULL), ERR_INVALID);
    assert_int_equal(matcher_take(&matcher, 100000, NULL), ERR_INVALID);
    uint32_t num_fitting;
    int32_t draft[] = {ONE, COMMA, QUOTE, KEY, QUOTE, CLOSE, end, end};
    assert_int_equal(matcher_fitting(&matcher, draft, 8, &num_fitting, NULL), OK);
    assert_int_equal(num_fitting, 7);
    draft[4] = CLOSE; // inside the string
    assert_int_equal(matcher_fitting(&matcher, draft, 7, &num_fitting, NULL), OK);
    assert_int_equal(num_fitting, 6);
    assert_int_equal(matcher.num_tokens, 1);
    assert_int_equal(matcher_take(&matcher, ONE, NULL), OK);
    assert_int_equal(matcher_copy(&copy, &matcher, NULL), OK);
    assert_int_equal(matcher_take(&matcher, CLOSE, NULL), OK);
    assert_true(matcher_can_end(&matcher));
    assert_int_equal(matcher_take(&matcher, end, NULL), OK);
    assert_true(matcher.ended);
    assert_int_equal(matcher_take(&matcher, end, NULL), ERR_INVALID);
    uint32_t words[16];
    bool any;
    assert_int_equal(matcher_mask(&matcher, words, &any, NULL), OK);
    assert_int_equal(words[end / 32], 1u << (end % 32));
    assert_true(any);
    matcher_rewind(&matcher, 2);
    assert_false(matcher.ended);
    assert_false(matcher_can_end(&matcher));
    assert_int_equal(matcher_take(&matcher, COMMA, NULL), OK);
    assert_int_equal(matcher_take(&copy, CLOSE, NULL), OK);
    assert_true(matcher_can_end(&copy));
    matcher_fini(&matcher);
    matcher_fini(&copy);
    vocabulary_destroy(vocabulary);
}

static void forced_bytes(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t root = grammar_rule(grammar, "root");
    uint32_t tail = expr_alt(exprs, expr_string(exprs, "bright"), expr_string(exprs, "brown"));
    grammar_define(
        grammar, root,
        grammar_terminal(grammar, expr_concat(exprs, expr_string(exprs, "{\"color\":\""), tail)));
    grammar_start(grammar, root);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    struct matcher matcher;
    struct buf buf = {0};
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    assert_int_equal(matcher_forced(&matcher, 100, &buf, NULL), OK);
    assert_string_equal(buf.data, "{\"color\":\"br");
    buf_clear(&buf);
    assert_int_equal(matcher_forced(&matcher, 3, &buf, NULL), OK);
    assert_string_equal(buf.data, "{\"c");
    uint32_t at;
    assert_int_equal(automaton_advance(automaton, automaton_start(automaton), "{\"color\":\"brown",
                                       15, &at, NULL),
                     OK);
    buf_clear(&buf);
    assert_int_equal(automaton_forced(automaton, at, 9, &buf, NULL), OK);
    assert_int_equal(buf.len, 0); // the text may end
    buf_fini(&buf);
    matcher_fini(&matcher);
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// Only the expression of a special token allows it.
static void special_tokens(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    int32_t call = (int32_t)vocabulary->num_tokens - 2;
    for (int special = 0; special < 2; special++) {
        struct grammar *grammar;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        uint32_t root = grammar_rule(grammar, "root");
        uint32_t e = special ? expr_special_token(exprs, "<call>", 6) : expr_any_text(exprs);
        grammar_define(grammar, root, grammar_terminal(grammar, e));
        grammar_start(grammar, root);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        struct matcher matcher;
        assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
        fixture_check_mask(automaton, automaton_start(automaton));
        assert_int_equal(matcher_take(&matcher, call, NULL), special ? OK : ERR_INVALID);
        matcher_fini(&matcher);
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// A terminal that is the inside of a JSON string ends before a quote, whatever comes behind it.
static void json_content_alone(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t root = grammar_rule(grammar, "root");
    uint32_t e = expr_json_content(exprs, expr_any_text(exprs));
    grammar_define(grammar, root, grammar_terminal(grammar, e));
    grammar_start(grammar, root);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    fixture_check(automaton, "a\\\"b", true);
    fixture_check_mask(automaton, automaton_start(automaton));
    uint32_t words[16];
    assert_int_equal(automaton_mask(automaton, automaton_start(automaton), words, NULL, NULL), OK);
    assert_int_equal(words[0] & 1, 0); // token 0 is the quote
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// Masks and steps that are dropped for want of memory are made again.
static void memory_of_masks(void **state) {
    (void)state;
    static const struct automaton_limits limits[] = {{.mask_bytes_max = 300}, {.row_bytes_max = 1}};
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct automaton *automaton;
        struct grammar *grammar = fixture_json_grammar(0, 9, 9);
        assert_int_equal(automaton_create(&automaton, grammar, vocabulary, &limits[i], NULL), OK);
        for (int round = 0; round < 3; round++) {
            uint32_t at = automaton_start(automaton);
            for (const char *p = "[1,{\"key\":\"value\"}]"; *p; p++) {
                fixture_check_mask(automaton, at);
                assert_int_equal(automaton_advance(automaton, at, p, 1, &at, NULL), OK);
            }
        }
        struct automaton_stats stats;
        automaton_stats(automaton, &stats);
        if (limits[i].mask_bytes_max) assert_in_range(stats.num_masks_made, 40, 65);
        if (limits[i].row_bytes_max) assert_in_range(automaton->num_rows, 0, 1);
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// An automaton whose memory is half used says so. When it is used up, calls end with a sentence.
static void wear(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_letters_vocabulary();
    struct grammar *grammar;
    struct grammar_limits limits = {.exprs = {.bytes_max = 1 << 18}};
    assert_int_equal(grammar_create(&grammar, &limits, NULL), OK);
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t root = grammar_rule(grammar, "root");
    uint32_t e = expr_repeat(exprs, expr_byte_range(exprs, 'a', 'c'), 0, 1000000);
    grammar_define(grammar, root, grammar_terminal(grammar, e));
    grammar_start(grammar, root);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    uint32_t at = automaton_start(automaton);
    struct err err = {0};
    assert_false(automaton_is_worn(automaton));
    int taken = 0;
    bool was_worn = false;
    while (!automaton_advance(automaton, at, "abc", 3, &at, &err) && taken < 10000) {
        was_worn = automaton_is_worn(automaton);
        taken++;
    }
    assert_in_range(taken, 100, 9999);
    assert_true(was_worn);
    assert_string_equal(err.message, "the constraint takes more than 256 KiB of memory");
    assert_int_equal(automaton_advance(automaton, at, "a", 1, &at, &err), ERR_CAPACITY);
    assert_true(automaton_is_worn(automaton));
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ambiguity),
        cmocka_unit_test(steps_of_a_call),
        cmocka_unit_test(refusals),
        cmocka_unit_test(matchers),
        cmocka_unit_test(forced_bytes),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(memory_of_masks),
        cmocka_unit_test(json_content_alone),
        cmocka_unit_test(wear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
