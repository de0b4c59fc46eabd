#include "jinja/tests/support/run.h"

#include <string.h>

#include "base/jread.h"
#include "support/cmocka_all.h"

void template_run_init(struct template_run *fixture) {
    *fixture = (struct template_run){0};
    fixture->run = (struct run){.memory_left = 64 << 20,
                                .steps_left = 10000000,
                                .depth_left = RUN_DEPTH_MAX,
                                .what = "t",
                                .line = 1,
                                .err = &fixture->err};
}

void template_run_fini(struct template_run *fixture) {
    arena_fini(&fixture->run.arena);
    for (size_t i = 0; i < fixture->num_documents; i++) json_decref(fixture->documents[i]);
}

struct value template_run_json(struct template_run *fixture, const char *json) {
    assert_true(fixture->num_documents < TEMPLATE_RUN_DOCUMENTS);
    struct err err;
    json_t *document;
    if (jread_request(&document, json, strlen(json), "it", &err)) {
        fail_msg("%s: %s", json, err.message);
    }
    fixture->documents[fixture->num_documents++] = document;
    struct value value = {0};
    if (value_from_json(&fixture->run, document, &value)) fail_msg("%s", fixture->err.message);
    return value;
}

static const char *finish(struct template_run *fixture, enum status status, struct text *text) {
    if (!status) status = text_append(&fixture->run, text, "", 1);
    if (status) fail_msg("%s", fixture->err.message);
    return text->data;
}

const char *template_run_str(struct template_run *fixture, struct value value) {
    struct text text = {0};
    return finish(fixture, value_print(&fixture->run, value, &text), &text);
}

const char *template_run_repr(struct template_run *fixture, struct value value) {
    struct text text = {0};
    return finish(fixture, value_repr(&fixture->run, value, &text), &text);
}
