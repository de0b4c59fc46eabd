/* A template comes with a checkpoint and may be hostile: whatever it asks for, rendering ends with
 * a sentence, soon and in bounded memory. How soon is not asserted here, since machines differ: an
 * unpaid loop shows as a test that runs for minutes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/utf8.h"
#include "jinja/jinja.h"
#include "support/cmocka_all.h"

static enum status render(const char *source, struct buf *out, struct err *err) {
    json_t *variables = json_pack("{s:[i,i,i]}", "seq", 3, 1, 2);
    assert_non_null(variables);
    struct jinja_template *template = NULL;
    enum status status = jinja_template_parse(&template, source, strlen(source), "t", err);
    const struct jinja_render_options options = {.now = {.tm_mday = 1}};
    if (!status) status = jinja_template_render(template, variables, &options, out, err);
    jinja_template_destroy(template);
    json_decref(variables);
    return status;
}

static void assert_refused(const char *source, enum status want, const char *reason) {
    struct buf out = {0};
    struct err err = {0};
    enum status status = render(source, &out, &err);
    if (status != want || !strstr(err.message, reason)) {
        fail_msg("%.60s: status %s, \"%s\", want \"%s\"", source, status_name(status), err.message,
                 reason);
    }
    assert_int_equal(out.len, 0);
    buf_fini(&out);
}

static void nested_loops_run_out_of_steps(void **state) {
    (void)state;
    assert_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in "
                   "range(99999) %}x{% endfor %}{% endfor %}{% endfor %}",
                   ERR_INVALID, "steps");
}

static void loops_with_nothing_inside_run_out_of_steps(void **state) {
    (void)state;
    assert_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                   ERR_INVALID, "steps");
}

// 60,000 values would pay for 120 million steps.
static void steps_have_a_ceiling_whatever_the_input_is(void **state) {
    (void)state;
    json_t *seq = json_array(), *variables = json_pack("{s:o}", "seq", seq);
    for (int i = 0; i < 60000; i++) assert_int_equal(json_array_append_new(seq, json_true()), 0);
    static const char source[] =
        "{% for a in range(300) %}{% for b in seq %}{{ '' }}{% endfor %}{% endfor %}";
    struct jinja_template *template = NULL;
    struct buf out = {0};
    struct err err = {0};
    const struct jinja_render_options options = {.now = {.tm_mday = 1}};
    assert_int_equal(jinja_template_parse(&template, source, sizeof source - 1, "t", &err), OK);
    assert_int_equal(jinja_template_render(template, variables, &options, &out, &err), ERR_INVALID);
    assert_string_equal(err.message, "t: line 1: the template takes more steps than a render may");
    jinja_template_destroy(template);
    json_decref(variables);
    buf_fini(&out);
}

static int is_third(void *user_data) {
    int *num_asked = user_data;
    return ++*num_asked == 3;
}

static void an_interrupt_ends_a_render(void **state) {
    (void)state;
    static const char source[] =
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    int num_asked = 0;
    const struct interrupt interrupt = {.is_wanted = is_third, .user_data = &num_asked};
    const struct jinja_render_options options = {.now = {.tm_mday = 1}, .interrupt = &interrupt};
    json_t *variables = json_object();
    struct jinja_template *template = NULL;
    struct buf out = {0};
    struct err err = {0};
    assert_int_equal(jinja_template_parse(&template, source, sizeof source - 1, "t", &err), OK);
    assert_int_equal(jinja_template_render(template, variables, &options, &out, &err),
                     ERR_INTERRUPTED);
    assert_int_equal(num_asked, 3);
    assert_int_equal(out.len, 0);
    jinja_template_destroy(template);
    json_decref(variables);
    buf_fini(&out);
}

static void macros_that_call_themselves_twice_run_out_of_steps(void **state) {
    (void)state;
    assert_refused("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% "
                   "endmacro %}{{ m(60) }}",
                   ERR_INVALID, "steps");
}

static void a_range_is_bounded_as_in_the_sandbox(void **state) {
    (void)state;
    assert_refused("{{ range(10**9) | list | length }}", ERR_INVALID, "range");
}

static void endless_recursion_ends_at_the_depth_limit(void **state) {
    (void)state;
    assert_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_INVALID, "deep");
}

static void repeated_strings_are_bounded(void **state) {
    (void)state;
    assert_refused("{{ 'a' * 10**15 }}", ERR_INVALID, "too long");
}

static void repeated_lists_are_bounded(void **state) {
    (void)state;
    assert_refused("{{ (seq * 10**15)|length }}", ERR_INVALID, "steps");
}

static void doubling_a_string_is_bounded(void **state) {
    (void)state;
    assert_refused("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + "
                   "ns.s %}{% endfor %}",
                   ERR_INVALID, "steps");
}

static void padding_is_bounded(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{{ 'a'.center(10**12) }}",         "{{ 'a'|center(10**12) }}",
        "{{ '%999999999999d' % 1 }}",       "{{ '%.*f' % (10**12, 1) }}",
        "{{ '%*s'|format(10**12, 1) }}",    "{{ '{:>{}}'.format(1, 10**12) }}",
        "{{ '{:.999999999f}'.format(1) }}", "{{ '{:0999999999,}'.format(1) }}",
        "{{ 'a\nb'|indent(10**12) }}",      "{{ '1'.zfill(10**12) }}",
        "{{ '\t'.expandtabs(10**12) }}",    "{{ seq|tojson(indent=10**12) }}",
        "{{ seq|batch(10**12, 0)|list }}",  "{{ seq|slice(10**12)|list }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        assert_refused(sources[i], ERR_INVALID, "t: line");
    }
}

static void replacing_can_not_blow_up(void **state) {
    (void)state;
    assert_refused("{% set ns = namespace(s='aaaaaaaaaa') %}{% for i in range(99) %}{% set ns.s = "
                   "ns.s.replace('a', 'aaaaaaaaaa') %}{% endfor %}",
                   ERR_INVALID, "steps");
}

static void large_powers_are_errors(void **state) {
    (void)state;
    assert_refused("{{ 9 ** 9 ** 9 }}", ERR_INVALID, "too large");
}

static void a_list_nested_without_end_can_not_be_printed(void **state) {
    (void)state;
    assert_refused("{% set ns = namespace(x=[]) %}{% for i in range(9000) %}{% set ns.x = [ns.x] "
                   "%}{% endfor %}{{ ns.x }}",
                   ERR_INVALID, "deep");
}

static void a_list_nested_without_end_can_not_be_compared(void **state) {
    (void)state;
    assert_refused("{% set ns = namespace(x=[], y=[]) %}{% for i in range(9000) %}{% set ns.x = "
                   "[ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
                   ERR_INVALID, "deep");
}

static void a_list_that_prints_exponentially_is_bounded(void **state) {
    (void)state;
    assert_refused("{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, "
                   "ns.x] %}{% endfor %}{{ ns.x }}",
                   ERR_INVALID, "t: line");
}

// `count` times `unit`, then `tail`; the caller frees.
static char *repeat(const char *unit, size_t count, const char *tail) {
    size_t len = strlen(unit);
    char *text = malloc(len * count + strlen(tail) + 1);
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) memcpy(text + i * len, unit, len);
    memcpy(text + len * count, tail, strlen(tail) + 1);
    return text;
}

// What looks at a long string without paying for it could look 100,000 times.
static void looking_at_a_long_string_is_paid_for(void **state) {
    (void)state;
    static const char *const looks[] = {
        "'a'*6000000 %}{% for i in range(100000) %}{% set x = s.removeprefix(s) %}{% endfor %}",
        "'a'*6000000 %}{% for i in range(100000) %}{% set x = s.removesuffix(s) %}{% endfor %}",
        "'a'*6000000 %}{% for i in range(100000) %}{% set x = s % () %}{% endfor %}",
        "'a'*6000000 %}{% for i in range(100000) %}{% set x = s.format() %}{% endfor %}",
        "'{0['~'a'*6000000~']}' %}{% for i in range(99999) %}{% set x = s.format(d) %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        char source[256];
        snprintf(source, sizeof source, "{%% set s = %s", looks[i]);
        assert_refused(source, ERR_INVALID, "steps");
    }
}

// These need not be paid for: they do not look at what is behind the first characters.
static void identity_and_reasons_do_not_read_long_strings(void **state) {
    (void)state;
    static const char *const looks[] = {
        "{% set t = 'a'*5999999 ~ 'b' %}{% for i in range(50000) %}{% set x = s is sameas t %}",
        "{% set t = none %}{% for i in range(50000) %}{% set x = t[s] %}",
        "{% set t = dict([(s, 1)]) %}{% for i in range(20) %}{% set x = t|attr(s) %}",
    };
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        char source[256];
        snprintf(source, sizeof source, "{%% set s = 'a'*6000000 %%}%s{%% endfor %%}", looks[i]);
        struct buf out = {0};
        struct err err = {0};
        enum status status = render(source, &out, &err);
        // Ends soon, one way or the other; the fault was minutes.
        assert_true(status == OK || strstr(err.message, "steps"));
        buf_fini(&out);
    }
}

static void an_undefined_name_is_cut_between_characters(void **state) {
    (void)state;
    char *name = repeat("a", 199, "\xc3\xa9"); // the cut would be inside of its last
    char source[2048];
    struct buf out = {0};
    struct err err = {0};
    snprintf(source, sizeof source, "{{ %s + 1 }}", name);
    assert_int_equal(render(source, &out, &err), ERR_INVALID);
    assert_int_equal(utf8_valid_prefix(err.message, strlen(err.message)), strlen(err.message));
    free(name);
}

static void source_nested_too_deep_is_refused(void **state) {
    (void)state;
    static const char *const units[] = {
        "{{ (",    "{{ [",  "{{ -",  "{{ not ",         "{% if 1 %}", "{% for x in y %}",
        "{{ {1: ", "{{ f(", "{{ x[", "{% macro m() %}", "{{ a if ",   "{{ a if b else "};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const char *unit = units[i];
        // Expressions open the print once, statements every time.
        bool is_expression = unit[1] == '{';
        char *text = repeat(is_expression ? unit + 3 : unit, 50000, "");
        char *source = is_expression ? repeat("{{ ", 1, text) : repeat("", 0, text);
        assert_refused(source, ERR_FORMAT, "deep");
        free(source);
        free(text);
    }
}

static void a_long_flat_expression_is_no_crash(void **state) {
    (void)state;
    char *sum = repeat("1 + ", 50000, "1 }}");
    char *source = repeat("{{ ", 1, sum);
    struct buf out = {0};
    struct err err = {0};
    // Jinja fails too (Python's recursion limit); what counts is that it ends in an error or text.
    enum status status = render(source, &out, &err);
    assert_true(status == OK || strstr(err.message, "deep"));
    buf_fini(&out);
    free(source);
    free(sum);
}

static void a_failed_render_leaves_the_output_as_it_was(void **state) {
    (void)state;
    struct buf out = {0};
    struct err err = {0};
    assert_int_equal(buf_append_str(&out, "before", &err), OK);
    assert_int_equal(render("some text {{ 1 / 0 }}", &out, &err), ERR_INVALID);
    assert_int_equal(out.len, 6);
    assert_string_equal(err.message, "t: line 1: division by zero");
    buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_loops_run_out_of_steps),
        cmocka_unit_test(loops_with_nothing_inside_run_out_of_steps),
        cmocka_unit_test(steps_have_a_ceiling_whatever_the_input_is),
        cmocka_unit_test(an_interrupt_ends_a_render),
        cmocka_unit_test(macros_that_call_themselves_twice_run_out_of_steps),
        cmocka_unit_test(a_range_is_bounded_as_in_the_sandbox),
        cmocka_unit_test(endless_recursion_ends_at_the_depth_limit),
        cmocka_unit_test(repeated_strings_are_bounded),
        cmocka_unit_test(repeated_lists_are_bounded),
        cmocka_unit_test(doubling_a_string_is_bounded),
        cmocka_unit_test(padding_is_bounded),
        cmocka_unit_test(replacing_can_not_blow_up),
        cmocka_unit_test(large_powers_are_errors),
        cmocka_unit_test(a_list_nested_without_end_can_not_be_printed),
        cmocka_unit_test(a_list_nested_without_end_can_not_be_compared),
        cmocka_unit_test(a_list_that_prints_exponentially_is_bounded),
        cmocka_unit_test(looking_at_a_long_string_is_paid_for),
        cmocka_unit_test(identity_and_reasons_do_not_read_long_strings),
        cmocka_unit_test(an_undefined_name_is_cut_between_characters),
        cmocka_unit_test(source_nested_too_deep_is_refused),
        cmocka_unit_test(a_long_flat_expression_is_no_crash),
        cmocka_unit_test(a_failed_render_leaves_the_output_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
