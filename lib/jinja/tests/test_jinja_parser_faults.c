// Every allocation of parsing a template failing in turn.
#include <string.h>

#include "base/arena.h"
#include "jinja/src/parse/ast.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

// Long enough for several chunks of memory, with names that are counted and a tree of every kind.
static enum status parse(void *context, struct err *err) {
    struct arena arena = {0};
    struct jinja_ast ast;
    const char *source = context;
    enum status status = jinja_ast_parse(&ast, &arena, source, strlen(source), "t", err);
    arena_fini(&arena);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char piece[] =
        "{% for a, (b, c) in d if e %}{{ f(1, *g, h=2, i='\\n' 'j') }}{% endfor %}"
        "{% macro m(a, b=1) %}{% if a %}{{ a ~ b ~ caller() }}{% elif b %}c{% endif %}{% endmacro "
        "%}"
        "{% call(x) m({1: [2]}) %}{{ x[1:2]|trim }}{% endcall %}"
        "{% set a | trim %}b{% endset %}{% with a=1, b=2 %}{{ a < b == c }}{% endwith %}";
    static char source[64 * sizeof piece] =
        "{% block a %}{% endblock %}{% block b %}{% endblock %}";
    for (int i = 0; i < 60; ++i) strcat(source, piece);
    struct alloc_sweep sweep = {.work = parse, .context = source, .stride = 64};
    assert_true(alloc_sweep_run(&sweep) > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("jinja_parser_faults", tests, NULL, NULL);
}
