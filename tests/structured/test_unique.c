// Arrays with unique items and objects with unique keys: which values are equal, what masks allow,
// and that no answer gets stuck. ' stands for " in the rows.
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/buf.h"
#include "structured/schema/schema.h"
#include "structured/structured_fixture.h"
#include "support/cmocka_all.h"

static const char *const texts[] = {
    "\"",    "\\",    "{",       "}",    "[",      "]",         ":",     ",",      " ",
    "a",     "b",     "k",       "l",    "1",      "0",         "2",     "3",      "-",
    ".",     "e",     "E",       "+",    "u",      "n",         "t",     "r",      "s",
    "c",     "f",     "l",       "6",    "\",",    "\"]",       "\"a\"", "\",\"",  "ab",
    ",1,1",  ",1,2",  "{\"k\":", "],",   "},",     "true",      "[\"",   "\"a\",", "[\"a\",",
    "[1,1",  "\\u00", "\\u006",  "1}",   "a\",\"", "a\",\"a\"", "false", "null",   "\":",
    "\"k\"", "\"l\"", "x",       "\xc3", "\xa9",   "\xc3\xa9",  "aa",    "bb\""};
static struct vocabulary *vocabulary;

static struct automaton *compile_within(const char *schema, const struct automaton_limits *limits) {
    char *text = strdup(schema);
    for (char *c = text; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    struct grammar *grammar;
    struct err err = {0};
    json_t *json;
    uint32_t rule;
    assert_int_equal(jread_request(&json, text, strlen(text), "schema", &err), OK);
    free(text);
    assert_int_equal(grammar_create(&grammar, NULL, &err), OK);
    if (schema_add(grammar, json, NULL, &rule, NULL, &err)) fail_msg("%s: %s", schema, err.message);
    json_decref(json);
    grammar_start(grammar, rule);
    struct automaton *automaton;
    if (automaton_create(&automaton, grammar, vocabulary, limits, &err))
        fail_msg("%s", err.message);
    return automaton;
}

static struct automaton *compile(const char *schema) {
    return compile_within(schema, NULL);
}

static void equal_values(void **state) {
    (void)state;
    static const struct {
        const char *schema, *text;
        bool fits;
    } rows[] = {
        {"{'uniqueItems':true}", "[1,2,12,1.5,-1,true,null,\"1\",[1],{}]", true},
        {"{'uniqueItems':true}", "[1,1]", false},
        {"{'uniqueItems':true}", "[1, 2, 1]", false},
        {"{'uniqueItems':true}", "[1,1.0]", false},
        {"{'uniqueItems':true}", "[100,1e2]", false},
        {"{'uniqueItems':true}", "[0.05,5E-2]", false},
        {"{'uniqueItems':true}", "[0.05,5e-3,-5e-2,0.50]", true},
        {"{'uniqueItems':true}", "[0,-0.0]", false},
        {"{'uniqueItems':true}", "[0,false,\"\",null,[],{}]", true},
        {"{'uniqueItems':true}", "[[],[]]", false},
        {"{'uniqueItems':true}", "[true,true]", false},
        {"{'uniqueItems':true}", "[\"a\",\"\\u0061\"]", false},
        {"{'uniqueItems':true}", "[\"\\n\",\"\\u000A\"]", false},
        {"{'uniqueItems':true}", "[\"\\ud83d\\ude00\",\"\xf0\x9f\x98\x80\"]", false},
        {"{'uniqueItems':true}", "[\"a\",\"aa\",\"A\",\"\"]", true},
        {"{'uniqueItems':true}", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]", false},
        {"{'uniqueItems':true}", "[{\"a\":1,\"b\":2},{\"a\":2,\"b\":1}]", true},
        {"{'uniqueItems':true}", "[{\"a\":1,\"a\":2}]", false},
        {"{'uniqueItems':true}", "[[1,2],[2,1],[12]]", true},
        {"{'uniqueItems':true}", "[[1,2],[1, 2.0]]", false},
        {"{'uniqueItems':true}", "[[1,1],[2,2]]", true}, // inner ones are free
        {"{'items':{'uniqueItems':true}}", "[[1,2],[1,2]]", true},
        {"{'items':{'uniqueItems':true}}", "[[1,1],2]", false},
        {"{'uniqueItems':true,'items':{'uniqueItems':true}}", "[[1,2],[1,2]]", false},
        {"{'uniqueItems':true,'prefixItems':[{'type':'integer'}],'items':{'type':'string'}}",
         "[1,\"1\",\"2\"]", true},
        {"{'properties':{'a':{'uniqueItems':true},'b':true}}", "{\"a\":[1,2],\"b\":[1,1]}", true},
        {"{'properties':{'a':{'uniqueItems':true},'b':true}}", "{\"a\":[1,1]}", false},
        // So many items are known to exist: of several lengths, or with other keys or ends.
        {"{'uniqueItems':true,'minItems':2,'items':{'type':'object'}}", "[{},{\"a\":1}]", true},
        {"{'uniqueItems':true,'minItems':2,'items':{'type':'object'}}", "[{}]", false},
        {"{'uniqueItems':true,'minItems':3,'items':{'items':{'enum':[1]},'type':'array'}}",
         "[[1,1],[],[1]]", true},
        {"{'uniqueItems':true,'minItems':3,'items':{'items':{'enum':[1]},'type':'array'}}",
         "[[1],[],[1]]", false},
        {"{'uniqueItems':true,'minItems':2,'items':{'type':'string','pattern':'^#[0-9]$'}}",
         "[\"#1\",\"#2\"]", true},
        // So many keys differ.
        {"{'minProperties':2}", "{\"a\":1,\"b\":1}", true},
        {"{'minProperties':2}", "{\"a\":1,\"a\":2}", false},
        {"{'minProperties':2}", "{\"a\":1,\"\\u0061\":2}", false},
        {"{'minProperties':2}", "{\"a\":1}", false},
        {"{'minProperties':2}", "[{\"a\":1}, {\"a\":1}]", true},
        {"{'items':{'minProperties':2}}", "[{\"a\":1,\"b\":1},{\"a\":1,\"b\":1}]", true},
        {"{'items':{'minProperties':2}}", "[{\"a\":1,\"b\":1},{\"a\":1,\"a\":1}]", false},
        {"{'items':{'minProperties':2},'uniqueItems':true}",
         "[{\"a\":1,\"b\":1},{\"b\":1,\"a\":1}]", false},
        {"{'additionalProperties':{'minProperties':2}}",
         "{\"k\":{\"a\":1,\"b\":1},\"k\":{\"a\":1,\"b\":2}}", true},
        {"{'properties':{'a':true},'required':['a'],'minProperties':3}",
         "{\"a\":1,\"b\":1,\"c\":{\"a\":1,\"b\":1}}", true},
        {"{'properties':{'a':true},'required':['a'],'minProperties':3}",
         "{\"a\":1,\"b\":1,\"b\":1}", false},
        {"{'anyOf':[{'items':{'type':'integer'},'uniqueItems':true},"
         "{'items':{'type':['integer','object'],'minProperties':2}}]}",
         "[1,{\"a\":1,\"a\":2}]", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct automaton *automaton = compile(rows[i].schema);
        fixture_check(automaton, rows[i].text, rows[i].fits);
        automaton_release(automaton);
    }
}

// ---- random answers ----

static bool repeats(const json_t *value) {
    size_t i, j;
    json_t *a, *b;
    if (json_is_object(value)) return json_object_size(value) < 3; // of which minProperties counts
    if (!json_is_array(value)) return false;
    json_array_foreach(value, i, a) {
        json_array_foreach(value, j, b) {
            bool equal = json_is_number(a) && json_is_number(b)
                             ? json_number_value(a) == json_number_value(b)
                             : json_equal(a, b);
            if (j < i && equal) return true;
        }
    }
    return false;
}

// The mask has exactly the tokens that fit. Returns one of them; those that end things are chosen
// more often, the longer the text is.
static uint32_t choose(const struct matcher *matcher, uint64_t *random, size_t len) {
    uint32_t words[16], num_allowed = 0, chosen = 0;
    bool any;
    struct err err = {0};
    if (matcher_mask(matcher, words, &any, &err)) fail_msg("%s", err.message);
    for (uint32_t token = 0; token < vocabulary->num_tokens; token++) {
        uint32_t fits, weight = 1;
        int32_t id = (int32_t)token;
        assert_int_equal(matcher_fitting(matcher, &id, 1, &fits, NULL), OK);
        if (fits != (words[token / 32] >> (token % 32) & 1)) {
            uint32_t text_len;
            const char *text = vocabulary_text(vocabulary, token, &text_len);
            fail_msg("token \"%.*s\" %s", (int)text_len, text,
                     fits ? "is missing" : "does not fit");
        }
        if (!fits) continue;
        if (token < 8 && token != 1 && len > 40) weight = 50;
        num_allowed += weight;
        if (fixture_below(random, num_allowed) < weight) chosen = token;
    }
    assert_int_equal(any, num_allowed > 0);
    assert_true(num_allowed > 0); // not stuck
    return chosen;
}

static void random_answers(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{'type':'array','uniqueItems':true,'minItems':2,'items':{'enum':['a','ab','b']}}",
        "{'type':'array','uniqueItems':true,'minItems':4,'items':{'type':'string',"
        "'pattern':'^[ab]{1,2}$'}}",
        "{'type':'array','uniqueItems':true,'minItems':3,'items':{'type':'string'}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'integer','minimum':0,'maximum':3}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'number'},'maxItems':6}",
        "{'type':'array','uniqueItems':true,'items':{'type':'object','properties':{'k':{'enum':"
        "['a','b']},'l':{'type':'boolean'}},'additionalProperties':false}}",
        "{'type':'array','uniqueItems':true,'minItems':2,'items':{'type':'object','properties':{"
        "'k':{'type':'string'},'l':{'enum':[1]}},'required':['k','l'],"
        "'additionalProperties':false}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'array','uniqueItems':true,"
        "'items':{'type':'boolean'}}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'object','additionalProperties':{"
        "'type':'boolean'}}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'string','maxLength':1}}",
        "{'type':'array','uniqueItems':true,'contains':{'const':1},'maxItems':3,"
        "'items':{'enum':[1,2,12]}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'object','properties':{'k':{'enum':"
        "['a','b']}},'required':['k'],'additionalProperties':{'enum':['a','ab',1]}}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'object','patternProperties':{"
        "'^[abk]$':{'type':'string'}},'additionalProperties':false}}",
        "{'type':'array','uniqueItems':true,'items':{'type':'object','maxProperties':2,"
        "'additionalProperties':{'type':'array','uniqueItems':true,'items':{'enum':['a',1]}}}}",
        "{'type':'object','minProperties':3,'additionalProperties':{'type':'boolean'}}",
        "{'type':'array','uniqueItems':true,'minItems':3,'items':{'type':'array','minItems':1,"
        "'items':{'enum':[1]}}}",
        "{'type':'array','uniqueItems':true,'minItems':3,'items':{'type':'object','maxProperties':"
        "1,"
        "'additionalProperties':{'enum':[1]}}}",
        "{'type':'object','minProperties':3,'maxProperties':4,'patternProperties':{"
        "'^[akl]$':{'enum':[1]}},'additionalProperties':false}",
        "{'type':'object','properties':{'k':{'enum':[1]}},'minProperties':3,'propertyNames':{"
        "'maxLength':1},'additionalProperties':{'type':'object','maxProperties':1}}",
    };
    enum { ANSWERS = 12, TOKENS_MAX = 400 };
    uint64_t random = 7;
    struct automaton *automaton = NULL; // the answers of a schema share what is remembered
    for (size_t i = 0; i < ARRAY_LEN(schemas) * ANSWERS; i++) {
        if (i % ANSWERS == 0) {
            automaton_release(automaton);
            automaton = compile(schemas[i / ANSWERS]);
        }
        struct matcher matcher;
        struct buf answer = {0};
        assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
        for (size_t n = 0; n < TOKENS_MAX && !matcher.ended; n++) {
            uint32_t len, token = choose(&matcher, &random, answer.len);
            const char *text = vocabulary_text(vocabulary, token, &len);
            assert_int_equal(matcher_take(&matcher, (int32_t)token, NULL), OK);
            if (!matcher.ended) assert_int_equal(buf_append(&answer, text, len, NULL), OK);
        }
        // Jansson takes no key with the character 0.
        if (matcher.ended && answer.data && !memmem(answer.data, answer.len, "\\u0000", 6)) {
            json_t *value = json_loadb(answer.data, answer.len, JSON_REJECT_DUPLICATES, NULL);
            if (!value || repeats(value)) fail_msg("%.*s", (int)answer.len, answer.data);
            json_decref(value);
        }
        buf_fini(&answer);
        matcher_fini(&matcher);
    }
    automaton_release(automaton);
}

static void take(struct matcher *matcher, const char *text) {
    assert_int_equal(matcher_take_bytes(matcher, text, strlen(text), NULL), OK);
}

static bool takes(const struct matcher *matcher, const char *text) {
    struct matcher copy;
    assert_int_equal(matcher_copy(&copy, matcher, NULL), OK);
    bool fits = matcher_take_bytes(&copy, text, strlen(text), NULL) == OK;
    matcher_fini(&copy);
    return fits;
}

static void items_are_taken_back(void **state) {
    (void)state;
    struct automaton *automaton = compile("{'uniqueItems':true}");
    struct matcher matcher;
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    take(&matcher, "[1,");
    take(&matcher, "\"a\",");
    take(&matcher, "[2],");
    assert_false(takes(&matcher, "\"a\","));
    assert_false(takes(&matcher, "[2],"));
    assert_true(takes(&matcher, "2,"));
    matcher_rewind(&matcher, 1);
    assert_true(takes(&matcher, "\"a\","));
    assert_false(takes(&matcher, "1,"));
    take(&matcher, "[2]]");
    assert_true(matcher_can_end(&matcher));
    matcher_fini(&matcher);
    automaton_release(automaton);
}

// Behind an object that was watched for its keys nothing is watched: masks are remembered again.
static void keys_are_watched_within_their_object(void **state) {
    (void)state;
    struct automaton *automaton = compile("{'additionalProperties':{'minProperties':2}}");
    struct matcher matcher;
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    take(&matcher, "{\"k\":{\"a\":1,\"b\":[1]");
    assert_int_not_equal(matcher.positions[matcher.num_tokens].mode, UNIQUE_OUTSIDE);
    take(&matcher, "}");
    assert_int_equal(matcher.positions[matcher.num_tokens].mode, UNIQUE_OUTSIDE);
    matcher_fini(&matcher);
    automaton_release(automaton);
}

// An item that must end as one that is there is not begun, and a string goes on instead.
static void looks_ahead(void **state) {
    (void)state;
    struct automaton *automaton =
        compile("{'uniqueItems':true,'items':{'enum':['ab','ac',1],'type':['string','integer']}}");
    struct matcher matcher;
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    take(&matcher, "[\"ab\",");
    assert_true(takes(&matcher, "\"a"));
    assert_false(takes(&matcher, "\"ab"));
    take(&matcher, "\"ac\",");
    assert_false(takes(&matcher, "\""));
    assert_true(takes(&matcher, "1]"));
    assert_false(takes(&matcher, "1,"));
    matcher_fini(&matcher);
    automaton_release(automaton);
}

// Objects that the array has are passed one by one before a new one is found.
static void searches_are_limited(void **state) {
    (void)state;
    static const char schema[] =
        "{'uniqueItems':true,'items':{'type':'object','properties':{'k':{'enum':"
        "['a','b','ab','ba']},'l':{'enum':['a','b','ab','ba']}},'required':['k','l'],"
        "'additionalProperties':false}}";
    static const struct {
        struct automaton_limits limits;
        const char *sentence; // NULL: no error
    } rows[] = {
        {{.search_steps_max = 0}, NULL},
        {{.search_steps_max = 20},
         "arrays with uniqueItems take more than 20 steps to find items that are new"},
        {{.steps_max = 500}, "the constraint takes more than 500 steps"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct automaton *automaton = compile_within(schema, &rows[i].limits);
        struct matcher matcher;
        struct err err = {0};
        uint32_t words[16];
        bool any;
        enum status status = OK;
        assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
        for (const char *c = "[{'k':'a','l':'a'},{'k':'a','l':'b'},{'k':'a','l':'ab'},{'k':'a',"
                             "'l':'ba'},{'k':'b','l':'a'},{";
             *c && !status; c++) {
            char byte = *c == '\'' ? '"' : *c;
            status = matcher_mask(&matcher, words, &any, &err);
            if (!status) status = matcher_take_bytes(&matcher, &byte, 1, &err);
        }
        assert_int_equal(status, rows[i].sentence ? ERR_CAPACITY : OK);
        if (rows[i].sentence) assert_string_equal(err.message, rows[i].sentence);
        matcher_fini(&matcher);
        automaton_release(automaton);
    }
}

// Appends items to an array as long as they can come. Returns their number.
static size_t fill_array(struct automaton *automaton, uint64_t *random) {
    struct matcher matcher;
    struct err err = {0};
    uint32_t words[16], len, num_allowed = 1;
    size_t num_items = 1;
    bool any;
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    while (!matcher_can_end(&matcher)) {
        uint32_t chosen = 0;
        if (matcher_mask(&matcher, words, &any, &err)) fail_msg("%s", err.message);
        num_allowed = 0;
        for (uint32_t token = 0; token < vocabulary->num_tokens; token++) {
            const char *text = vocabulary_text(vocabulary, token, &len);
            bool allowed = words[token / 32] >> (token % 32) & 1;
            if (!allowed || text[0] == ' ') continue;
            uint32_t weight = memchr(text, ']', len) ? 1 : 100000;
            num_allowed += weight;
            if (fixture_below(random, num_allowed) < weight) chosen = token;
        }
        assert_true(num_allowed > 0);
        const char *text = vocabulary_text(vocabulary, chosen, &len);
        assert_int_equal(matcher_take(&matcher, (int32_t)chosen, NULL), OK);
        for (uint32_t i = 0; i < len; i++) num_items += text[i] == ',';
    }
    matcher_fini(&matcher);
    return num_items;
}

// Of 128 strings, each of which has 128 spellings, the last ones are found too. Where an answer has
// not that many steps, the array ends before.
static void long_arrays_end(void **state) {
    (void)state;
    static const char schema[] = "{'type':'array','uniqueItems':true,'minItems':2,"
                                 "'items':{'type':'string','pattern':'^[ab]{7}$'}}";
    static const struct {
        struct automaton_limits limits;
        size_t num_items_min;
    } rows[] = {{{.search_steps_max = 50000}, 100}, {{.search_steps_max = 100000}, 128}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t random = 3;
        for (int answer = 0; answer < 4; answer++) {
            struct automaton *automaton = compile_within(schema, &rows[i].limits);
            assert_in_range(fill_array(automaton, &random), rows[i].num_items_min, 128);
            automaton_release(automaton);
        }
    }
}

int main(void) {
    vocabulary = fixture_vocabulary(texts, ARRAY_LEN(texts));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_values),
        cmocka_unit_test(random_answers),
        cmocka_unit_test(items_are_taken_back),
        cmocka_unit_test(keys_are_watched_within_their_object),
        cmocka_unit_test(looks_ahead),
        cmocka_unit_test(searches_are_limited),
        cmocka_unit_test(long_arrays_end),
    };
    int num_failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return num_failed;
}
