// Statements: scopes, loops, macros and blocks of text, as Jinja2 has them.
#include "jinja/tests/support/render.h"
#include "support/cmocka_all.h"

static void a_name_is_looked_up_from_the_inside_out(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set x = 7 %}{% for x in xs %}{{ x }}{% endfor %}{{ x }}", "1237"},
        {"{% with x = 2 %}{% for i in xs %}{{ x }}{% set x = 3 %}{% endfor %}{{ x }}{% endwith "
         "%}{{ x }}",
         "22221"},
        {"{{ x }}{{ range is defined }}{{ u is defined }}", "1TrueFalse"},
        {"{% set range = 5 %}{{ range }}", "5"},
        {"{% for i in xs %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}", "1617181"},
        {"{% for i in xs %}{% set x = x + 1 %}{{ x }}{% endfor %}", "222"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void what_a_body_sets_stays_inside(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs %}{% set q = i %}{{ q }}{% endfor %}{{ q is defined }}", "123False"},
        {"{% with %}{% set q = 1 %}{% endwith %}{{ q is defined }}", "False"},
        {"{% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }}", "False"},
        {"{% set a %}{% set q = 1 %}{% endset %}{{ q is defined }}", "False"},
        {"{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}", "1False"},
        {"{% block b %}{% set q = 1 %}{% endblock %}{{ q is defined }}", "False"},
        {"{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q is defined }}", "False"},
        {"{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% set q = 1 %}{% endcall %}{{ "
         "q is defined }}",
         "False"},
        {"{% if x %}{% set q = 1 %}{% endif %}{{ q is defined }}", "True"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void each_turn_of_a_loop_starts_anew(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs %}{{ q is defined }}{% set q = i %}{% endfor %}", "FalseFalseFalse"},
        {"{% for i in xs %}{% if i == 2 %}{% set x = 9 %}{% endif %}{{ x }}{% endfor %}", "191"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

// Jinja decides when it compiles that such a name is the scope's own.
static void a_name_that_its_scope_sets_hides_the_variable_before(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs %}{{ x }};{% endfor %}{% set x = 2 %}{{ x }}", ";;;2"},
        {"{% macro m() %}{{ x }};{% endmacro %}{{ m() }}{% set x = 5 %}{{ m() }}", ";5;"},
        {"{{ x }}{% for i in xs %}{{ x }}{% endfor %}{% set x = 2 %}", "1111"},
        {"{% for i in xs %}{{ x }}{% endfor %}{% if x %}{% set x = 2 %}{% endif %}{{ x }}", "1112"},
        {"{% for i in xs %}{% for j in [1] %}{{ d is defined }}{% endfor %}{% set d = 1 %}{{ d "
         "}}{% endfor %}",
         "False1False1False1"},
        {"{% macro m() %}{{ range is defined }}{% endmacro %}{{ m() }}{% set range = 1 %}{{ m() }}",
         "FalseTrue"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void a_block_tag_sees_only_the_outermost_scope(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set q = 1 %}{% block a %}{{ q }}{% set q = 2 %}{{ q }}{% endblock %}{{ q }}", "121"},
        {"{% for i in xs %}{% set q = i %}{% block a %}{{ q is defined }}{{ i is defined }}{{ loop "
         "is defined }}{{ x }}{% endblock %}{% endfor %}",
         "FalseFalseFalse1FalseFalseFalse1FalseFalseFalse1"},
        {"{% block a %}{{ x }}{% endblock %}{% set x = 5 %}{% block b %}{{ x }}{% endblock %}",
         "15"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void set_unpacks(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
        {"{% set (a, (b, c)) = (1, (2, 3)) %}{{ a }}{{ b }}{{ c }}", "123"},
        {"{% set a, b = \"xy\" %}{{ b ~ a }}", "yx"},
        {"{% set a, b = {\"p\": 1, \"q\": 2} %}{{ a }}{{ b }}", "pq"},
        {"{% set a = 1, 2 %}{{ a }}", "(1, 2)"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set a, b = 1 %}", "cannot unpack non-iterable int object"},
        {"{% set a, b = \"xyz\" %}", "too many values to unpack (expected 2)"},
        {"{% set a, b = [1] %}", "not enough values to unpack (expected 2, got 1)"},
        {"{% set a, b = u %}", "not enough values to unpack (expected 2, got 0)"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void namespaces_take_attributes(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set ns = namespace(a=1) %}{% for i in xs %}{% set ns.a = ns.a + i %}{% endfor %}{{ "
         "ns.a }}",
         "7"},
        {"{% set ns = namespace(a=1) %}{% set ns.a, b = 5, 6 %}{{ ns.a }}{{ b }}", "56"},
        {"{% set ns = namespace() %}{% set ns.t %}abc{% endset %}{{ ns.t }}", "abc"},
        {"{% set ns = namespace(f=1) %}{% macro m() %}{% set ns.f = ns.f + 1 %}{% endmacro %}{{ "
         "m() }}{{ m() }}{{ ns.f }}",
         "3"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set d.k = 3 %}", "cannot assign attribute on non-namespace object"},
        {"{% set u.k = 3 %}", "cannot assign attribute on non-namespace object"},
        {"{% set d.k = u.y %}", "cannot assign attribute on non-namespace object"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void text_is_captured_and_filtered(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set a %}text {{ x }}{% endset %}[{{ a }}]", "[text 1]"},
        {"{% set a | upper %}text {{ x }}{% endset %}[{{ a }}]", "[TEXT 1]"},
        {"{% set a | upper | length %}text{% endset %}{{ a + 1 }}", "5"},
        {"{% filter replace(\"a\", \"b\") | upper %}abc{% endfilter %}", "BBC"},
        {"{% filter replace(\"a\", q) %}{% set q = \"ZZ\" %}abc{% endfilter %}", "ZZbc"},
        {"{% for i in xs %}{% filter upper %}{% if i == 2 %}a{% endif %}b{% endfilter %}{% endfor "
         "%}",
         "BABB"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% filter length %}abc{% endfilter %}",
         "sequence item 0: expected str instance, int found"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void with_evaluates_outside(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "12False"},
        {"{% with x = 5, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}", "511"},
        {"{% with a, b = xs[:2] %}{{ a }}{{ b }}{% endwith %}", "12"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void loop_tells_where_it_is(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 "
         "}}{{ loop.first }}{{ loop.last }}{{ loop.length }}|{% endfor %}",
         "1032TrueFalse3|2121FalseFalse3|3210FalseTrue3|"},
        {"{% for i in xs %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
         "<1>2;1<2>3;2<3>;"},
        {"{% for i in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor "
         "%}",
         "FalseTrueTrueTrueTrueFalse"},
        {"{% for i in xs %}{{ loop.cycle(\"a\", \"b\") }}{{ loop[\"index\"] }}{% endfor %}",
         "a1b2a3"},
        {"{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }}{% endfor %}",
         "TrueFalseTrueFalseTrue"},
        {"{% for i in [1, 1] %}{{ loop.changed() }}{% endfor %}", "TrueFalse"},
        {"{% for i in xs %}{{ loop }}{{ loop|length }}{% endfor %}",
         "<LoopContext 1/3>3<LoopContext 2/3>3<LoopContext 3/3>3"},
        {"{% for i in xs %}{{ loop.foo is defined }}{% endfor %}", "FalseFalseFalse"},
        {"{% for i in xs %}{% set l = loop %}{% for j in xs %}{{ l.index }}{{ loop.index }}{% "
         "endfor %}{% endfor %}",
         "111213212223313233"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% for i in xs %}{{ loop.cycle() }}{% endfor %}", "no items for cycling given"},
        {"{% for i in xs %}{{ loop.previtem + 1 }}{% endfor %}", "there is no previous item"},
        {"{% for i in xs %}{{ loop.nextitem + 1 }}{% endfor %}", "there is no next item"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void loops_walk_what_has_items(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in \"a\xc3"
         "\xb1"
         "b\" %}{{ i }},{% endfor %}",
         "a,\xc3"
         "\xb1"
         ",b,"},
        {"{% for i in range(10, 0, -3) %}{{ i }}{{ loop.last }}{% endfor %}",
         "10False7False4False1True"},
        {"{% for k in d %}{{ k }}{% endfor %}", "k"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }}{{ loop.length }}{% endfor %}", "k=v1"},
        {"{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
        {"{% for i in u %}{{ i }}{% else %}E{% endfor %}", "E"},
        {"{% for g in [{\"a\": 1}, {\"a\": 1}, {\"a\": 2}]|groupby(\"a\") %}{{ g.grouper }}{{ "
         "g.list|length }}{{ g[0] }};{% endfor %}",
         "121;212;"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% for i in 5 %}{% endfor %}", "'int' object is not iterable"},
        {"{% for i in none %}{% endfor %}", "'NoneType' object is not iterable"},
        {"{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}",
         "not enough values to unpack (expected 2, got 1)"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void a_generator_is_walked_only_as_far_as_needed(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set g = xs|map(\"string\") %}{% for i in g %}{{ i }}{% break %}{% endfor %}{{ g|list "
         "}}",
         "1['2', '3']"},
        {"{% set g = xs|map(\"string\") %}{% for i in g %}{{ i }}{{ loop.last }}{% break %}{% "
         "endfor %}{{ g|list }}",
         "1False['3']"},
        {"{% set g = xs|map(\"string\") %}{% for i in g %}{{ i }}{{ loop.length }}{{ loop.revindex "
         "}}{% endfor %}{{ g|list }}",
         "133232331[]"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void a_loop_if_sees_what_the_body_did(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs if i != 2 %}{{ i }}{{ loop.index }}{{ loop.length }}{{ loop.last }}{% "
         "endfor %}",
         "112False322True"},
        {"{% for i in xs if i > 5 %}{{ i }}{% else %}none{% endfor %}", "none"},
        {"{% set ns = namespace(s=false) %}{% for i in xs if not ns.s %}{{ i }}{% set ns.s = true "
         "%}{% endfor %}",
         "1"},
        {"{% set ns = namespace(s=false) %}{% for i in xs if not ns.s %}{{ i }}{{ loop.last }}{% "
         "set ns.s = true %}{% endfor %}",
         "1False2True"},
        {"{% set ns = namespace(s=false) %}{% for i in xs if not ns.s %}{{ i }}{{ loop.length }}{% "
         "set ns.s = true %}{% endfor %}",
         "132333"},
        {"{% for i in xs %}{% for j in xs if loop.index == j %}{{ i }}{{ j }}{% endfor %};{% "
         "endfor %}",
         "11;22;33;"},
        {"{% for x in xs if x > 1 %}{{ x }}{% endfor %}{{ x }}", "231"},
        {"{% for a, b in [[1, 2], [3, 4]] if a %}{{ loop.previtem }}{% endfor %}", "(1, 2)"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

// Else runs unless some turn reached the end of the body.
static void break_and_continue_decide_about_else(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}",
         "1"},
        {"{% for i in xs %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% else %}E{% endfor %}",
         "13"},
        {"{% for i in xs %}{% continue %}{% else %}E{% endfor %}", "E"},
        {"{% for i in xs %}{% break %}{% else %}E{% endfor %}", "E"},
        {"{% for i in [] %}{{ i }}{% else %}E{{ loop is defined }}{% endfor %}", "EFalse"},
        {"{% for i in xs %}{% for j in xs %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{% "
         "endfor %}{% endfor %}",
         "112131"},
        {"{% for i in xs %}{% for j in [] %}{% else %}{% break %}{% endfor %}{{ i }}{% endfor %}",
         ""},
        {"{% for i in xs %}{% with %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endwith %}{% "
         "endfor %}{{ i is defined }}",
         "1False"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void recursive_loops_call_themselves(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for n in t recursive %}{{ n.v }}{{ loop.depth0 }}{{ loop.index }}{% if n.c %}({{ "
         "loop(n.c) }}){% endif %}{% endfor %}",
         "101(211(321)412)502"},
        {"{% for n in t recursive %}{{ n.v }}{{ loop(n.c) }}{% else %}-{% endfor %}", "123-4-5-"},
        {"{% for i in xs recursive %}{% set x = x + i %}{{ x }}{% if loop.depth < 2 %}<{{ "
         "loop([7]) }}>{% endif %}{{ x }};{% endfor %}",
         "2<88;>2;3<88;>3;4<88;>4;"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% for i in xs %}{{ loop(xs) }}{% endfor %}",
         "The loop must have the 'recursive' marker to be called recursively."},
        {"{% for i in xs recursive %}{{ loop(5) }}{% endfor %}", "'int' object is not iterable"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void macros_bind_arguments(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(b=4, a=5) "
         "}}|{{ m() }}|{{ m(a=1) }}",
         "12|13|54|2|12"},
        {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}", "11|13"},
        {"{% macro m(a=b, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}|{{ m(b=3) }}|{{ m(1) }}",
         "2|33|12"},
        {"{% macro m(a=x, x=4) %}{{ a }}{{ x }}{% endmacro %}{{ m() }}", "4"},
        {"{% macro m(a=5) %}{{ a }}{% endmacro %}{{ m(u) }}|{{ m(none) }}", "|None"},
        {"{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m(a=1) }}",
         "1(2, 3)1()"},
        {"{% macro m(a) %}{{ kwargs.k }}{{ kwargs|length }}{% endmacro %}{{ m(1, k=2, j=3) }}",
         "22"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
         "macro 'm' takes not more than 1 argument(s)"},
        {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
         "macro 'm' takes no keyword argument 'b'"},
        {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
         "macro 'm' takes no keyword argument 'a'"},
        {"{% macro m(a) %}{{ a + 1 }}{% endmacro %}{{ m() }}", "parameter 'a' was not provided"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void macros_see_where_they_were_defined(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% macro m() %}{{ x }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}", "111"},
        {"{% macro m(a) %}{% macro n() %}{{ a }}{% endmacro %}{{ n() }}{% endmacro %}{{ m(4) }}",
         "4"},
        {"{% for i in xs %}{% macro m() %}{{ i }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor "
         "%}{{ m is defined }}",
         "112233False"},
        {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "B"},
        {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
         "543210"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{{ m(1) }}{% macro m(a) %}{{ a }}{% endmacro %}", "'m' is undefined"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void macros_tell_about_themselves(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% macro m(a, b) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ "
         "m.catch_varargs }}{{ m.caller }}{{ m }}{{ m.foo is defined }}",
         "m('a', 'b')FalseFalseFalse<Macro 'm'>False"},
        {"{% macro m() %}{{ caller }}{{ caller.name }}{{ caller.arguments }}{% endmacro %}{% "
         "call(a) m() %}{% endcall %}",
         "<Macro anonymous>None('a',)"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void call_blocks_are_called_back(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}in{{ x }}{% endcall %}", "in1"},
        {"{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(a, b=7) m() %}{{ a }}{{ b }}{% "
         "endcall %}",
         "17"},
        {"{% macro o() %}<{{ caller() }}>{% endmacro %}{% macro i() %}[{{ caller() }}]{% endmacro "
         "%}{% call o() %}{% call i() %}z{% endcall %}{% endcall %}",
         "<[z]>"},
        {"{% macro m() %}{% if caller %}{{ caller() }}{% else %}no{% endif %}{% endmacro %}{{ m() "
         "}}{% call m() %}y{% endcall %}",
         "noy"},
        {"{% macro m(caller=none) %}{{ caller() }}{% endmacro %}{% call m() %}x{% endcall %}", "x"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% macro m() %}{% call n() %}{{ caller() }}{% endcall %}{% endmacro %}{% macro n() %}({{ "
         "caller() }}){% endmacro %}{% call m() %}C{% endcall %}",
         "No caller defined"},
        {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "No caller defined"},
        {"{% macro m() %}a{% endmacro %}{% call m() %}x{% endcall %}",
         "macro 'm' was invoked with two values for the special caller argument. This is most "
         "likely a bug."},
        {"{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a) m() %}{% endcall %}",
         "macro None takes not more than 1 argument(s)"},
        {"{% macro m() %}{{ caller(c=1) }}{% endmacro %}{% call(a) m() %}{% endcall %}",
         "macro None takes no keyword argument 'c'"},
        {"{% call dict(a=1) %}x{% endcall %}",
         "sequence item 0: expected str instance, dict found"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void a_generation_block_has_no_caller(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% for i in xs %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}",
         "112233"},
        {"{% macro m() %}{% generation %}{{ varargs }}{{ kwargs }}{{ caller is defined }}{% "
         "endgeneration %}{% endmacro %}{{ m() }}",
         "(){}False"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void an_unknown_filter_fails_only_where_it_is_reached(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% if u %}{{ 1|nofilter }}{% endif %}ok", "ok"},
        {"{{ 1|nofilter if u else 2 }}", "2"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% if x %}{{ 1|nofilter }}{% endif %}ok", "No filter named 'nofilter' found."},
        {"{% if x %}{{ 1 is notest }}{% endif %}ok", "No test named 'notest' found."},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

// A long string that is continued twice keeps both continuations apart.
static void a_text_may_grow_in_place(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set a = 'x' * 2000 %}{% set b = a + 'y' %}{% set c = b + 'z' %}{% set e = b + 'w' "
         "%}{{ (c ~ e)[1999:2003] }}{{ c[2000:] }}{{ e[2000:] }}{{ b[2000:] }}",
         "xyzxyzywy"},
        {"{% set a = 'x' * 2000 %}{% set b = a ~ 'y' %}{% set c = b ~ 'z' ~ x %}{% set e = b ~ b "
         "%}{{ c[2000:] }}{{ e|length }}{{ e[2000:2002] }}",
         "yz14002yx"},
        {"{% set ns = namespace(s='') %}{% for i in range(5000) %}{% set ns.s = ns.s + 'some words "
         "' %}{% endfor %}{{ ns.s|length }}",
         "55000"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_looked_up_from_the_inside_out),
        cmocka_unit_test(what_a_body_sets_stays_inside),
        cmocka_unit_test(each_turn_of_a_loop_starts_anew),
        cmocka_unit_test(a_name_that_its_scope_sets_hides_the_variable_before),
        cmocka_unit_test(a_block_tag_sees_only_the_outermost_scope),
        cmocka_unit_test(set_unpacks),
        cmocka_unit_test(namespaces_take_attributes),
        cmocka_unit_test(text_is_captured_and_filtered),
        cmocka_unit_test(with_evaluates_outside),
        cmocka_unit_test(loop_tells_where_it_is),
        cmocka_unit_test(loops_walk_what_has_items),
        cmocka_unit_test(a_generator_is_walked_only_as_far_as_needed),
        cmocka_unit_test(a_loop_if_sees_what_the_body_did),
        cmocka_unit_test(break_and_continue_decide_about_else),
        cmocka_unit_test(recursive_loops_call_themselves),
        cmocka_unit_test(macros_bind_arguments),
        cmocka_unit_test(macros_see_where_they_were_defined),
        cmocka_unit_test(macros_tell_about_themselves),
        cmocka_unit_test(call_blocks_are_called_back),
        cmocka_unit_test(a_generation_block_has_no_caller),
        cmocka_unit_test(an_unknown_filter_fails_only_where_it_is_reached),
        cmocka_unit_test(a_text_may_grow_in_place),
    };
    return cmocka_run_group_tests_name("jinja_exec", tests, NULL, NULL);
}
