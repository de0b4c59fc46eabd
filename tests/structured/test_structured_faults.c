// Every allocation of structured output failing in turn: ERR_NOMEM, nothing leaked.
#include <string.h>

#include "structured/matcher.h"
#include "structured/read/choice.h"
#include "structured/read/gbnf.h"
#include "structured/read/tags.h"
#include "structured/schema/schema.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const char gbnf[] = "root ::= object\n"
                           "object ::= \"{\" (pair (\",\" pair)*)? \"}\"\n"
                           "pair ::= string \":\" (string | object | [^a-y]{2,300})\n"
                           "string ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"\n";

static enum status make_vocabulary(struct vocabulary **out, struct err *err) {
    static const char *const texts[] = {"a", "b", "ab", "\"", "{\"", "\":", "}", "é", "a", "zz"};
    struct vocabulary_token tokens[ARRAY_LEN(texts) + 1] = {{0}};
    int32_t ending = ARRAY_LEN(texts);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        tokens[i] = (struct vocabulary_token){.bytes = texts[i], .len = (uint32_t)strlen(texts[i])};
    }
    return vocabulary_create(out, tokens, ARRAY_LEN(tokens), &ending, 1, err);
}

static enum status add_tags(struct grammar *grammar, uint32_t content, uint32_t *rule,
                            struct err *err) {
    struct tag tag = {.begin = {"<a>", 3}, .end = {"</a>", 4}, .content = content};
    return tags_add(grammar, &tag, 1, &(struct tags_options){0}, rule, err);
}

static enum status make_grammar(struct grammar **out, bool tagged, struct err *err) {
    struct grammar *grammar;
    uint32_t rule = 0, list = 0;
    static const struct expr_text texts[] = {{"red", 3}, {"green", 5}};
    enum status status = grammar_create(&grammar, NULL, err);
    if (status) return status;
    status = gbnf_add(grammar, gbnf, sizeof gbnf - 1, &rule, err);
    if (!status) status = choice_add(grammar, texts, 2, &list, err);
    if (!status && tagged) {
        uint32_t content[] = {grammar_call(grammar, rule), grammar_call(grammar, list)};
        status = add_tags(grammar, grammar_sequence(grammar, content, 2), &rule, err);
    }
    grammar_start(grammar, rule);
    if (status) {
        grammar_destroy(grammar);
    } else {
        *out = grammar;
    }
    return status;
}

static enum status make_any_order(struct grammar **out, struct err *err) {
    const struct schema_options options = {.any_key_order = true};
    struct grammar *grammar;
    uint32_t rule;
    json_t *schema = json_pack("{s:s, s:{s:{s:s}, s:{}}, s:[s]}", "type", "object", "properties",
                               "a", "type", "array", "zz", "required", "a");
    if (!schema) return err_nomem(err, "schema");
    enum status status = grammar_create(&grammar, NULL, err);
    if (!status) {
        status = schema_add(grammar, schema, &options, &rule, NULL, err);
        grammar_start(grammar, rule);
        *out = grammar;
        if (status) grammar_destroy(grammar);
    }
    json_decref(schema);
    return status;
}

static enum status follow(struct automaton *automaton, const char *text, struct err *err) {
    uint32_t at = automaton_start(automaton), word;
    enum status status = OK;
    struct buf forced = {0};
    for (const char *p = text; *p && !status; p++) {
        status = automaton_mask(automaton, at, &word, NULL, err);
        if (!status) status = automaton_forced(automaton, at, 9, &forced, err);
        if (!status) status = automaton_advance(automaton, at, p, 1, &at, err);
    }
    buf_fini(&forced);
    return status;
}

static enum status use_matcher(struct automaton *automaton, struct err *err) {
    struct matcher matcher = {0}, copy = {0};
    enum status status = matcher_init(&matcher, automaton, err);
    if (!status) status = matcher_take(&matcher, 4, err);
    if (!status) status = matcher_copy(&copy, &matcher, err);
    if (!status) status = matcher_take(&copy, 2, err);
    matcher_fini(&matcher);
    matcher_fini(&copy);
    return status;
}

static enum status work(void *context, struct err *err) {
    bool tagged = *(const bool *)context;
    struct vocabulary *vocabulary = NULL;
    struct grammar *grammar = NULL;
    struct automaton *automaton = NULL;
    enum status status = make_vocabulary(&vocabulary, err);
    if (!status) status = make_grammar(&grammar, tagged, err);
    if (!status) status = automaton_create(&automaton, grammar, vocabulary, NULL, err);
    if (!status) {
        status = follow(automaton, tagged ? "aé<a>{\"b\":zz}red" : "{\"é\":{\"a\":zzz,", err);
    }
    if (!status && !tagged) status = use_matcher(automaton, err);
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
    return status;
}

static enum status work_in_any_order(void *context, struct err *err) {
    (void)context;
    struct vocabulary *vocabulary = NULL;
    struct grammar *grammar = NULL;
    struct automaton *automaton = NULL;
    enum status status = make_vocabulary(&vocabulary, err);
    if (!status) status = make_any_order(&grammar, err);
    if (!status) status = automaton_create(&automaton, grammar, vocabulary, NULL, err);
    if (!status) status = follow(automaton, "{\"b\":1,\"zz\":1,\"a\":[", err);
    automaton_release(automaton);
    vocabulary_destroy(vocabulary);
    return status;
}

static void every_allocation_in_any_order(void **state) {
    (void)state;
    struct alloc_sweep sweep = {.work = work_in_any_order};
    assert_in_range(alloc_sweep_run(&sweep), 50, 1000);
}

static void every_allocation(void **state) {
    (void)state;
    for (int tagged = 0; tagged < 2; tagged++) {
        struct alloc_sweep sweep = {.work = work, .context = &(bool){tagged != 0}};
        assert_in_range(alloc_sweep_run(&sweep), 50, 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation),
                                       cmocka_unit_test(every_allocation_in_any_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
