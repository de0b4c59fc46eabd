#include "jinja/tests/support/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "support/cmocka_all.h"

static const char variables_text[] = "{\"x\": 1, \"xs\": [1, 2, 3], \"d\": {\"k\": \"v\"},"
                                     " \"t\": [{\"v\": 1, \"c\": [{\"v\": 2, \"c\": [{\"v\": 3, "
                                     "\"c\": []}]}, {\"v\": 4, \"c\": []}]},"
                                     " {\"v\": 5, \"c\": []}]}";

enum status jinja_render_text(const char *source, char **text, struct err *err) {
    *text = NULL;
    json_t *variables = json_loads(variables_text, 0, NULL);
    if (!variables) return err_nomem(err, "the variables");
    struct jinja_template *template = NULL;
    struct buf out = {0};
    const struct jinja_render_options options = {.now = {.tm_mday = 1}};
    enum status status = jinja_template_parse(&template, source, strlen(source), "t", err);
    if (!status) status = jinja_template_render(template, variables, &options, &out, err);
    if (!status) status = buf_append_str(&out, "", err); // so that an empty one is a text too
    jinja_template_destroy(template);
    json_decref(variables);
    if (status) {
        buf_fini(&out);
    } else {
        *text = out.data;
    }
    return status;
}

void assert_all_render(const struct render_case *cases, size_t count) {
    size_t num_wrong = 0;
    for (size_t i = 0; i < count; i++) {
        struct err err = {0};
        char *text;
        enum status status = jinja_render_text(cases[i].source, &text, &err);
        if (status || strcmp(text, cases[i].want) != 0) {
            print_error("%s\n  gives %s\n  want  %s\n", cases[i].source,
                        status ? err.message : text, cases[i].want);
            num_wrong++;
        }
        free(text);
    }
    assert_int_equal(num_wrong, 0);
}

void assert_all_fail(const struct render_case *cases, size_t count) {
    size_t num_wrong = 0;
    for (size_t i = 0; i < count; i++) {
        struct err err = {0};
        char *text;
        enum status status = jinja_render_text(cases[i].source, &text, &err);
        size_t len = strlen(err.message), len_want = strlen(cases[i].want);
        if (status == OK || len < len_want ||
            strcmp(err.message + len - len_want, cases[i].want) != 0) {
            print_error("%s\n  gives %s\n  want  %s\n", cases[i].source,
                        status ? err.message : text, cases[i].want);
            num_wrong++;
        }
        free(text);
    }
    assert_int_equal(num_wrong, 0);
}
