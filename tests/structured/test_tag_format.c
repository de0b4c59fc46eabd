// The "format" of structural tags: what each part accepts, the sentences of faults, and tokens that
// have a name and a text.
#include <stdio.h>
#include <string.h>

#include "structured/read/outputs.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

enum { NAMED = 4, PLAIN, ENDING, NUM_TOKENS };

// "<t>" is an added token that is not special; the text may be spelled by others too.
static struct vocabulary *make_vocabulary(void) {
    static const char *const texts[NUM_TOKENS] = {"<", "t", ">", "a", "<t>", "x<t>", "<end>"};
    struct vocabulary_token tokens[NUM_TOKENS];
    for (size_t i = 0; i < NUM_TOKENS; i++) {
        tokens[i] = (struct vocabulary_token){.bytes = texts[i], .len = (uint32_t)strlen(texts[i])};
    }
    tokens[NAMED].named = true;
    tokens[ENDING].special = true;
    struct vocabulary *vocabulary = NULL;
    int32_t ending = ENDING;
    assert_int_equal(vocabulary_create(&vocabulary, tokens, NUM_TOKENS, &ending, 1, NULL), OK);
    return vocabulary;
}

static struct automaton *run_format(const char *format, const struct vocabulary *vocabulary) {
    char text[4096];
    struct grammar *grammar;
    struct err err = {0};
    int len = snprintf(text, sizeof text, "{\"structural_tag\": {\"format\": %s}}", format);
    if (outputs_read(&grammar, text, (size_t)len, vocabulary, &err)) fail_msg("%s", err.message);
    return fixture_run(grammar, vocabulary);
}

#define TAG_A                                                                                      \
    "{\"begin\": \"<a>\", \"content\": {\"type\": \"const_string\", \"value\": \"1\"}, \"end\": "  \
    "\"!\"}"
#define TAG_T                                                                                      \
    "{\"begin\": {\"type\": \"token\", \"token\": \"<t>\"}, "                                      \
    "\"content\": {\"type\": \"regex\", \"pattern\": \"a*\"}, \"end\": \"\"}"

static void test_parts(void **state) {
    (void)state;
    static const struct {
        const char *format;
        const char *fitting[4], *others[4]; // NULL ends a list
    } cases[] = {
        {"{\"type\": \"const_string\", \"value\": \"ab\"}", {"ab"}, {"", "a", "abc"}},
        {"{\"type\": \"regex\", \"pattern\": \"a+\"}", {"a", "aa"}, {"", "b"}},
        {"{\"type\": \"grammar\", \"grammar\": \"root ::= [ab]\"}", {"a", "b"}, {"", "c"}},
        {"{\"type\": \"json_schema\", \"json_schema\": {\"const\": 5}}", {"5"}, {"6"}},
        {"{\"type\": \"any_text\"}", {"", "<t>"}, {"\xff<t>\xff"}},
        {"{\"type\": \"any_text\", \"excludes\": [\"<t>\"]}", {"<", "a<t"}, {"a<t>"}},
        {"{\"type\": \"token\", \"token\": \"<t>\"}", {"\xff<t>\xff"}, {"<t>", ""}},
        {"{\"type\": \"sequence\", \"elements\": [{\"type\": \"const_string\", \"value\": \"a\"}, "
         "{\"type\": \"optional\", \"content\": {\"type\": \"const_string\", \"value\": \"b\"}}]}",
         {"a", "ab"},
         {"b", "abb"}},
        {"{\"type\": \"or\", \"elements\": [{\"type\": \"const_string\", \"value\": \"a\"}, "
         "{\"type\": \"const_string\", \"value\": \"b\"}]}",
         {"a", "b"},
         {"ab", ""}},
        {"{\"type\": \"tag\", \"begin\": \"<\", \"content\": {\"type\": \"any_text\", "
         "\"excludes\": [\">\"]}, \"end\": \">\"}",
         {"<>", "<abc>"},
         {"", "<a><b>"}},
        {"{\"type\": \"triggered_tags\", \"triggers\": [\"<\"], \"tags\": [" TAG_A "]}",
         {"", "b", "b<a>1!b<a>1!"},
         {"<b", "<a>2!"}},
        {"{\"type\": \"triggered_tags\", \"triggers\": [\"<t>\"], \"tags\": [" TAG_T
         "], \"stop_after_first\": true}",
         {"a<", "a\xff<t>\xff",
          "\xff<t>\xff"
          "aa"},
         {"<t>",
          "\xff<t>\xff"
          "b",
          "\xff<t>\xff\xff<t>\xff"}},
        {"{\"type\": \"tags_with_separator\", \"separator\": \"+\", \"at_least_one\": true, "
         "\"tags\": [" TAG_A "]}",
         {"<a>1!", "<a>1!+<a>1!"},
         {"", "<a>1!<a>1!", "<a>1!+"}},
    };
    struct vocabulary *vocabulary = make_vocabulary();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct automaton *automaton = run_format(cases[i].format, vocabulary);
        for (size_t k = 0; k < 4 && cases[i].fitting[k]; k++) {
            fixture_check(automaton, cases[i].fitting[k], true);
        }
        for (size_t k = 0; k < 4 && cases[i].others[k]; k++) {
            fixture_check(automaton, cases[i].others[k], false);
        }
        fixture_check_mask(automaton, automaton_start(automaton));
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// A part that wants the token refuses its text, and free text takes the token for its text.
static void test_named_tokens(void **state) {
    (void)state;
    struct vocabulary *vocabulary = make_vocabulary();
    static const struct {
        const char *format;
        bool allowed[NUM_TOKENS];
    } cases[] = {
        {"{\"type\": \"token\", \"token\": \"<t>\"}", {[NAMED] = true}},
        {"{\"type\": \"const_string\", \"value\": \"<t>\"}", {[0] = true, [NAMED] = true}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct automaton *automaton = run_format(cases[i].format, vocabulary);
        struct matcher matcher;
        uint32_t words = 0;
        bool any;
        assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
        assert_int_equal(matcher_mask(&matcher, &words, &any, NULL), OK);
        for (uint32_t id = 0; id < NUM_TOKENS; id++) {
            assert_int_equal(words >> id & 1, cases[i].allowed[id]);
        }
        assert_int_equal(matcher_take(&matcher, NAMED, NULL), OK);
        assert_true(matcher_can_end(&matcher));
        matcher_fini(&matcher);
        automaton_release(automaton);
    }
    vocabulary_destroy(vocabulary);
}

// Else the other one would be allowed where the name is.
static void test_tokens_with_equal_bytes_have_no_name(void **state) {
    (void)state;
    struct vocabulary_token tokens[] = {
        {"<t>", 3, false, true}, {"<t>", 3, false, false}, {"a", 1, false, false}};
    struct vocabulary *vocabulary = NULL;
    assert_int_equal(vocabulary_create(&vocabulary, tokens, 3, NULL, 0, NULL), OK);
    struct automaton *automaton = run_format("{\"type\": \"any_text\"}", vocabulary);
    fixture_check_mask(automaton, automaton_start(automaton));
    automaton_release(automaton);
    static const char form[] =
        "{\"structural_tag\": {\"format\": {\"type\": \"token\", \"token\": \"<t>\"}}}";
    struct grammar *grammar;
    assert_int_equal(outputs_read(&grammar, form, strlen(form), vocabulary, NULL), ERR_INVALID);
    vocabulary_destroy(vocabulary);
}

static void test_faults(void **state) {
    (void)state;
    static const struct {
        const char *format, *sentence;
    } cases[] = {
        {"5", "structural_tag: format: a part has no known type"},
        {"{\"type\": \"sequence\", \"elements\": []}", "elements is no list of parts"},
        {"{\"type\": \"or\", \"elements\": [{\"type\": \"any_text\"}, {\"type\": \"x\"}]}",
         "format: elements[1]: a part has no known type"},
        {"{\"type\": \"optional\"}", "content: a part"},
        {"{\"type\": \"const_string\"}", "value is missing, want a string"},
        {"{\"type\": \"token\", \"token\": 5}", "token is an integer, want a string"},
        {"{\"type\": \"any_text\", \"excludes\": [\"\"]}", "excludes[0] is no text"},
        {"{\"type\": \"any_text\", \"excludes\": \"a\"}", "excludes is a string"},
        {"{\"type\": \"regex\", \"pattern\": \"(\"}", "structural_tag: format: "},
        {"{\"type\": \"json_schema\"}", "json_schema is missing"},
        {"{\"type\": \"any_text\", \"exclude\": [\"a\"]}",
         "format: the part any_text has the member \"exclude\", which is not known"},
        {"{\"type\": \"token\", \"token\": \"<t\"}", "format: \"<t\" is no added token"},
        {"{\"type\": \"token\", \"token\": \"a\"}", "format: \"a\" is no added token"},
        {"{\"type\": \"tags_with_separator\", \"separator\": \"\", \"tags\": [{\"begin\": "
         "{\"type\": "
         "\"token\", \"token\": \"<u>\"}, \"content\": {\"type\": \"any_text\"}, \"end\": \"\"}]}",
         "tags[0]: \"<u>\" is no added token"},
        {"{\"type\": \"tags_with_separator\", \"separator\": \"\", \"tags\": [{\"begin\": \"a\", "
         "\"content\": {\"type\": \"any_text\"}, \"end\": \"\", \"ends\": \"b\"}]}",
         "tags[0]: the part tag has the member \"ends\", which is not known"},
        {"{\"type\": \"tag\", \"begin\": {\"token\": \"<t>\", \"id\": 4}, \"content\": {\"type\": "
         "\"any_text\"}, \"end\": \"\"}",
         "the part token has the member \"id\", which is not known"},
        {"{\"type\": \"json_schema\", \"json_schema\": {}, \"style\": \"qwen_xml\"}",
         "style of json_schema is qwen_xml, want json"},
        {"{\"type\": \"tags_with_separator\", \"separator\": \"\", \"tags\": []}",
         "tags is no list of tags"},
        {"{\"type\": \"triggered_tags\", \"tags\": [" TAG_A "], \"at_least_one\": 1}",
         "at_least_one is an integer, want true or false"},
        {"{\"type\": \"triggered_tags\", \"tags\": [{\"begin\": \"a\", \"end\": \"\", \"content\": "
         "{\"type\": \"json_schema\", \"json_schema\": {\"$dynamicRef\": \"#a\"}}}]}",
         "tags[0]: content: #: $dynamicRef \"#a\""},
    };
    struct vocabulary *vocabulary = make_vocabulary();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[1024];
        struct grammar *grammar;
        struct err err = {0};
        int len =
            snprintf(text, sizeof text, "{\"structural_tag\": {\"format\": %s}}", cases[i].format);
        assert_int_not_equal(outputs_read(&grammar, text, (size_t)len, vocabulary, &err), OK);
        if (!strstr(err.message, cases[i].sentence)) fail_msg("%s", err.message);
    }
    vocabulary_destroy(vocabulary);
}

static void test_unknown_members(void **state) {
    (void)state;
    static const char *const forms[] = {
        "{\"structural_tag\": {\"format\": {\"type\": \"any_text\"}, \"wrong\": 1}}",
        "{\"structural_tag\": {\"structures\": [], \"wrong\": 1}}",
        "{\"structural_tag\": {\"structures\": [{\"begin\": \"a\", \"wrong\": 1}]}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct grammar *grammar;
        struct err err = {0};
        assert_int_equal(outputs_read(&grammar, forms[i], strlen(forms[i]), NULL, &err),
                         ERR_UNSUPPORTED);
        if (!strstr(err.message, "has the member \"wrong\"")) fail_msg("%s", err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_named_tokens),
        cmocka_unit_test(test_tokens_with_equal_bytes_have_no_name),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_unknown_members),
    };
    return cmocka_run_group_tests_name("tag_format", tests, NULL, NULL);
}
