/* A run without a template, to test values, the library and the budget by themselves. */
#ifndef SUPPORT_TEMPLATE_RUN_H
#define SUPPORT_TEMPLATE_RUN_H

#include <jansson.h>

#include "text/template/run.h"

enum { TEMPLATE_RUN_DOCUMENTS = 16 };

struct template_run {
    struct run run;
    struct err err;
    json_t *documents[TEMPLATE_RUN_DOCUMENTS]; // that values borrow from
    size_t num_documents;
};

// Starts with a generous budget. The fixture must not move, since the run points into it.
void template_run_init(struct template_run *fixture);
void template_run_fini(struct template_run *fixture);
// The value of a JSON text. Fails the test if the text is broken or the value cannot be made.
struct value template_run_json(struct template_run *fixture, const char *json);
// str(value) and repr(value), NUL-terminated, in the run's memory.
const char *template_run_str(struct template_run *fixture, struct value value);
const char *template_run_repr(struct template_run *fixture, struct value value);

#endif
