#include "jinja/tests/support/run.h"

#include <string.h>

#include "base/json/jread.h"
#include "support/cmocka_all.h"

void jinja_fixture_init(struct jinja_fixture *fixture) {
    *fixture = (struct jinja_fixture){0};
    fixture->run = (struct jinja_run){.memory_left = 64 << 20,
                                      .steps_left = 10000000,
                                      .depth_left = JINJA_DEPTH_MAX,
                                      .what = "t",
                                      .line = 1,
                                      .err = &fixture->err};
}

void jinja_fixture_fini(struct jinja_fixture *fixture) {
    arena_fini(&fixture->run.arena);
    for (size_t i = 0; i < fixture->num_documents; i++) json_decref(fixture->documents[i]);
}

struct jinja_value jinja_fixture_json(struct jinja_fixture *fixture, const char *json) {
    assert_true(fixture->num_documents < JINJA_RUN_DOCUMENTS);
    struct err err;
    json_t *document;
    if (jread_request(&document, json, strlen(json), "it", &err)) {
        fail_msg("%s: %s", json, err.message);
    }
    fixture->documents[fixture->num_documents++] = document;
    struct jinja_value value = {0};
    if (jinja_value_from_json(&fixture->run, document, &value))
        fail_msg("%s", fixture->err.message);
    return value;
}

static const char *finish(struct jinja_fixture *fixture, enum status status,
                          struct jinja_text *text) {
    if (!status) status = jinja_text_append(&fixture->run, text, "", 1);
    if (status) fail_msg("%s", fixture->err.message);
    return text->data;
}

const char *jinja_fixture_str(struct jinja_fixture *fixture, struct jinja_value value) {
    struct jinja_text text = {0};
    return finish(fixture, jinja_value_print(&fixture->run, value, &text), &text);
}

const char *jinja_fixture_repr(struct jinja_fixture *fixture, struct jinja_value value) {
    struct jinja_text text = {0};
    return finish(fixture, jinja_value_repr(&fixture->run, value, &text), &text);
}
