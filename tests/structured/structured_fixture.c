#include "structured/structured_fixture.h"

#include <string.h>

#include "support/cmocka_all.h"

struct vocabulary *fixture_vocabulary(const char *const *texts, uint32_t num_texts) {
    struct vocabulary_token tokens[512];
    assert_true(num_texts + 2 <= ARRAY_LEN(tokens));
    for (uint32_t i = 0; i < num_texts; i++) {
        tokens[i] = (struct vocabulary_token){.bytes = texts[i], .len = (uint32_t)strlen(texts[i])};
    }
    tokens[num_texts] = (struct vocabulary_token){.bytes = "<call>", .len = 6, .special = true};
    tokens[num_texts + 1] = (struct vocabulary_token){.bytes = "<end>", .len = 5, .special = true};
    int32_t ending[] = {(int32_t)num_texts + 1, -1, 100000};
    struct vocabulary *vocabulary;
    struct err err = {0};
    if (vocabulary_create(&vocabulary, tokens, num_texts + 2, ending, 3, &err)) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(vocabulary->num_ending, 1);
    return vocabulary;
}

struct vocabulary *fixture_letters_vocabulary(void) {
    static const char *const texts[] = {"a",  "b",   "c",   "aa",   "ab", "ba",   "abc",
                                        "bb", "aab", "bba", "aaaa", "ab", "caba", ""};
    return fixture_vocabulary(texts, ARRAY_LEN(texts));
}

struct vocabulary *fixture_json_vocabulary(void) {
    static const char *const texts[] = {"\"",
                                        "\\",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ":",
                                        ",",
                                        " ",
                                        "\n",
                                        "a",
                                        "b",
                                        "key",
                                        "value",
                                        "\":",
                                        "\",",
                                        "\"}",
                                        "\"]",
                                        "{\"",
                                        "true",
                                        "null",
                                        "1",
                                        "12",
                                        ".5",
                                        "e9",
                                        "-",
                                        "\\n",
                                        "\\u",
                                        "00",
                                        "41",
                                        "d83d",
                                        "\\\"",
                                        "\xc3",
                                        "\xa9",
                                        "\xc3\xa9",
                                        "\xe2\x82",
                                        "\xe2\x82\xac",
                                        "\xac",
                                        "x\xc3",
                                        "long text in a string",
                                        ",1,1",
                                        ",1,1,1",
                                        "forty characters are longer than a slice..",
                                        "four",
                                        "five5",
                                        "sixsix",
                                        "sevenne",
                                        "\xed\xa0\x80",
                                        "\x01",
                                        "\t",
                                        "de00",
                                        "d",
                                        "e",
                                        "u"};
    return fixture_vocabulary(texts, ARRAY_LEN(texts));
}

void fixture_check_mask(struct automaton *automaton, uint32_t state) {
    const struct vocabulary *vocabulary = automaton_vocabulary(automaton);
    uint32_t words[16] = {0};
    bool any, found_any = false;
    struct err err = {0};
    assert_true(vocabulary->num_words <= ARRAY_LEN(words));
    if (automaton_mask(automaton, state, words, &any, &err)) fail_msg("%s", err.message);
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) {
        uint32_t len, name_len, next = 0;
        const char *text = vocabulary_text(vocabulary, i, &len);
        const char *name = vocabulary_name(vocabulary, i, &name_len);
        if (vocabulary_is_ending(vocabulary, (int32_t)i)) {
            next = automaton_can_end(automaton, state);
        } else if (len) {
            assert_int_equal(automaton_advance(automaton, state, text, len, &next, NULL), OK);
            if (name_len && next == AUTOMATON_DEAD) {
                assert_int_equal(automaton_advance(automaton, state, name, name_len, &next, NULL),
                                 OK);
            }
        }
        bool is_set = words[i / 32] >> (i % 32) & 1;
        if (is_set != (next != AUTOMATON_DEAD)) {
            fail_msg("token %u \"%.*s\" is %sallowed", i, (int)len, text, is_set ? "" : "not ");
        }
        found_any |= is_set;
    }
    assert_int_equal(any, found_any);
}

struct grammar *fixture_json_grammar(uint32_t items_min, uint32_t items_max, uint32_t chars_max) {
    struct grammar *grammar;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t value = grammar_rule(grammar, "value"), quote = expr_string(exprs, "\"");
    uint32_t text = expr_repeat(exprs, expr_any_char(exprs), 0, chars_max);
    uint32_t string =
        expr_concat_all(exprs, (uint32_t[]){quote, expr_json_content(exprs, text), quote}, 3);
    uint32_t digits = expr_repeat(exprs, expr_byte_range(exprs, '0', '9'), 1, EXPR_FOREVER);
    uint32_t comma = grammar_terminal(grammar, expr_string(exprs, ","));
    uint32_t call = grammar_call(grammar, value);
    uint32_t more = grammar_sequence(grammar, (uint32_t[]){comma, call}, 2);
    uint32_t rest = grammar_repeat(grammar, more, items_min, items_max);
    uint32_t array =
        grammar_sequence(grammar,
                         (uint32_t[]){grammar_terminal(grammar, expr_string(exprs, "[")), call,
                                      rest, grammar_terminal(grammar, expr_string(exprs, "]"))},
                         4);
    uint32_t key = grammar_terminal(grammar, expr_concat(exprs, string, expr_string(exprs, ":")));
    uint32_t member = grammar_sequence(grammar, (uint32_t[]){key, call}, 2);
    uint32_t members = grammar_sequence(
        grammar,
        (uint32_t[]){member, grammar_repeat(
                                 grammar, grammar_sequence(grammar, (uint32_t[]){comma, member}, 2),
                                 0, EXPR_FOREVER)},
        2);
    uint32_t object =
        grammar_sequence(grammar,
                         (uint32_t[]){grammar_terminal(grammar, expr_string(exprs, "{")),
                                      grammar_optional(grammar, members),
                                      grammar_terminal(grammar, expr_string(exprs, "}"))},
                         3);
    uint32_t plain = grammar_terminal(
        grammar, expr_alt_all(exprs, (uint32_t[]){string, digits, expr_string(exprs, "null")}, 3));
    grammar_define(grammar, value, grammar_choice(grammar, (uint32_t[]){object, array, plain}, 3));
    grammar_start(grammar, value);
    return grammar;
}

struct automaton *fixture_run(struct grammar *grammar, const struct vocabulary *vocabulary) {
    struct automaton *automaton;
    struct err err = {0};
    if (automaton_create(&automaton, grammar, vocabulary, NULL, &err)) fail_msg("%s", err.message);
    return automaton;
}

bool fixture_lives(struct automaton *automaton, const char *text, bool *can_end) {
    struct matcher matcher;
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    enum status status = OK;
    for (const char *p = text; *p && !status; p++) {
        status = matcher_take_bytes(&matcher, p, 1, NULL);
    }
    *can_end = status == OK && matcher_can_end(&matcher);
    matcher_fini(&matcher);
    assert_true(status == OK || status == ERR_INVALID);
    return status == OK;
}

void fixture_check(struct automaton *automaton, const char *text, bool expected) {
    bool can_end;
    fixture_lives(automaton, text, &can_end);
    if (can_end != expected) fail_msg("%s %s", text, can_end ? "fits" : "does not fit");
}
