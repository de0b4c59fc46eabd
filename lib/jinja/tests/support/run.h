/* A run without a template: for testing values, the library and the budget alone. */
#ifndef JINJA_TESTS_RUN_H
#define JINJA_TESTS_RUN_H

#include <jansson.h>

#include "jinja/src/run/run.h"

enum { JINJA_RUN_DOCUMENTS = 16 };

struct jinja_fixture {
    struct jinja_run run;
    struct err err;
    json_t *documents[JINJA_RUN_DOCUMENTS]; // what values borrow from
    size_t num_documents;
};

// A generous budget; the fixture must stay where it is, since the run points into it.
void jinja_fixture_init(struct jinja_fixture *fixture);
void jinja_fixture_fini(struct jinja_fixture *fixture);
// The value that a JSON text is; a broken text or a value that cannot be made fails the test.
struct jinja_value jinja_fixture_json(struct jinja_fixture *fixture, const char *json);
// str(value) and repr(value), NUL-terminated, in the run's memory.
const char *jinja_fixture_str(struct jinja_fixture *fixture, struct jinja_value value);
const char *jinja_fixture_repr(struct jinja_fixture *fixture, struct jinja_value value);

#endif
