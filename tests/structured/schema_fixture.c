#include "structured/schema_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "support/cmocka_all.h"

char *schema_with_quotes(const char *text) {
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    return copy;
}

enum status schema_fixture_add(struct grammar **grammar, const char *schema,
                               const struct schema_options *options, struct schema_report *report,
                               struct err *err) {
    char *text = schema_with_quotes(schema);
    json_t *json;
    assert_int_equal(jread_request(&json, text, strlen(text), "schema", err), OK);
    free(text);
    assert_int_equal(grammar_create(grammar, NULL, err), OK);
    uint32_t rule;
    enum status status = schema_add(*grammar, json, options, &rule, report, err);
    json_decref(json);
    if (!status) grammar_start(*grammar, rule);
    return status;
}

struct automaton *schema_compile(const json_t *schema, const struct schema_options *options,
                                 const struct vocabulary *vocabulary, struct err *err) {
    struct grammar *grammar;
    struct automaton *automaton = NULL;
    uint32_t rule;
    assert_int_equal(grammar_create(&grammar, NULL, NULL), OK);
    if (schema_add(grammar, schema, options, &rule, NULL, err)) {
        grammar_destroy(grammar);
        return NULL;
    }
    grammar_start(grammar, rule);
    return automaton_create(&automaton, grammar, vocabulary, NULL, err) ? NULL : automaton;
}

void schema_check_list(struct automaton *automaton, const char *texts, bool expected) {
    char *list = schema_with_quotes(texts), *rest = list, *text;
    while ((text = strsep(&rest, "|")) && *texts) fixture_check(automaton, text, expected);
    free(list);
}

void schema_check_row(const struct schema_row *row, const struct schema_options *options,
                      const struct vocabulary *vocabulary) {
    struct grammar *grammar;
    struct err err = {0};
    if (schema_fixture_add(&grammar, row->schema, options, NULL, &err)) {
        fail_msg("%s: %s", row->schema, err.message);
    }
    struct automaton *automaton = fixture_run(grammar, vocabulary);
    schema_check_list(automaton, row->valid, true);
    schema_check_list(automaton, row->invalid, false);
    automaton_release(automaton);
}

void schema_check_rows(const struct schema_row *rows, size_t num_rows,
                       const struct vocabulary *vocabulary) {
    for (size_t i = 0; i < num_rows; i++) schema_check_row(&rows[i], NULL, vocabulary);
}
