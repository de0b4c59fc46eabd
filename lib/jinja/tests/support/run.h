/* A run without a template: for testing values, the library and the budget alone. */
#ifndef JINJA_TESTS_RUN_H
#define JINJA_TESTS_RUN_H

#include <jansson.h>

#include "jinja/src/run.h"

enum { TEMPLATE_RUN_DOCUMENTS = 16 };

struct template_run {
    struct run run;
    struct err err;
    json_t *documents[TEMPLATE_RUN_DOCUMENTS]; // what values borrow from
    size_t num_documents;
};

// A generous budget; the fixture must stay where it is, since the run points into it.
void template_run_init(struct template_run *fixture);
void template_run_fini(struct template_run *fixture);
// The value that a JSON text is; a broken text or a value that cannot be made fails the test.
struct value template_run_json(struct template_run *fixture, const char *json);
// str(value) and repr(value), NUL-terminated, in the run's memory.
const char *template_run_str(struct template_run *fixture, struct value value);
const char *template_run_repr(struct template_run *fixture, struct value value);

#endif
