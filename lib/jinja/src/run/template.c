/* The two ends of the interpreter: a source becomes a tree, a tree and variables become text. */
#include "jinja/jinja.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/src/run/exec.h"
#include "jinja/src/run/run.h"
#include "jinja/src/run/scope.h"
#include "jinja/src/value/symbols.h"

struct jinja_template {
    struct arena arena; // of the tree, with its copy of the source, and of the name
    const char *what;
    struct jinja_ast ast;
};

enum {
    VARIABLES_DEPTH_MAX = JINJA_DEPTH_MAX, // deeper ones are refused when they become values
};

void jinja_template_destroy(struct jinja_template *template) {
    if (!template) return;
    arena_fini(&template->arena);
    free(template);
}

static enum status parse(struct jinja_template *template, const char *source, size_t len,
                         const char *what, struct err *err) {
    template->what = arena_strndup(&template->arena, what, strlen(what));
    if (!template->what) return err_nomem(err, "a chat template");
    enum status status =
        jinja_ast_parse(&template->ast, &template->arena, source, len, template->what, err);
    if (status) return status;
    return jinja_symbols_resolve(&template->ast.root, &template->arena, err);
}

enum status jinja_template_parse(struct jinja_template **out, const char *source, size_t len,
                                 const char *what, struct err *err) {
    *out = NULL;
    struct jinja_template *template = calloc(1, sizeof(*template));
    if (!template) return err_nomem(err, "a chat template");
    enum status status = parse(template, source, len, what, err);
    if (status) {
        jinja_template_destroy(template);
        return status;
    }
    *out = template;
    return OK;
}

// ---- rendering ----

// How much the variables are: what a render may use grows with it.
struct extent {
    uint64_t num_values, num_bytes;
};

static void measure(json_t *json, int depth, struct extent *extent) {
    extent->num_values++;
    extent->num_bytes += json_string_length(json);
    if (!depth) return;
    for (size_t i = 0; i < json_array_size(json); ++i)
        measure(json_array_get(json, i), depth - 1, extent);
    for (void *at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
        extent->num_bytes += json_object_iter_key_len(at);
        measure(json_object_iter_value(at), depth - 1, extent);
    }
}

static enum status render(struct jinja_run *run, const struct jinja_template *template,
                          const json_t *variables) {
    enum status status = jinja_value_from_json(run, variables, &run->variables);
    if (status) return status;
    status = jinja_scope_enter(run, NULL, &template->ast.root);
    if (status) return status;
    run->root = run->frame; // block tags begin here, wherever they stand
    if (template->ast.uses_self) status = jinja_exec_set_self(run);
    if (status) return status;
    enum jinja_flow flow;
    return jinja_exec_block(run, &template->ast.root, &flow);
}

enum status jinja_template_render(const struct jinja_template *template, const json_t *variables,
                                  const struct jinja_render_options *options, struct buf *out,
                                  struct err *err) {
    if (!json_is_object(variables)) {
        return err_set(err, ERR_INVALID, "%s: the variables are not an object", template->what);
    }
    struct extent extent = {0};
    // jansson walks objects only through a pointer that could write; nothing is written.
    measure((json_t *)(uintptr_t)variables, VARIABLES_DEPTH_MAX, &extent);
    struct jinja_text text = {0};
    struct err own_err = {0};
    uint64_t steps = JINJA_STEPS_BASE + JINJA_STEPS_PER_INPUT_VALUE * extent.num_values +
                     JINJA_STEPS_PER_INPUT_BYTE * extent.num_bytes;
    if (steps > JINJA_STEPS_MAX) steps = JINJA_STEPS_MAX;
    struct jinja_run run = {
        .memory_left = (size_t)(JINJA_MEMORY_BASE + JINJA_MEMORY_PER_INPUT_BYTE * extent.num_bytes),
        .steps_left = steps,
        .ask_below = steps,
        .depth_left = JINJA_DEPTH_MAX,
        .line = 1,
        .what = template->what,
        .ast = &template->ast,
        .options = options,
        .out = &text,
        .err = err ? err : &own_err, // jinja_run_status reads it
    };
    enum status status = render(&run, template, variables);
    if (!status && text.len) status = buf_append(out, text.data, text.len, err);
    arena_fini(&run.arena);
    return status;
}
