/* Renders templates: one JSON object {"template", "variables", "now"} per line of standard input,
 * one {"text"} or {"error"} per line of standard output. What the comparison with Jinja2 drives. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "jinja/jinja.h"

static struct jinja_render_options options_of(const char *now) {
    struct jinja_render_options options = {.now = {.tm_isdst = -1}};
    if (now) strptime(now, "%Y-%m-%dT%H:%M:%S", &options.now);
    return options;
}

static enum status render(const json_t *line, struct buf *out, struct err *err) {
    const json_t *source = json_object_get(line, "template");
    struct jinja_render_options options =
        options_of(json_string_value(json_object_get(line, "now")));
    struct jinja_template *template = NULL;
    enum status status = jinja_template_parse(&template, json_string_value(source),
                                              json_string_length(source), "template", err);
    if (!status) {
        status =
            jinja_template_render(template, json_object_get(line, "variables"), &options, out, err);
    }
    jinja_template_destroy(template);
    return status;
}

static int answer(const char *text, size_t len) {
    struct err err = {0};
    json_t *line = NULL;
    if (jread_request(&line, text, len, "line", &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    struct buf out = {0};
    enum status status = render(line, &out, &err);
    json_t *result =
        status ? json_pack("{s:s}", "error", err.message)
               : json_pack("{s:o}", "text", json_stringn(out.data ? out.data : "", out.len));
    if (!result || json_dumpf(result, stdout, JSON_COMPACT)) {
        fprintf(stderr, "not UTF-8 or out of memory: %s\n", err.message);
    }
    putchar('\n');
    json_decref(result);
    json_decref(line);
    buf_fini(&out);
    return result ? 0 : 1;
}

int main(void) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t len;
    int failed = 0;
    while (!failed && (len = getline(&line, &capacity, stdin)) > 0) {
        failed = answer(line, (size_t)len);
    }
    free(line);
    return failed;
}
