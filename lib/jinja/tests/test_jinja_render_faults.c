// Every allocation of parsing and rendering failing in turn, over a template of all statements.
#include <stdlib.h>

#include "jinja/tests/support/render.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const char source[] =
    "{% macro m(a, b=[x], c=none) %}{{ a }}{{ varargs }}{{ kwargs }}{{ caller(a) }}{% endmacro %}"
    "{% call(v) m(1, *xs, q=2, **d) %}{{ v ~ x ~ 'text' }}{% endcall %}"
    "{% set ns = namespace(s='x' * 2000) %}"
    "{% for i in xs if i != 2 %}{{ loop.length }}{{ loop.changed(i) }}{{ loop.nextitem }}"
    "{% set y = (i, [i], {'k': i}) %}{% set ns.s = ns.s + 'y' %}{{ y }}{{ ns.s[::-700] }}"
    "{% else %}none{% endfor %}"
    "{% for n in t recursive %}{{ n.v }}{{ loop(n.c) }}{% endfor %}"
    "{% with p, q = xs[:2] %}{{ p }}{{ q }}{{ 'abc'[-1] }}{{ 2 if u else d.z }}"
    "{% endwith %}{% filter upper %}text{% endfilter %}{% set z | trim %} a {% endset %}"
    "{% generation %}{{ z }}{% endgeneration %}{% block b %}{{ xs|join(',') }}{% endblock %}"
    "{{ '<' + ('<'|safe) }}"
    "{% set a1, a2 = 1, 2 %}{% set a3 = 3 %}{% set a4 = 4 %}{% set a5 = 5 %}{% set a6 = 6 %}"
    "{{ m.arguments }}{{ d.items()|list }}{{ xs * 3 }}{{ range(9)[1:3] }}";

static enum status render(void *context, struct err *err) {
    (void)context;
    char *text;
    enum status status = jinja_render_text(source, &text, err);
    free(text);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct alloc_sweep sweep = {.work = render};
    assert_true(alloc_sweep_run(&sweep) > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("jinja_render_faults", tests, NULL, NULL);
}
