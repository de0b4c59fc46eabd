// Grammars that people write: GBNF, lists of choices, structural tags. What they accept, and the
// sentences for what is wrong.
#include <stdlib.h>
#include <string.h>

#include "structured/read/choice.h"
#include "structured/read/expression.h"
#include "structured/read/gbnf.h"
#include "structured/read/outputs.h"
#include "structured/read/tags.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

static struct vocabulary *vocabulary;

static struct grammar *create(void) {
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    return grammar;
}

static struct automaton *run_gbnf(const char *text) {
    struct grammar *grammar = create();
    uint32_t rule;
    struct err err = {0};
    if (gbnf_add(grammar, text, strlen(text), &rule, &err)) fail_msg("%s", err.message);
    grammar_start(grammar, rule);
    return fixture_run(grammar, vocabulary);
}

// `fitting` and `other` are texts with '|' between them.
static void check_texts(struct automaton *automaton, const char *texts, bool expected) {
    char *copy = strdup(texts);
    assert_non_null(copy);
    for (char *at = copy; at;) {
        char *end = strchr(at, '|');
        if (end) *end = '\0';
        fixture_check(automaton, at, expected);
        at = end ? end + 1 : NULL;
    }
    free(copy);
}

static void gbnf_texts(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *fitting, *other;
    } cases[] = {
        {"root ::= \"yes\" | \"no\"", "yes|no", "|yesno|ye|maybe"},
        {"root ::= greeting \" \" name\ngreeting ::= \"hi\" |\n  \"hello\" # either\nname ::= "
         "[A-Z] [a-z]*",
         "hi Bob|hello X", "hi bob|Bob|hi Bob!"},
        {"root ::= (\"a\" | \"b\"){2,3} \"c\"+ \"d\"?", "abc|bbaccd|aac", "ac|abab|abdd|aaaac"},
        {"root ::= [^a-c\\n]{2}", "xy|dé", "ax|x|xyz|x\n"},
        {"root ::= [\\x41\\u00e9\\U0001F600\\]\\[\\\\-]", "A|é|😀|]|[|\\|-", "B|e"},
        {"root ::= \"\\\"q\\\"\\t\\x21\\u20ac\"", "\"q\"\t!€", "q"},
        {"root ::= . .", "ab|é\n", "a|abc"},
        {"root ::= list\nlist ::= \"(\" list* \")\"", "()|(()(()))", "(|())"},
        {"root ::= x{3} y{2,}\nx::=\"x\"\ny ::= \"y\"", "xxxyy|xxxyyyy", "xxyy|xxxy"},
        {"root ::= a_b-2\r\na_b-2 ::= \"k\"", "k", ""},
        {"root ::= \"\"", "", "a"},
        {"root ::= (\"a\" |) \"b\"", "b|ab", "a"},
        {"expr-is-unused ::= undefined\nroot ::= \"x\"", "x", "y"},
        {"root ::= b | \"x\"\nb ::= b \"y\"", "x", "xy|y"}, // b has no text
        {"root\n  ::=\n  \"a\"\n  \"b\"\n", "ab", "a"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct automaton *automaton = run_gbnf(cases[i].grammar);
        check_texts(automaton, cases[i].fitting, true);
        check_texts(automaton, cases[i].other, false);
        automaton_release(automaton);
    }
}

// The grammar of JSON that llama.cpp comes with, in its form.
static void gbnf_json(void **state) {
    (void)state;
    struct automaton *automaton = run_gbnf(
        "root   ::= object\n"
        "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
        "object ::=\n  \"{\" ws (\n            string \":\" ws value\n"
        "    (\",\" ws string \":\" ws value)*\n  )? \"}\" ws\n"
        "array  ::=\n  \"[\" ws (\n            value\n    (\",\" ws value)*\n  )? \"]\" ws\n"
        "string ::=\n  \"\\\"\" (\n    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
        "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n  )* \"\\\"\" ws\n"
        "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
        "[1-9]{0,15})? ws\n"
        "# Optional space: by convention, applied in this grammar after literal chars when "
        "allowed\n"
        "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n");
    check_texts(automaton, "{}|{\"a\": [1, -2.5e3, true]}|{\"key\":{\"é\":\"\\u00e9\"}} ", true);
    check_texts(automaton, "[]|{\"a\":01}|{a:1}|{\"a\":1,}|{}  |{\"\x01\":1}", false);
    fixture_check_mask(automaton, automaton_start(automaton));
    automaton_release(automaton);
}

static void gbnf_faults(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *sentence;
    } cases[] = {
        {"", "the grammar has no rule called root"},
        {"a ::= \"x\"", "the grammar has no rule called root"},
        {"root ::= \"a", "line 1, column 10 of the grammar: a string has no end"},
        {"root ::= \"a\n\"", "line 1, column 10 of the grammar: a string has no end"},
        {"root ::= [a-", "line 1, column 10 of the grammar: a class has no end"},
        {"root ::= [z-a]", "line 1, column 11 of the grammar: a range goes backward"},
        {"root ::=\n (\"a\"", "line 2, column 2 of the grammar: a group has no end"},
        {"root ::= \"a\")", "line 1, column 13 of the grammar: a \")\" without its \"(\""},
        {"root ::= \"\\q\"", "line 1, column 11 of the grammar: this escape is not known"},
        {"root ::= \"\\u12\"",
         "line 1, column 11 of the grammar: an escape has too few hexadecimal digits"},
        {"root ::= \"\\ud800\"", "line 1, column 11 of the grammar: an escape is no character"},
        {"root ::= \"a\"{3,2}",
         "line 1, column 13 of the grammar: a repetition has more at least than at most"},
        {"root ::= \"a\"{,2}", "line 1, column 14 of the grammar: a count is missing"},
        {"root ::= \"a\"{2", "line 1, column 13 of the grammar: a repetition has no end"},
        {"root ::= \"a\"{999999999}",
         "line 1, column 14 of the grammar: a count is above 100000000"},
        {"root ::= <think>", "line 1, column 10 of the grammar: tokens by name are not supported"},
        {"root ::= =", "line 1, column 10 of the grammar: this begins no item"},
        {"root = \"a\"", "line 1, column 1 of the grammar: want a rule: name ::= ..."},
        {"root ::= \"a\"\nroot ::= \"b\"", "the rule root is defined twice"},
        {"root ::= \"\xff\"", "the grammar is not valid UTF-8"},
        {"root ::= \"a\"??????????+",
         "line 1, column 23 of the grammar: too many repetitions of one item"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *grammar = create();
        uint32_t rule;
        struct err err = {0};
        enum status status =
            gbnf_add(grammar, cases[i].grammar, strlen(cases[i].grammar), &rule, &err);
        if (!status) fail_msg("%s is accepted", cases[i].grammar);
        assert_string_equal(err.message, cases[i].sentence);
        grammar_destroy(grammar);
    }
    static char deep[400] = "root ::= ";
    memset(deep + 9, '(', 300);
    struct grammar *grammar = create();
    struct err err = {0};
    uint32_t rule;
    assert_int_equal(gbnf_add(grammar, deep, strlen(deep), &rule, &err), ERR_FORMAT);
    assert_string_equal(err.message,
                        "line 1, column 110 of the grammar: groups are nested too deep");
    grammar_destroy(grammar);
}

static struct grammar *add_expression(const char *text, enum status expected, struct err *err) {
    struct grammar *grammar = create();
    uint32_t rule = 0;
    enum status status = expression_add(grammar, text, strlen(text), &rule, err);
    if (status != expected) fail_msg("%s: %d %s", text, (int)status, err->message);
    grammar_start(grammar, rule);
    return grammar;
}

// The whole text matches, with or without anchors.
static void expressions(void **state) {
    (void)state;
    static const struct {
        const char *expression, *fitting, *other;
    } cases[] = {
        {"a+b?", "a|aab", "|xaab|aabx|b"},
        {"^a+b?$", "a|aab", "|xaab|aabx|b"},
        {"a|bc", "a|bc", "abc|ac|xa|bcx"},
        {"\\d{3}-\\d{4}", "123-4567", "123-456|٣٣٣-4567"},
        {"[^\\W_]+@(x|y)\\.com", "ab1@x.com", "a_b@x.com|a@xcom"},
        {"(?=.*[0-9])[a-z0-9]{4}", "a1bc|1234", "abcd|a1b"},
        {"é.\\u20ac", "éx€", "ex€|éx"},
    };
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *grammar = add_expression(cases[i].expression, OK, &err);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        for (int fits = 0; fits < 2; fits++) {
            const char *texts = fits ? cases[i].fitting : cases[i].other;
            check_texts(automaton, texts, fits);
        }
        fixture_check_mask(automaton, automaton_start(automaton));
        automaton_release(automaton);
    }
    grammar_destroy(add_expression("(a", ERR_FORMAT, &err));
    grammar_destroy(add_expression("(a)\\1", ERR_UNSUPPORTED, &err));
    grammar_destroy(add_expression("\xff", ERR_FORMAT, &err));
    assert_string_equal(err.message, "the expression is not valid UTF-8");
}

static void choices(void **state) {
    (void)state;
    struct grammar *grammar = create();
    static const struct expr_text texts[] = {{"red", 3}, {"r\"e\"d", 5}, {"grün", 5}};
    uint32_t rule;
    struct err err = {0};
    assert_int_equal(choice_add(grammar, texts, 3, &rule, NULL), OK);
    grammar_start(grammar, rule);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    check_texts(automaton, "red|r\"e\"d|grün", true);
    check_texts(automaton, "|re|redred|gr", false);
    automaton_release(automaton);
    grammar = create();
    assert_int_equal(choice_add(grammar, texts, 0, &rule, &err), ERR_INVALID);
    assert_string_equal(err.message, "the list of choices is empty");
    assert_int_equal(choice_add(grammar, (struct expr_text[]){{"\xff", 1}}, 1, &rule, &err),
                     ERR_INVALID);
    assert_string_equal(err.message, "choice 0 is not valid UTF-8");
    grammar_destroy(grammar);
    for (size_t num_texts = 1; num_texts <= 2; num_texts++) { // the empty text is one, also alone
        grammar = create();
        static const struct expr_text some[] = {{"", 0}, {"a", 1}};
        assert_int_equal(choice_add(grammar, some, num_texts, &rule, NULL), OK);
        grammar_start(grammar, rule);
        automaton = fixture_run(grammar, vocabulary);
        fixture_check(automaton, "", true);
        fixture_check(automaton, "a", num_texts == 2);
        automaton_release(automaton);
    }
}

// Where the reader of an answer gets it without a blank at its start, what is left has the form.
static void stripped_blanks(void **state) {
    (void)state;
    static const struct {
        const char *form, *fitting, *others; // texts between |
    } rows[] = {
        {"{\"choice\": [\"ab\", \" c\", \"\"]}", "ab| ab|  c|| ", " c|c|  ab|  "},
        {"{\"regex\": \" *x\"}", "x| x|  x", "x |y"},
        {"{\"json\": {\"const\": 1}}", "1| 1", "  1|1 |"},
        {"{\"json_object\": true}", "{}| {}", "  {}| |"},
        {"{\"grammar\": \"root ::= [ab]\"}", "a|b", " a|"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct grammar *grammar;
        struct err err = {0};
        vocabulary->strips_blank = true;
        enum status status =
            outputs_read(&grammar, rows[i].form, strlen(rows[i].form), vocabulary, &err);
        vocabulary->strips_blank = false;
        if (status) fail_msg("%s", err.message);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        check_texts(automaton, rows[i].fitting, true);
        check_texts(automaton, rows[i].others, false);
        automaton_release(automaton);
    }
}

// Tags <a=1>digits</a>, <a=2>letters</a> and [[x]], whose mark is its whole beginning.
static enum status add_tags(struct grammar *grammar, const struct tags_options *options,
                            uint32_t *rule, struct err *err) {
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t digits = expr_repeat(exprs, expr_byte_range(exprs, '0', '9'), 1, 3);
    uint32_t letters = expr_repeat(exprs, expr_byte_range(exprs, 'a', 'z'), 1, 3);
    struct tag tags[] = {
        {.begin = {"<a=1>", 5}, .end = {"</a>", 4}, .content = grammar_terminal(grammar, digits)},
        {.begin = {"<a=2>", 5}, .end = {"</a>", 4}, .content = grammar_terminal(grammar, letters)},
        {.begin = {"[[", 2},
         .end = {"]]", 2},
         .content = grammar_terminal(grammar, expr_string(exprs, "x"))},
    };
    return tags_add(grammar, tags, 3, options, rule, err);
}

static struct automaton *run_tags(const struct tags_options *options) {
    struct grammar *grammar = create();
    uint32_t rule;
    struct err err = {0};
    if (add_tags(grammar, options, &rule, &err)) fail_msg("%s", err.message);
    grammar_start(grammar, rule);
    return fixture_run(grammar, vocabulary);
}

static void tags_texts(void **state) {
    (void)state;
    static const struct expr_text triggers[] = {{"<a=", 3}, {"[", 1}};
    static const struct {
        struct tags_options options;
        const char *fitting, *other;
    } cases[] = {
        {{0},
         "|plain [ text <a=3>|see <a=1>12</a> and "
         "<a=2>ab</a>.|<a=1>1</a>[[x]]|<<a=1>1</a>|<a=<a=1>1</a>",
         "<a=1>x</a>|<a=1>1</a|[[y]]|a [[x]"},
        {{.triggers = triggers, .num_triggers = 2},
         "text < a=|see <a=1>12</a> and <a=2>ab</a>.|[[x]] < [[x]]",
         "<a=3>|plain [ text|<a=|<a=1>ab</a>"},
        {{.at_least_one = true}, "<a=1>1</a>|x<a=1>1</a>y[[x]]z", "|text"},
        {{.at_most_one = true}, "text|text <a=1>1</a>", "<a=1>1</a> more|<a=1>1</a><a=1>1</a>"},
        {{.only_tags = true, .at_least_one = true, .separator = {", ", 2}},
         "<a=1>1</a>|<a=1>1</a>, [[x]]",
         "|text|<a=1>1</a><a=1>1</a>| <a=1>1</a>"},
        {{.only_tags = true, .at_most_one = true}, "|<a=2>a</a>", "<a=2>a</a><a=2>a</a>|a"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct automaton *automaton = run_tags(&cases[i].options);
        check_texts(automaton, cases[i].fitting, true);
        check_texts(automaton, cases[i].other, false);
        fixture_check_mask(automaton, automaton_start(automaton));
        automaton_release(automaton);
    }
}

static void tags_special(void **state) {
    (void)state;
    struct grammar *grammar = create();
    struct exprs *exprs = grammar_exprs(grammar);
    struct tag tag = {.begin = {"<call>", 6},
                      .special = true,
                      .content = grammar_terminal(grammar, expr_string(exprs, "[1]"))};
    uint32_t rule;
    assert_int_equal(tags_add(grammar, &tag, 1, &(struct tags_options){0}, &rule, NULL), OK);
    grammar_start(grammar, rule);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    check_texts(automaton, "text <call> spelled|\xff<call>\xff[1]|a\xff<call>\xff[1]b", true);
    check_texts(automaton, "\xff<call>\xff[2]|\xff<call>\xff", false);
    automaton_release(automaton);
}

static void tags_faults(void **state) {
    (void)state;
    struct err err = {0};
    uint32_t rule;
    static const struct {
        struct expr_text trigger;
        const char *sentence;
    } cases[] = {
        {{"<b", 2}, "tag 0, \"<a=1>\", starts with no trigger"},
        {{"<a=", 3}, "tag 2, \"[[\", starts with no trigger"},
        {{"", 0}, "trigger 0 is empty"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *grammar = create();
        struct tags_options options = {.triggers = &cases[i].trigger, .num_triggers = 1};
        assert_int_equal(add_tags(grammar, &options, &rule, &err), ERR_INVALID);
        assert_string_equal(err.message, cases[i].sentence);
        grammar_destroy(grammar);
    }
    struct grammar *grammar = create();
    static const struct expr_text triggers[] = {{"<", 1}, {"[", 1}, {"(", 1}};
    struct tags_options options = {.triggers = triggers, .num_triggers = 3};
    assert_int_equal(add_tags(grammar, &options, &rule, &err), ERR_INVALID);
    assert_string_equal(err.message, "trigger 2 starts no tag");
    assert_int_equal(tags_add(grammar, NULL, 0, &options, &rule, &err), ERR_INVALID);
    assert_string_equal(err.message, "there are no structural tags");
    struct tag empty = {.content = GRAMMAR_EMPTY};
    assert_int_equal(tags_add(grammar, &empty, 1, &(struct tags_options){0}, &rule, &err),
                     ERR_INVALID);
    assert_string_equal(err.message, "tag 0 has no beginning");
    grammar_destroy(grammar);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_texts),  cmocka_unit_test(gbnf_json),
        cmocka_unit_test(gbnf_faults), cmocka_unit_test(expressions),
        cmocka_unit_test(choices),     cmocka_unit_test(stripped_blanks),
        cmocka_unit_test(tags_texts),  cmocka_unit_test(tags_special),
        cmocka_unit_test(tags_faults),
    };
    vocabulary = fixture_json_vocabulary();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return failed;
}
