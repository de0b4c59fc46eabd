// Where a form leaves one text only, its tokens are the tokenizer's own. The tokenizer is the
// bundled one.
#include <stdio.h>
#include <string.h>

#include "structured/forced_tokens.h"
#include "structured/read/outputs.h"
#include "structured/vocabulary/vocabulary_tokenizer.h"
#include "support/cmocka_all.h"
#include "text/tokenizer/tokenizer.h"

enum { VOCAB = 4096 };

static struct tokenizer *tokenizer;
static struct vocabulary *vocabulary;

// The tokens behind `before` that the form forces, with blanks between their texts.
static void expect_forced(const char *form, const char *before, const char *expected) {
    struct grammar *grammar;
    struct automaton *automaton;
    struct matcher matcher;
    struct err err = {0};
    if (outputs_read(&grammar, form, strlen(form), NULL, &err) ||
        automaton_create(&automaton, grammar, vocabulary, NULL, &err) ||
        matcher_init(&matcher, automaton, &err) ||
        matcher_take_bytes(&matcher, before, strlen(before), &err)) {
        fail_msg("%s", err.message);
    }
    int32_t tokens[FORCED_TOKENS_MAX];
    uint32_t count = 0;
    char text[2048] = "";
    assert_int_equal(forced_tokens(&matcher, tokenizer, tokens, &count, NULL), OK);
    for (uint32_t i = 0; i < count; i++) {
        size_t len, at = strlen(text);
        const char *bytes = tokenizer_token_bytes(tokenizer, tokens[i], &len);
        snprintf(text + at, sizeof text - at, "%s%.*s", i ? "|" : "", (int)len, bytes);
    }
    assert_string_equal(text, expected);
    matcher_fini(&matcher);
    automaton_release(automaton);
}

#define COMPACT                                                                                    \
    "{\"json\": {\"type\": \"object\", \"properties\": {\"customer_name\": {\"type\": "            \
    "\"boolean\"}}, \"required\": [\"customer_name\"], \"additionalProperties\": false}, "         \
    "\"disable_any_whitespace\": true}"

static void test_certain_text(void **state) {
    (void)state;
    expect_forced("{\"choice\": [\"Ninety-five it is.\"]}", "", "N|in|et|y|-|f|ive| it| is|.");
    expect_forced("{\"choice\": [\"Ninety-five it is.\"]}", "Nine", "ty|-|f|ive| it| is|.");
    expect_forced("{\"choice\": [\"abc\", \"xbc\"]}", "", "");
    expect_forced("{\"regex\": \"[ab]\"}", "", "");
    expect_forced("{\"regex\": \"a*\"}", "", "");
    expect_forced("{\"choice\": [\"ab\", \"abc\"]}", "", "ab");
    expect_forced("{\"choice\": [\"a\"]}", "a", ""); // the text has ended
}

// Behind the certain text comes t or f: no token of the vocabulary has the end of the key and one
// of these.
static void test_key(void **state) {
    (void)state;
    expect_forced(COMPACT, "", "{\"|c|ust|om|er|_|name|\":");
    expect_forced(COMPACT, "{\"cu", "st|om|er|_|name|\":");
}

// A longer token that is legal could come instead of the last one: the model chooses.
static void test_longer_token(void **state) {
    (void)state;
    expect_forced("{\"regex\": \"( the| that)\"}", "", "");
    expect_forced("{\"regex\": \"\\\"name(\\\"|s)\"}", "", "\"|name");
    expect_forced("{\"regex\": \"x nam(e|y)\"}", "", "x");
}

static void test_names(void **state) {
    (void)state;
    expect_forced("{\"structural_tag\": {\"format\": {\"type\": \"sequence\", \"elements\": ["
                  "{\"type\": \"const_string\", \"value\": \"it is\"}, "
                  "{\"type\": \"token\", \"token\": \"<tool_call>\"}, "
                  "{\"type\": \"const_string\", \"value\": \"{\"}, "
                  "{\"type\": \"token\", \"token\": \"<|im_end|>\"}]}}}",
                  "", "it| is|<tool_call>|{|<|im_end|>");
    // The text of a special token is not the token.
    expect_forced("{\"choice\": [\"it<|im_end|>\"]}", "", "it");
}

static void test_long_text(void **state) {
    (void)state;
    char form[1024] = "{\"choice\": [\"", expected[1024] = "";
    for (int i = 0; i < 128; i++) strcat(form, "@!");
    strcat(form, "\"]}");
    for (int i = 0; i < FORCED_TOKENS_MAX; i++) strcat(expected, i % 2 ? "|!" : i ? "|@" : "@");
    expect_forced(form, "", expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_certain_text), cmocka_unit_test(test_key),
        cmocka_unit_test(test_longer_token), cmocka_unit_test(test_names),
        cmocka_unit_test(test_long_text),
    };
    int32_t ending = -1;
    struct err err = {0};
    if (tokenizer_open_file(&tokenizer, "models/tiny-qwen3/tokenizer.json", &err) ||
        !tokenizer_find(tokenizer, "<|endoftext|>", 13, &ending) ||
        vocabulary_of_tokenizer(&vocabulary, tokenizer, VOCAB, &ending, 1, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int failed = cmocka_run_group_tests_name("forced_tokens", tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    tokenizer_close(tokenizer);
    return failed;
}
