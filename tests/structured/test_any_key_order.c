// Keys in any order (schema_options.any_key_order): which texts fit, that masks say the same, and
// that no answer gets stuck. ' stands for " in the rows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/buf.h"
#include "structured/schema_fixture.h"
#include "support/cmocka_all.h"

static const struct schema_options any_order = {.any_key_order = true};
static struct vocabulary *vocabulary;

static void check(const struct schema_row *rows, size_t num_rows) {
    for (size_t i = 0; i < num_rows; i++) schema_check_row(&rows[i], &any_order, vocabulary);
}

static void orders(void **state) {
    (void)state;
    static const struct schema_row rows[] = {
        // Required keys are there before the end, each at most once.
        {"{'type':'object','properties':{'a':{'type':'integer'},'b':{'type':'null'},'c':true},"
         "'required':['c','a']}",
         "{'a':1,'c':2}|{'c':2,'a':1}|{'b':null,'c':2,'a':1}|{'c':0,'b':null,'a':1}|"
         "{'x':1,'c':2,'y':2,'a':1}|{'x':1,'c':2,'a':1,'x':1}|{ 'c' : 2 ,\n 'a' : 1 }",
         "{}|{'a':1}|{'c':1,'b':null}|{'a':1,'c':1,'a':1}|{'c':1,'c':1,'a':1}|{'c':1,'a':null}|"
         "{'a':1,'c':1,}|{,'a':1,'c':1}|{'a':1 'c':1}|{'x':1}"},
        {"{'type':'object','properties':{'a':true,'b':true},'additionalProperties':false}",
         "{}|{'b':1}|{'b':1,'a':2}|{'a':2,'b':1}", "{'c':1}|{'a':1,'c':1}|{'b':1,'b':1}"},
        {"{'type':'object','properties':{'a':{'type':'string'}},'patternProperties':{'^x':{'type':"
         "'null'}},'additionalProperties':{'type':'integer'}}",
         "{'x1':null,'a':'','z':3}|{'z':3,'x1':null}|{'z':3,'a':'1','x':null,'x1':null}",
         "{'z':3,'x':3}|{'z':null,'a':''}|{'z':1,'a':1}"},
        {"{'type':'object','properties':{'a':true,'b':false},'propertyNames':{'maxLength':2}}",
         "{'xy':1,'a':2}|{'a':1,'z':1}", "{'xyz':1}|{'a':1,'b':1}|{'z':1,'xyz':1}|{'}"},
        // Members are counted: there is room for those that must come, and enough of them.
        {"{'type':'object','properties':{'a':true,'b':true,'c':true},'required':['b'],"
         "'maxProperties':2}",
         "{'b':1}|{'a':1,'b':1}|{'b':1,'c':1}|{'x':1,'b':1}|{'b':1,'x':1}",
         "{'a':1,'c':1}|{'a':1,'x':1}|{'x':1,'y':1}|{'b':1,'a':1,'c':1}"},
        {"{'type':'object','properties':{'a':true},'maxProperties':3}",
         "{'x':1,'y':1,'z':1}|{'x':1,'a':1,'y':1}",
         "{'x':1,'y':1,'z':1,'u':1}|{'x':1,'y':1,'z':1,'a':1}"},
        {"{'type':'object','properties':{'a':true,'b':true,'c':true},'minProperties':2,"
         "'additionalProperties':false}",
         "{'c':1,'a':1}|{'b':1,'c':1,'a':1}", "{}|{'a':1}"},
        {"{'type':'object','properties':{'a':true},'required':['a'],'minProperties':2}",
         "{'x':1,'a':1}|{'a':1,'x':1}", "{'a':1}|{'x':1}"},
        {"{'type':'object','properties':{'a':true},'minProperties':3}",
         "{'x':1,'a':1,'y':1}|{'x':1,'y':1,'z':1,'a':1}", "{'x':1,'a':1,'x':1}|{'x':1,'a':1}"},
        // Alternatives, each with its keys.
        {"{'anyOf':[{'properties':{'a':{'const':1},'b':true},'required':['a','b'],"
         "'additionalProperties':false},{'properties':{'a':{'type':'integer'},'c':true},"
         "'required':['a','c'],'additionalProperties':false}]}",
         "{'b':0,'a':1}|{'a':1,'b':0}|{'c':0,'a':1}|{'a':2,'c':0}|{'c':0,'a':2}",
         "{'b':0,'a':2}|{'a':2,'b':0}|{'a':1}|{'c':0,'b':0}|{'a':1,'b':1,'c':1}"},
        {"{'type':'object','properties':{'a':true,'b':true},'dependentRequired':{'a':['b']}}",
         "{'b':1,'a':1}|{'a':1,'b':1}|{'b':1}|{'x':1}|{'a':1,'x':1,'b':1}",
         "{'a':1}|{'x':1,'a':1}|{'a':1,'x':1}"},
        {"{'type':'object','if':{'properties':{'k':{'const':1}},'required':['k']},"
         "'then':{'required':['v']},'properties':{'k':{'type':'integer'}}}",
         "{'v':1,'k':1}|{'k':1,'x':1,'v':1}|{'x':1,'k':2}", "{'x':1,'k':1}|{'k':1,'x':1}"},
        // Inside of each other, and recursion.
        {"{'$ref':'#/$defs/t','$defs':{'t':{'type':'object','properties':{'v':{'type':'integer'},"
         "'n':{'$ref':'#/$defs/t'}},'required':['v'],'additionalProperties':false}}}",
         "{'n':{'v':1,'n':{'n':{'v':1},'v':1}},'v':1}|{'v':1}", "{'n':{'v':1}}|{'n':{},'v':1}"},
        {"{'items':{'type':'object','properties':{'a':true,'b':true},'required':['a','b']}}",
         "[{'b':1,'a':1},{'a':1,'b':1}]", "[{'b':1,'a':1},{'a':1}]"},
        // Values are the same in any order.
        {"{'enum':[{'a':1,'b':[{'c':1,'d':2}]},3]}",
         "{'b':[{'d':2,'c':1}],'a':1}|{'a':1,'b':[{'c':1,'d':2}]}|3",
         "{'b':[{'d':2}],'a':1}|{'a':1}|{'a':1,'b':[{'c':1,'d':2}],'c':1}"},
        // A key without a value, and a required one that has none.
        {"{'type':'object','properties':{'a':{'type':'object','properties':{'x':false,'y':true},"
         "'required':['x']},'b':true},'minProperties':1}",
         "{'b':1}|{'z':1,'b':1}", "{'a':{'x':1}}|{'b':1,'a':{}}"},
        // Some member violates a schema: one that the text does not name again.
        {"{'type':'object','properties':{'a':true},'required':['a'],"
         "'not':{'additionalProperties':{'type':'integer'}}}",
         "{'x':null,'a':1}|{'a':null,'x':1}|{'x':null,'y':1,'a':1}|{'y':1,'a':1,'x':null}",
         "{'a':1}|{'x':1}|{'x':null}|{'x':null,'a':1,'x':1}"},
        {"{'type':'object','properties':{'a':true},'required':['a'],'maxProperties':2,"
         "'not':{'additionalProperties':{'type':'integer'}}}",
         "{'x':null,'a':1}|{'a':1,'x':null}", "{'x':null,'y':null,'a':1}|{'x':null,'a':1,'y':1}"},
        {"{'uniqueItems':true,'items':{'type':'object','properties':{'a':true,'b':true},"
         "'required':['a','b'],'additionalProperties':false}}",
         "[{'b':1,'a':1},{'a':1,'b':2}]", "[{'b':1,'a':1},{'a':1,'b':1}]"},
    };
    check(rows, ARRAY_LEN(rows));
}

// Without the option so many ways to violate schemas become clauses, which need the schema's order.
static void many_ways(void **state) {
    (void)state;
    struct buf schema = {0};
    assert_int_equal(buf_append(&schema, "{'type':'object','allOf':[true", 30, NULL), OK);
    for (char key = 'a'; key < 'o'; key = (char)(key + 2)) {
        assert_int_equal(buf_appendf(&schema, NULL,
                                     ",{'not':{'properties':{'%c':{'const':1},'%c':{'const':1}},"
                                     "'required':['%c','%c']}}",
                                     key, key + 1, key, key + 1),
                         OK);
    }
    assert_int_equal(buf_append(&schema, "]}", 2, NULL), OK);
    const struct schema_row row = {schema.data,
                                   "{}|{'d':2,'b':1,'c':1,'a':2}|{'n':2,'m':1}|{'b':1}",
                                   "{'b':1,'a':1}|{'d':2,'b':1,'c':1,'a':1}|{'n':1,'m':1}"};
    check(&row, 1);
    buf_fini(&schema);
}

static void check_refused(const char *schema, const char *sentence) {
    struct grammar *grammar;
    struct err err = {0};
    enum status status = schema_fixture_add(&grammar, schema, &any_order, NULL, &err);
    grammar_destroy(grammar);
    assert_int_equal(status, ERR_UNSUPPORTED);
    if (!strstr(err.message, sentence)) fail_msg("%s: %s", schema, err.message);
}

static void refused(void **state) {
    (void)state;
    struct buf schema = {0};
    assert_int_equal(buf_append(&schema, "{'items':{'properties':{", 24, NULL), OK);
    for (int i = 0; i <= 500; i++) {
        assert_int_equal(buf_appendf(&schema, NULL, "%s'k%d':true", i ? "," : "", i), OK);
    }
    assert_int_equal(buf_append(&schema, "}}}", 3, NULL), OK);
    check_refused(schema.data,
                  "#/items: keyword \"properties\" cannot be enforced in any order: it has more "
                  "than 500 keys");
    buf_fini(&schema);
    check_refused("{'items':{'not':{'patternProperties':{'^a':{'type':'integer'}}}}}",
                  "#/items/not/patternProperties/^a: cannot be enforced in any order of keys");
}

static void no_text(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{'type':'object','required':['a','b'],'maxProperties':1}",
        "{'type':'object','properties':{'a':true},'minProperties':2,'maxProperties':1}",
        "{'type':'object','properties':{'a':true,'b':true},'additionalProperties':false,"
        "'minProperties':3}",
        "{'type':'object','properties':{'a':{'$ref':'#'},'b':true},'required':['a']}",
        "{'type':'object','properties':{'a':{'$ref':'#'},'b':true},'minProperties':2,"
        "'additionalProperties':false}",
    };
    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
        struct grammar *grammar;
        struct automaton *automaton;
        struct err err = {0};
        assert_int_equal(schema_fixture_add(&grammar, schemas[i], &any_order, NULL, &err), OK);
        assert_int_equal(automaton_create(&automaton, grammar, vocabulary, NULL, &err),
                         ERR_INVALID);
        assert_string_equal(err.message, "no text fits the constraint");
    }
}

// A member whose value has no text is never begun, as nothing could end it.
static void no_value(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{'type':'object','properties':{'a':{'$ref':'#/$defs/endless'},'b':true},"
        "'additionalProperties':false,'$defs':{'endless':{'type':'object','properties':"
        "{'r':{'$ref':'#/$defs/endless'}},'required':['r']}}}",
        "{'type':'object','properties':{'b':true},'additionalProperties':{'$ref':'#/$defs/endless'}"
        ",'$defs':{'endless':{'type':'object','properties':{'r':{'$ref':'#/$defs/endless'}},"
        "'required':['r']}}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
        struct grammar *grammar;
        struct err err = {0};
        bool can_end;
        assert_int_equal(schema_fixture_add(&grammar, schemas[i], &any_order, NULL, &err), OK);
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        assert_true(fixture_lives(automaton, "{\"b\":1", &can_end));
        assert_false(fixture_lives(automaton, "{\"a", &can_end));
        assert_false(fixture_lives(automaton, "{\"b\":1,", &can_end));
        automaton_release(automaton);
    }
}

// ---- masks ----

static bool is_set(const uint32_t *words, uint32_t token) {
    return words[token / 32] >> (token % 32) & 1;
}

// The mask has a token exactly where the matcher takes it. Returns the number of tokens.
static uint32_t check_mask(struct matcher *matcher, uint32_t *words) {
    bool any;
    uint32_t num_allowed = 0, num_tokens = matcher->num_tokens;
    assert_int_equal(matcher_mask(matcher, words, &any, NULL), OK);
    for (uint32_t i = 0; i < vocabulary->num_tokens; i++) {
        bool fits = matcher_take(matcher, (int32_t)i, NULL) == OK;
        if (fits) matcher_rewind(matcher, num_tokens);
        if (fits != is_set(words, i)) {
            uint32_t len;
            const char *text = vocabulary_text(vocabulary, i, &len);
            fail_msg("token %.*s fits: %d, its mask says %d", (int)len, text, fits, !fits);
        }
        num_allowed += fits;
    }
    assert_int_equal(any, num_allowed > 0);
    return num_allowed;
}

// The token of the mask that is `nth`.
static int32_t pick(const uint32_t *words, uint32_t nth) {
    uint32_t token = 0;
    while (!is_set(words, token) || nth--) token++;
    return (int32_t)token;
}

// Random texts. Some tokens are taken back at times.
static void walk(struct automaton *automaton, const char *schema, uint64_t *random) {
    enum { TOKENS_MAX = 60 };
    struct matcher matcher;
    uint32_t words[16];
    assert_int_equal(matcher_init(&matcher, automaton, NULL), OK);
    for (int i = 0; i < TOKENS_MAX && !matcher.ended; i++) {
        uint32_t num_allowed = check_mask(&matcher, words);
        if (!num_allowed) fail_msg("%s: stuck", schema);
        int32_t token = pick(words, fixture_below(random, num_allowed));
        assert_int_equal(matcher_take(&matcher, token, NULL), OK);
        bool goes_back = fixture_below(random, 8) == 0;
        if (goes_back) matcher_rewind(&matcher, fixture_below(random, matcher.num_tokens + 1));
    }
    matcher_fini(&matcher);
}

// The vocabulary has tokens for these texts.
static void masks(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{'type':'object','properties':{'a':{'const':1},'b':{'const':true},'ab':{'enum':[1,'']}},"
        "'required':['a','ab'],'additionalProperties':false}",
        "{'type':'object','properties':{'a':{'const':1},'b':{'const':true},'e':{'$ref':'#'}},"
        "'required':['a'],'maxProperties':2,'additionalProperties':{'const':1}}",
        "{'type':'object','properties':{'a':{'enum':[1,null]},'b':{'const':true}},'minProperties':"
        "2,"
        "'additionalProperties':{'const':1},'propertyNames':{'maxLength':2}}",
        "{'anyOf':[{'properties':{'a':{'const':1},'b':{'const':1}},'required':['a','b'],"
        "'additionalProperties':false},{'properties':{'a':{'enum':[1,null]},'d':{'const':1}},"
        "'required':['a','d'],'maxProperties':2}]}",
        "{'uniqueItems':true,'minItems':3,'maxItems':5,'items':{'type':'object','properties':"
        "{'a':{'enum':[1,null,true]},'b':{'enum':[1,null]}},'required':['a','b'],"
        "'additionalProperties':false}}",
        "{'type':'object','properties':{'a':{'const':1}},'required':['a'],"
        "'not':{'additionalProperties':{'const':1}}}",
    };
    uint64_t random = 5;
    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
        struct grammar *grammar;
        struct err err = {0};
        const struct schema_options options = {.any_key_order = true, .space = SCHEMA_SPACE_NONE};
        if (schema_fixture_add(&grammar, schemas[i], &options, NULL, &err)) {
            fail_msg("%s: %s", schemas[i], err.message);
        }
        struct automaton *automaton = fixture_run(grammar, vocabulary);
        for (int k = 0; k < 20; k++) walk(automaton, schemas[i], &random);
        automaton_release(automaton);
    }
}

// A text meets one set of keys for each of its members, not 2^200. More keys are required than a
// word of a set has bits.
static void many_keys(void **state) {
    (void)state;
    enum { NUM_KEYS = 200, NUM_REQUIRED = 40 };
    struct buf schema = {0}, text = {0};
    size_t len_without_last = 0;
    struct grammar *grammar;
    struct err err = {0};
    assert_int_equal(buf_append(&schema, "{'type':'object','properties':{", 31, NULL), OK);
    for (int i = 0; i < NUM_KEYS; i++) {
        assert_int_equal(buf_appendf(&schema, NULL, "%s'k%d':{'type':'integer'}", i ? "," : "", i),
                         OK);
        int key = NUM_KEYS - 1 - i;
        len_without_last = text.len;
        assert_int_equal(buf_appendf(&text, NULL, "%s\"k%d\":%d", i ? "," : "{", key, i), OK);
    }
    static const char rest[] = "},'minProperties':190,'additionalProperties':false,'required':[";
    assert_int_equal(buf_append_str(&schema, rest, NULL), OK);
    for (int i = 0; i < NUM_REQUIRED; i++) {
        assert_int_equal(buf_appendf(&schema, NULL, "%s'k%d'", i ? "," : "", i), OK);
    }
    assert_int_equal(buf_append_str(&schema, "]}", NULL), OK);
    assert_int_equal(buf_append(&text, "}", 1, NULL), OK);
    assert_int_equal(schema_fixture_add(&grammar, schema.data, &any_order, NULL, &err), OK);
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    fixture_check(automaton, text.data, true);
    struct automaton_stats stats;
    automaton_stats(automaton, &stats);
    assert_true(stats.bytes < 16 << 20);
    text.len = len_without_last; // k0, which is required
    assert_int_equal(buf_append_str(&text, "}", NULL), OK);
    fixture_check(automaton, text.data, false);
    automaton_release(automaton);
    buf_fini(&schema);
    buf_fini(&text);
}

// Alternatives with the same keys, which only the least number of members tells apart.
static struct grammar *alternatives_make(int num_alternatives, int num_keys) {
    struct buf schema = {0};
    struct grammar *grammar;
    struct err err = {0};
    assert_int_equal(buf_append_str(&schema, "{'anyOf':[", NULL), OK);
    for (int i = 0; i < num_alternatives; i++) {
        assert_int_equal(buf_appendf(&schema, NULL, "%s{'type':'object','minProperties':%d,",
                                     i ? "," : "", i + 1),
                         OK);
        assert_int_equal(
            buf_append_str(&schema, "'additionalProperties':false,'properties':{", NULL), OK);
        for (int k = 0; k < num_keys; k++) {
            assert_int_equal(
                buf_appendf(&schema, NULL, "%s'k%d':{'type':'integer'}", k ? "," : "", k), OK);
        }
        assert_int_equal(buf_append_str(&schema, "}}", NULL), OK);
    }
    assert_int_equal(buf_append_str(&schema, "]}", NULL), OK);
    assert_int_equal(schema_fixture_add(&grammar, schema.data, &any_order, NULL, &err), OK);
    buf_fini(&schema);
    return grammar;
}

// Behind a key all alternatives go on. What is kept of their stacks grows with their number, not
// with its square.
static void many_alternatives(void **state) {
    (void)state;
    enum { NUM_ALTERNATIVES = 80, NUM_KEYS = 60 };
    struct automaton *automaton =
        fixture_run(alternatives_make(NUM_ALTERNATIVES, NUM_KEYS), vocabulary);
    fixture_check(automaton, "{\"k7\":1,\"k3\":2,\"k50\":3}", true);
    struct automaton_stats stats;
    automaton_stats(automaton, &stats);
    assert_true(stats.bytes < 5 << 20);
    automaton_release(automaton);
}

static void too_many_alternatives(void **state) {
    (void)state;
    struct grammar *grammar = alternatives_make(41, 490);
    struct automaton *automaton;
    struct err err = {0};
    assert_int_equal(automaton_create(&automaton, grammar, vocabulary, NULL, &err), ERR_CAPACITY);
    assert_string_equal(err.message, "alternatives have more than 20000 keys together, too many "
                                     "for any order");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders),
                                       cmocka_unit_test(many_ways),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(no_text),
                                       cmocka_unit_test(no_value),
                                       cmocka_unit_test(masks),
                                       cmocka_unit_test(many_keys),
                                       cmocka_unit_test(many_alternatives),
                                       cmocka_unit_test(too_many_alternatives)};
    vocabulary = fixture_json_vocabulary();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vocabulary_destroy(vocabulary);
    return failed;
}
