// Every allocation of the library's work failing in turn: filters, methods, formats, functions.
#include "jinja/jinja.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

// Texts of tens of kilobytes, so that each step needs memory of its own from the system.
static const char source[] =
    "{% set s = 'Aé <b>c-d</b>, ' * 500 %}{% set words = s.split() %}"
    "{{ s|upper|lower|title|capitalize|trim|length }}{{ s.swapcase()|safe|length }}"
    "{{ (s|safe + s)|length }}{{ s|indent|length }}"
    "{{ s|replace('c', 'dd')|truncate(20000)|center(50000)|length }}{{ s|reverse|length }}"
    "{{ words|map('lower')|unique|sort|join('-')|length }}{{ words|batch(3)|list|length }}"
    "{{ words|slice(7)|map('length')|list }}{{ words|groupby(0)|map('first')|join }}"
    "{{ words|select('ne', 'x')|list|tojson(indent=2)|length }}{{ words|string|length }}"
    "{{ s.splitlines()|length }}{{ s.partition('d')|length }}{{ s.rsplit('c')|length }}"
    "{{ ('%s|%50000d|%.30000f' % (s, 5, 1.5))|length }}"
    "{{ '{!r:>80000}{:50000,}'.format(s, 12345)|length }}{{ ('%d' ~ s)|format(1)|length }}"
    "{{ s.ljust(80000)|length }}{{ strftime_now('%Y' * 500)|length }}"
    "{{ range(3000)|list|reverse|first }}"
    "{{ {}.fromkeys(range(1000))|dictsort|length }}{{ namespace(a=s).a|length }}";

static json_t *variables; // an empty object

static enum status render(void *context, struct err *err) {
    (void)context;
    const struct jinja_render_options options = {.now = {.tm_year = 123, .tm_mday = 1}};
    struct jinja_template *template = NULL;
    struct buf out = {0};
    enum status status = jinja_template_parse(&template, source, sizeof source - 1, "t", err);
    if (!status) status = jinja_template_render(template, variables, &options, &out, err);
    jinja_template_destroy(template);
    buf_fini(&out);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct err err = {0};
    variables = json_object();
    assert_non_null(variables);
    if (render(NULL, &err)) fail_msg("%s", err.message);
    struct alloc_sweep sweep = {.work = render};
    assert_true(alloc_sweep_run(&sweep) > 20);
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("jinja_library_faults", tests, NULL, NULL);
}
