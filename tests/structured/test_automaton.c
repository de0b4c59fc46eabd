// Automata follow their grammars: random ones against a matcher that tries every division of the
// text. Masks have exactly the tokens that fit.
#include <stdlib.h>
#include <string.h>

#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

static uint64_t random_state = 7;
static uint32_t random_below(uint32_t n) {
    return fixture_below(&random_state, n);
}

// ---- random grammars ----

enum { NUM_RULES = 3, NUM_ITEMS = 14, TEXT_MAX = 7 };
enum form { LETTERS, CALL, SEQUENCE, CHOICE, REPEAT, NUM_FORMS };

struct model {
    enum form forms[NUM_ITEMS];
    int a[NUM_ITEMS], b[NUM_ITEMS];
    uint32_t min[NUM_ITEMS], max[NUM_ITEMS];
    int rules[NUM_RULES]; // items
    uint32_t item_ends[NUM_ITEMS][TEXT_MAX + 1], rule_ends[NUM_RULES][TEXT_MAX + 1];
};

static void model_draw(struct model *model) {
    for (int i = 0; i < NUM_ITEMS; i++) {
        model->forms[i] = i < 4 ? LETTERS : (enum form)random_below(NUM_FORMS);
        bool is_leaf = model->forms[i] == LETTERS;
        model->a[i] = is_leaf                   ? (int)random_below(7)
                      : model->forms[i] == CALL ? (int)random_below(NUM_RULES)
                                                : (int)random_below((uint32_t)i);
        model->b[i] = is_leaf ? 0 : (int)random_below((uint32_t)i);
        model->min[i] = random_below(3);
        model->max[i] = random_below(2) ? EXPR_FOREVER : model->min[i] + random_below(3);
    }
    for (int i = 0; i < NUM_RULES; i++) model->rules[i] = NUM_ITEMS - 1 - (int)random_below(5);
    model->rules[0] = NUM_ITEMS - 1;
}

static const char *const letter_texts[] = {"a", "b", "c", "", "ab", "ba", "aab"};

static struct grammar *model_build(const struct model *model) {
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t items[NUM_ITEMS], rules[NUM_RULES];
    for (int i = 0; i < NUM_RULES; i++) {
        rules[i] = grammar_rule(grammar, (const char *[]){"zero", "one", "two"}[i]);
    }
    for (int i = 0; i < NUM_ITEMS; i++) {
        int a = model->a[i], b = model->b[i];
        switch (model->forms[i]) {
        case LETTERS:
            items[i] = grammar_terminal(grammar, expr_string(exprs, letter_texts[a]));
            break;
        case CALL:
            items[i] = grammar_call(grammar, rules[a]);
            break;
        case SEQUENCE:
            items[i] = grammar_sequence(grammar, (uint32_t[]){items[a], items[b]}, 2);
            break;
        case CHOICE:
            items[i] = grammar_choice(grammar, (uint32_t[]){items[a], items[b]}, 2);
            break;
        default:
            items[i] = grammar_repeat(grammar, items[a], model->min[i], model->max[i]);
            break;
        }
    }
    for (int i = 0; i < NUM_RULES; i++) grammar_define(grammar, rules[i], items[model->rules[i]]);
    grammar_start(grammar, rules[0]);
    return grammar;
}

static uint32_t then(const uint32_t ends[TEXT_MAX + 1], uint32_t starts) {
    uint32_t result = 0;
    for (size_t at = 0; at <= TEXT_MAX; at++) {
        if (starts >> at & 1) result |= ends[at];
    }
    return result;
}

static uint32_t item_ends(const struct model *model, int i, const char *text, size_t len,
                          size_t at) {
    int a = model->a[i], b = model->b[i];
    uint32_t reached = 1u << at, result = 0;
    size_t letters;
    switch (model->forms[i]) {
    case LETTERS:
        letters = strlen(letter_texts[a]);
        if (at + letters > len || memcmp(text + at, letter_texts[a], letters) != 0) return 0;
        return 1u << (at + letters);
    case CALL:
        return model->rule_ends[a][at];
    case SEQUENCE:
        return then(model->item_ends[b], model->item_ends[a][at]);
    case CHOICE:
        return model->item_ends[a][at] | model->item_ends[b][at];
    default:
        if (model->min[i] == 0) result = reached;
        for (uint32_t n = 1; n <= 20 && n <= model->max[i]; n++) {
            reached = then(model->item_ends[a], reached);
            if (n >= model->min[i]) result |= reached;
        }
        return result;
    }
}

// The least solution: starts from no text, and adds what follows until nothing changes.
static bool model_matches(struct model *model, const char *text, size_t len) {
    memset(model->item_ends, 0, sizeof model->item_ends);
    memset(model->rule_ends, 0, sizeof model->rule_ends);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < NUM_ITEMS; i++) {
            for (size_t at = 0; at <= len; at++) {
                model->item_ends[i][at] = item_ends(model, i, text, len, at);
            }
        }
        for (int i = 0; i < NUM_RULES; i++) {
            const uint32_t *ends = model->item_ends[model->rules[i]];
            changed |= memcmp(model->rule_ends[i], ends, sizeof model->rule_ends[i]) != 0;
            memcpy(model->rule_ends[i], ends, sizeof model->rule_ends[i]);
        }
    }
    return model->rule_ends[0][0] >> len & 1;
}

// Whether a state in which the text may end can be reached. Searches all states there are.
static bool can_reach_end(struct automaton *automaton, uint32_t state) {
    enum { STATES_MAX = 3000 };
    static uint32_t queue[STATES_MAX];
    size_t len = 0;
    queue[len++] = state;
    for (size_t i = 0; i < len; i++) {
        if (automaton_can_end(automaton, queue[i])) return true;
        for (const char *p = "abc"; *p; p++) {
            uint32_t next;
            assert_int_equal(automaton_advance(automaton, queue[i], p, 1, &next, NULL), OK);
            size_t k = 0;
            while (k < len && queue[k] != next) k++;
            if (k == len && next != AUTOMATON_DEAD && len < STATES_MAX) queue[len++] = next;
        }
    }
    return len == STATES_MAX; // too many to say
}

static void check_text(struct model *model, struct automaton *automaton, const char *text,
                       size_t len, int round) {
    uint32_t state;
    struct err err = {0};
    if (automaton_advance(automaton, automaton_start(automaton), text, len, &state, &err)) {
        fail_msg("%s", err.message);
    }
    if (automaton_can_end(automaton, state) != model_matches(model, text, len)) {
        fail_msg("round %d: \"%.*s\" %s", round, (int)len, text,
                 automaton_can_end(automaton, state) ? "matches" : "does not match");
    }
    if (state == AUTOMATON_DEAD) return;
    if (!can_reach_end(automaton, state))
        fail_msg("round %d: stuck at %.*s", round, (int)len, text);
    fixture_check_mask(automaton, state);
}

static void random_grammars(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_letters_vocabulary();
    size_t num_used = 0, num_left = 0, num_nothing = 0;
    for (int round = 0; round < 1500; round++) {
        struct model model = {0};
        model_draw(&model);
        struct automaton *automaton;
        struct err err = {0};
        enum status status =
            automaton_create(&automaton, model_build(&model), vocabulary, NULL, &err);
        num_left += status == ERR_UNSUPPORTED;
        num_nothing += status == ERR_INVALID;
        if (status) continue;
        num_used++;
        for (size_t len = 0; len <= 4; len++) { // all texts of a, b and c
            size_t num_texts = len == 0 ? 1 : len == 1 ? 3 : len == 2 ? 9 : len == 3 ? 27 : 81;
            for (size_t n = 0; n < num_texts; n++) {
                char text[4];
                size_t rest = n;
                for (size_t i = 0; i < len; i++, rest /= 3) text[i] = (char)('a' + rest % 3);
                check_text(&model, automaton, text, len, round);
            }
        }
        for (int n = 0; n < 20; n++) {
            char text[TEXT_MAX];
            for (size_t i = 0; i < TEXT_MAX; i++) text[i] = (char)('a' + random_below(3));
            check_text(&model, automaton, text, TEXT_MAX, round);
        }
        automaton_release(automaton);
    }
    assert_in_range(num_used, 400, 1400);
    assert_in_range(num_left, 50, 1000);
    assert_in_range(num_nothing, 10, 1000);
    vocabulary_destroy(vocabulary);
}

// ---- JSON ----

// Walks at random by what masks allow, and checks each mask. The text always stays complete-able.
static void random_walks(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    static const uint32_t shapes[][3] = {{0, EXPR_FOREVER, EXPR_FOREVER},
                                         {2, 40, 3},
                                         {0, 1, 30},
                                         {1, 1, 0},
                                         {30, 60, 200},
                                         {0, 1, 39}};
    for (size_t shape = 0; shape < ARRAY_LEN(shapes); shape++) {
        struct automaton *automaton = fixture_run(
            fixture_json_grammar(shapes[shape][0], shapes[shape][1], shapes[shape][2]), vocabulary);
        for (int round = 0; round < 40; round++) {
            struct matcher matcher;
            assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
            for (int step = 0; step < 40 && !matcher.ended; step++) {
                fixture_check_mask(automaton, matcher.states[matcher.num_tokens]);
                uint32_t words[16];
                bool any;
                assert_int_equal(matcher_mask(&matcher, words, &any, NULL), OK);
                assert_true(any);
                uint32_t token;
                do {
                    token = random_below(vocabulary->num_tokens);
                } while (!(words[token / 32] >> (token % 32) & 1));
                assert_int_equal(matcher_take(&matcher, (int32_t)token, NULL), OK);
            }
            matcher_fini(&matcher);
        }
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

static void counters_of_rules(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct automaton *automaton = fixture_run(fixture_json_grammar(1, 2, 3), vocabulary);
    fixture_check(automaton, "[1,2]", true);
    fixture_check(automaton, "[1,[1,2,3]]", true);
    fixture_check(automaton, "[1,2,3]", true);
    fixture_check(automaton, "[1]", false);
    fixture_check(automaton, "[1,2,3,4]", false);
    fixture_check(automaton, "{\"abc\":{},\"\":[null,\"\\u00e9xx\"]}", true);
    fixture_check(automaton, "{\"abcd\":1}", false);
    automaton_release(automaton);
    automaton = fixture_run(fixture_json_grammar(0, 2, 3), vocabulary);
    // Tokens that would go beyond the maximum.
    for (size_t len = 2; len <= 6; len += 2) {
        uint32_t at = automaton_start(automaton);
        assert_int_equal(automaton_advance(automaton, at, "[1,1,1", len, &at, NULL), OK);
        fixture_check_mask(automaton, at);
    }
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// Tokens of one kind of characters and of several, under patterns that tell kinds apart, limit
// their number, or change what is allowed.
static void kinds_of_characters(void **state) {
    (void)state;
    static const char *const texts[] = {
        "a",    "b",     "ab",  "zz",   "aB", "B",   "1",   "42",         "a1",   "_",
        "a_b",  "-",     "a-b", ".",    "a.", ".b",  "é",   "aé",         "€€",   " ",
        " a",   "!",     "a!",  "/a",   "\"", "\"a", "a\"", "\xc3",       "\xa9", "Zz",
        "\x7f", "a\x7f", "abc", "abcd", "\\", "\n",  "a\n", "abcdefghij",
    };
    static const struct {
        uint32_t first, last;
    } classes[] = {{'a', 'z'},    {'A', 'Z'}, {'0', '9'},       {'a', 'f'},
                   {' ', ' '},    {'.', '/'}, {0x80, 0x10ffff}, {0x20, 0x10ffff},
                   {0, 0x10ffff}, {'!', '~'}, {'a', 'a'}};
    struct vocabulary *vocabulary = fixture_vocabulary(texts, ARRAY_LEN(texts));
    for (int round = 0; round < 150; round++) {
        struct grammar *grammar;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        uint32_t root = grammar_rule(grammar, "root"), e = EXPR_EPSILON;
        for (int part = 0; part < 3; part++) {
            uint32_t one = EXPR_NOTHING;
            for (uint32_t n = 0; n < 1 + random_below(3); n++) {
                size_t k = random_below(ARRAY_LEN(classes));
                uint32_t range = expr_char_range(exprs, classes[k].first, classes[k].last);
                one = expr_alt(exprs, one, range);
            }
            uint32_t min = random_below(2),
                     max = random_below(2) ? EXPR_FOREVER : 1 + random_below(4);
            e = expr_concat(exprs, expr_repeat(exprs, one, min, max), e);
        }
        grammar_define(grammar, root, grammar_terminal(grammar, e));
        grammar_start(grammar, root);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        uint32_t at[4] = {automaton_start(automaton)};
        for (int walk = 0; walk < 30; walk++) {
            for (int i = 0; i < 3 && at[i] != AUTOMATON_DEAD; i++) {
                fixture_check_mask(automaton, at[i]);
                const char *text = texts[random_below(ARRAY_LEN(texts))];
                enum status status =
                    automaton_advance(automaton, at[i], text, strlen(text), &at[i + 1], NULL);
                assert_int_equal(status, OK);
            }
        }
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

static void nesting(void **state) {
    (void)state;
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    struct automaton *automaton = fixture_run(fixture_json_grammar(0, EXPR_FOREVER, 5), vocabulary);
    static char text[4 * STACK_DEPTH_MAX];
    static const size_t depths[] = {1000, STACK_DEPTH_MAX - 1, STACK_DEPTH_MAX + 1, 3000};
    for (size_t i = 0; i < ARRAY_LEN(depths); i++) {
        size_t depth = depths[i];
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[depth] = '1';
        memset(text + depth + 1, ']', depth);
        text[2 * depth + 1] = '\0';
        bool can_end;
        fixture_lives(automaton, text, &can_end);
        assert_int_equal(can_end, depth <= STACK_DEPTH_MAX - 1);
    }
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
}

// Letters of one class are followed by one step. Each letter in turn begins two ways to go on, and
// all others one way, so that no sum of their marks may be another's.
static void letters_stay_apart(void **state) {
    (void)state;
    enum { FIRST = '#', NUM_LETTERS = '[' - FIRST };
    const char *texts[] = {"#", "#p"};
    struct vocabulary *vocabulary = fixture_vocabulary(texts, 2);
    for (int twice = 0; twice < NUM_LETTERS; twice++) {
        struct grammar *grammar;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        uint32_t all = EXPR_NOTHING;
        for (int i = 0; i < NUM_LETTERS; i++) {
            char letter[] = {(char)(FIRST + i), 0}, rest[] = {'a', (char)(FIRST + i), 0};
            uint32_t own = expr_concat(exprs, expr_string(exprs, letter), expr_string(exprs, rest));
            if (i == twice) {
                uint32_t one = expr_string(exprs, letter);
                uint32_t head = expr_alt(exprs, one, expr_string(exprs, "xyz"));
                own = expr_concat(exprs, head, expr_string(exprs, "p"));
                head = expr_alt(exprs, one, expr_string(exprs, "uvw"));
                own = expr_alt(exprs, own, expr_concat(exprs, head, expr_string(exprs, "q")));
            }
            all = expr_alt(exprs, all, own);
        }
        uint32_t rule = grammar_rule(grammar, "root");
        grammar_define(grammar, rule, grammar_terminal(grammar, all));
        grammar_start(grammar, rule);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        fixture_check_mask(automaton, automaton_start(automaton)); // from then on steps are kept
        for (int i = 0; i < NUM_LETTERS; i++) {
            char text[] = {(char)(FIRST + i), 'p', 0};
            fixture_check(automaton, text, i == twice);
        }
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// A key that may be any but the named ones: its mask is right wherever names begin and end, also
// where the others are none of a pattern, and needs no walk along the names.
static void keys_without_a_name(void **state) {
    (void)state;
    static const char *const names[] = {"a",  "ab", "bd",    "d",    "ed",   "key",
                                        "nu", "u",  "value", "true", "four", "sixsix"};
    static const char *const prefixes[] = {"",   "a",       "ab",   "abb", "k",
                                           "ke", "sevenne", "\xc3", "\\",  "\\u"};
    struct vocabulary *vocabulary = fixture_json_vocabulary();
    for (int is_pattern = 0; is_pattern < 2; is_pattern++) {
        struct grammar *grammar;
        assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
        struct exprs *exprs = grammar_exprs(grammar);
        uint32_t named = EXPR_NOTHING, others = EXPR_NOTHING, rule = grammar_rule(grammar, "root");
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            named = expr_alt(exprs, named, expr_string(exprs, names[i]));
        }
        others = expr_minus(exprs, expr_any_text(exprs), named);
        // "a" and what follows it: no plain character may follow "a" in the others.
        uint32_t a = expr_concat(exprs, expr_string(exprs, "a"), expr_any_text(exprs));
        if (is_pattern) others = expr_minus(exprs, others, a);
        uint32_t items[] = {
            grammar_terminal(grammar, expr_concat(exprs, expr_json_content(exprs, others),
                                                  expr_string(exprs, "\""))),
            grammar_terminal(grammar, expr_string(exprs, "key\":1")),
        };
        grammar_define(grammar, rule, grammar_choice(grammar, items, 2));
        grammar_start(grammar, rule);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        uint32_t at = automaton_start(automaton);
        struct plain plain = automaton_plain(automaton, at);
        assert_int_equal(plain.chars == PLAIN_ALL, !is_pattern);
        assert_int_equal(vocabulary_has_all_kinds(plain.kinds), !is_pattern);
        for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
            assert_int_equal(automaton_advance(automaton, automaton_start(automaton), prefixes[i],
                                               strlen(prefixes[i]), &at, NULL),
                             OK);
            fixture_check_mask(automaton, at);
        }
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_grammars),
        cmocka_unit_test(random_walks),
        cmocka_unit_test(counters_of_rules),
        cmocka_unit_test(kinds_of_characters),
        cmocka_unit_test(nesting),
        cmocka_unit_test(letters_stay_apart),
        cmocka_unit_test(keys_without_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
