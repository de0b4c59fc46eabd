// Renders each expression of a table and compares.
#include "jinja/tests/support/cases.h"

#include <stdbool.h>
#include <string.h>

#include "jinja/jinja.h"

static const char variables_json[] =
    "{\"words\": [\"pear\", \"Apple\", \"fig\", \"apple\"], "
    "\"people\": [{\"name\": \"Bo\", \"age\": 3, \"pet\": {\"kind\": \"cat\"}}, {\"name\": \"al\", "
    "\"age\": 1}, {\"name\": \"Cy\", \"age\": 2, \"pet\": {\"kind\": \"dog\"}}], "
    "\"text\": \"Hello wide World\", "
    "\"html\": \"<b>it's \\\"x\\\" & y</b>\", "
    "\"greek\": \"\\u039f\\u0394\\u039f\\u03a3\", "
    "\"deep\": {\"b\": [1, {\"z\": null, \"a\": \"long text that goes on and on until the line is "
    "over\"}], \"a\": \"another long text so that it all cannot stand on one line\"}}";

static enum status render(const char *expression, const json_t *variables, struct buf *out,
                          struct err *err) {
    const struct jinja_render_options options = {
        .now = {.tm_year = 123,
                .tm_mon = 10,
                .tm_mday = 14,
                .tm_hour = 22,
                .tm_min = 13,
                .tm_sec = 20,
                .tm_wday = 2,
                .tm_yday = 317},
        .microsecond = 123456,
    };
    struct buf source = {0};
    struct jinja_template *template = NULL;
    assert_int_equal(buf_appendf(&source, NULL, "{{ %s }}", expression), OK);
    enum status status = jinja_template_parse(&template, source.data, source.len, "t", err);
    if (!status) status = jinja_template_render(template, variables, &options, out, err);
    jinja_template_destroy(template);
    buf_fini(&source);
    return status;
}

static void check(const struct jinja_case *wanted, const json_t *variables) {
    struct buf out = {0};
    struct err err = {0};
    enum status status = render(wanted->expression, variables, &out, &err);
    const char *got = status ? err.message : out.data ? out.data : "";
    size_t got_len = status ? strlen(got) : out.len;
    struct buf text = {0};
    const char *prefix = wanted->printed ? "" : "t: line 1: ";
    assert_int_equal(buf_appendf(&text, NULL, "%s%s", prefix,
                                 wanted->printed ? wanted->printed : wanted->reason),
                     OK);
    bool is_equal = text.len == got_len && memcmp(text.data ? text.data : "", got, got_len) == 0;
    if (!is_equal || (status == OK) != (wanted->printed != NULL))
        fail_msg("{{ %s }} gives \"%s\", want \"%s\"", wanted->expression, got, text.data);
    buf_fini(&text);
    buf_fini(&out);
}

void jinja_cases_run(const struct jinja_case *cases, size_t num_cases) {
    json_t *variables = json_loads(variables_json, 0, NULL);
    assert_non_null(variables);
    for (size_t i = 0; i < num_cases; i++) check(&cases[i], variables);
    json_decref(variables);
}
