/* Shared by the tests of JSON schemas: which texts fit a schema. ' stands for " in all texts. */
#ifndef SCHEMA_FIXTURE_H
#define SCHEMA_FIXTURE_H

#include "structured/schema/schema.h"
#include "structured/structured_fixture.h"

struct schema_row {
    const char *schema, *valid, *invalid; // texts between |
};

char *schema_with_quotes(const char *text); // allocates
// Reads the schema into a new grammar.
enum status schema_fixture_add(struct grammar **grammar, const char *schema,
                               const struct schema_options *options, struct schema_report *report,
                               struct err *err);
// NULL: the schema is refused. `options` may be NULL.
struct automaton *schema_compile(const json_t *schema, const struct schema_options *options,
                                 const struct vocabulary *vocabulary, struct err *err);
void schema_check_list(struct automaton *automaton, const char *texts, bool expected);
void schema_check_row(const struct schema_row *row, const struct schema_options *options,
                      const struct vocabulary *vocabulary);
void schema_check_rows(const struct schema_row *rows, size_t num_rows,
                       const struct vocabulary *vocabulary);

#endif
