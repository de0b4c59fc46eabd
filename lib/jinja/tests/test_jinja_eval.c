// Expressions: what they give and how they fail, as Jinja2 has it. Constants go through variables
// where Jinja2 would compute them when it compiles.
#include "jinja/tests/support/render.h"
#include "support/cmocka_all.h"

static void integers_follow_python(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ 2 + 3 * 4 }}", "14"},
        {"{{ 7 // 2 }}", "3"},
        {"{{ 7 // -2 }}", "-4"},
        {"{{ -7 % 3 }}", "2"},
        {"{{ 7 % -3 }}", "-2"},
        {"{{ 2 ** 10 }}", "1024"},
        {"{{ 2 ** 0 }}", "1"},
        {"{{ 2 ** -1 }}", "0.5"},
        {"{{ -9223372036854775807 - 1 }}", "-9223372036854775808"},
        {"{{ true + true }}", "2"},
        {"{{ -true }}", "-1"},
        {"{{ 10 / 4 }}", "2.5"},
        {"{{ 4 / 2 }}", "2.0"},
        {"{{ 7 // 1 }}", "7"},
        {"{{ 1 ** 9223372036854775807 }}", "1"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set p = 0 %}{{ 1 // p }}", "integer division or modulo by zero"},
        {"{% set p = 0 %}{{ 1 % p }}", "integer modulo by zero"},
        {"{% set p = 0 %}{{ 1 / p }}", "division by zero"},
        {"{% set p = 0 %}{{ p ** -1 }}", "0.0 cannot be raised to a negative power"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void floats_follow_python(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ 0.1 + 0.2 }}", "0.30000000000000004"},
        {"{{ 7.5 // -2 }}", "-4.0"},
        {"{{ -5.0 // ('inf'|float) }}", "-1.0"},
        {"{{ 5.0 // ('-inf'|float) }}", "-1.0"},
        {"{{ -1e17 // 7.3 }}", "-1.3698630136986304e+16"},
        {"{{ -7.5 % 3 }}", "1.5"},
        {"{{ 3 % -2.0 }}", "-1.0"},
        {"{{ 1e308 * 10 }}", "inf"},
        {"{{ 2 ** 0.5 }}", "1.4142135623730951"},
        {"{{ 0.0 * -1 }}", "-0.0"},
        {"{{ 1 / 3 }}", "0.3333333333333333"},
        {"{{ 1e16 }}", "1e+16"},
        {"{{ 1e15 }}", "1000000000000000.0"},
        {"{{ 1.5e-7 }}", "1.5e-07"},
        {"{{ 5 // 0.3 }}", "16.0"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set p = 0.0 %}{{ 1 // p }}", "float floor division by zero"},
        {"{% set p = 0.0 %}{{ 1 % p }}", "float modulo"},
        {"{% set p = 0.0 %}{{ 1 / p }}", "float division by zero"},
        {"{% set p = 0.0 %}{{ p ** -1 }}", "0.0 cannot be raised to a negative power"},
        {"{% set p = 0.0 %}{{ 10.0 ** 400 }}", "(34, 'Numerical result out of range')"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void strings_and_lists_join_and_repeat(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ \"a\" + \"b\" }}", "ab"},        {"{{ [1] + [2] }}", "[1, 2]"},
        {"{{ (1,) + (2,) }}", "(1, 2)"},      {"{{ \"ab\" * 3 }}", "ababab"},
        {"{{ 3 * \"ab\" }}", "ababab"},       {"{{ [0] * 2 }}", "[0, 0]"},
        {"{{ (1, 2) * 2 }}", "(1, 2, 1, 2)"}, {"{{ \"a\" * -1 }}", ""},
        {"{{ [1] * true }}", "[1]"},          {"{{ \"a\" ~ 1 ~ none ~ u ~ 1.5 }}", "a1None1.5"},
        {"{{ [1] ~ {} }}", "[1]{}"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set p = \"a\" %}{{ p + 1 }}", "can only concatenate str (not \"int\") to str"},
        {"{% set p = \"a\" %}{{ 1 + p }}", "unsupported operand type(s) for +: 'int' and 'str'"},
        {"{% set p = \"a\" %}{{ p * 1.5 }}", "can't multiply sequence by non-int of type 'float'"},
        {"{% set p = \"a\" %}{{ p - 1 }}", "unsupported operand type(s) for -: 'str' and 'int'"},
        {"{% set p = \"a\" %}{{ -p }}", "bad operand type for unary -: 'str'"},
        {"{% set p = [1] %}{{ p + (1,) }}", "can only concatenate list (not \"tuple\") to list"},
        {"{% set p = [1] %}{{ p - p }}", "unsupported operand type(s) for -: 'list' and 'list'"},
        {"{% set p = [1] %}{{ p * p }}", "can't multiply sequence by non-int of type 'list'"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void markup_escapes_what_is_joined_to_it(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ (\"<\"|safe) + \"<\" }}", "<&lt;"},
        {"{{ \"<\" + (\"<\"|safe) }}", "&lt;<"},
        {"{{ (\"<\"|safe) * 2 }}", "<<"},
        {"{{ (\"<b>\"|safe)[1:] + \"<\" }}", "b>&lt;"},
        {"{{ (\"<b>\"|safe)[0] + \"<\" }}", "<&lt;"},
        {"{{ \"<\" ~ (\"<\"|safe) }}", "<<"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set p = \"<\"|safe %}{{ p + 1 }}",
         "unsupported operand type(s) for +: 'Markup' and 'int'"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void comparisons_chain(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ 1 < 2 < 3 }}", "True"},         {"{{ 3 > 2 > 2 }}", "False"},
        {"{{ 1 == 1.0 == true }}", "True"},  {"{{ 1 < 2 > 0 }}", "True"},
        {"{{ \"a\" < \"b\" }}", "True"},     {"{{ [1, 2] < [1, 3] }}", "True"},
        {"{{ 1 in [1] in [[1]] }}", "True"}, {"{{ 1 not in [2] }}", "True"},
        {"{{ \"\" in \"abc\" }}", "True"},   {"{{ \"k\" in d }}", "True"},
        {"{{ x == u }}", "False"},           {"{{ u == y }}", "True"},
        {"{{ none == u }}", "False"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set p = \"a\" %}{{ 1 < p }}",
         "'<' not supported between instances of 'int' and 'str'"},
        {"{% set p = \"a\" %}{{ p in 1 }}", "argument of type 'int' is not iterable"},
        {"{% set p = u %}{{ p < 1 }}", "'u' is undefined"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void a_chain_evaluates_no_more_than_it_needs(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ 1 > 2 > u.y }}", "False"},
        {"{{ 0 and u.y.z }}", "0"},
        {"{{ 1 or u.y.z }}", "1"},
        {"{{ 1 if x else u.y }}", "1"},
        {"{{ x if x is defined else u.y }}", "1"},
        {"{{ 0 or \"\" }}", ""},
        {"{{ u and 1 }}", ""},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void a_conditional_without_else_is_undefined(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ 5 if u }}|{{ (5 if u) is defined }}", "|False"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"\n{{ (5 if u) + 1 }}",
         "the inline if-expression on line 2 evaluated to false and no else section was defined."},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void slices_clamp_their_bounds(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[1:3] }}",
         "\xc3"
         "\xa9"
         "l"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[::-1] }}",
         "oll\xc3"
         "\xa9"
         "h"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[::2] }}",
         "hlo"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[-2:] }}",
         "lo"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[10:] }}",
         ""},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[:-10] }}",
         ""},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[3:1] }}",
         ""},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[4:1:-1] }}",
         "oll"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[-1:-10:-2] }}",
         "olh"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[true:3] }}",
         "\xc3"
         "\xa9"
         "l"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "llo\" %}{{ p[none:none] }}",
         "h\xc3"
         "\xa9"
         "llo"},
        {"{% set p = [1, 2, 3, 4] %}{{ p[::-1] }}", "[4, 3, 2, 1]"},
        {"{% set p = [1, 2, 3, 4] %}{{ p[3:0:-2] }}", "[4, 2]"},
        {"{% set p = [1, 2, 3, 4] %}{{ p[-9:2] }}", "[1, 2]"},
        {"{% set p = [1, 2, 3, 4] %}{{ p[1:][0] }}", "2"},
        {"{% set p = (1, 2, 3) %}{{ p[1:] }}", "(2, 3)"},
        {"{% set p = (1, 2, 3) %}{{ p[::2] }}", "(1, 3)"},
        {"{% set p = range(10) %}{{ p[8:2:-3] }}", "range(8, 2, -3)"},
        {"{% set p = range(10) %}{{ p[::2] }}", "range(0, 10, 2)"},
        {"{% set p = range(10) %}{{ p[2:5]|list }}", "[2, 3, 4]"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{% set p = [1] %}{{ p[\"a\":] }}",
         "slice indices must be integers or None or have an __index__ method"},
        {"{% set p = [1] %}{{ p[1.0:] }}",
         "slice indices must be integers or None or have an __index__ method"},
        {"{% set p = [1] %}{{ p[::0] }}", "slice step cannot be zero"},
        {"{% set p = [1] %}{{ p[u:] }}",
         "slice indices must be integers or None or have an __index__ method"},
        {"{% set p = 5 %}{{ p[1:] }}", "'int' object is not subscriptable"},
        {"{% set p = u %}{{ p[1:] }}", "'u' is undefined"},
        {"{% set p = d %}{{ p[1:] }}", "unhashable type: 'slice'"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void items_come_before_attributes_in_brackets(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p[\"items\"] "
         "}}",
         "1"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p.items is "
         "callable }}",
         "True"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p[\"a\"] }}",
         "2"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p.a }}", "2"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p[3] }}",
         "4"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p[3.0] }}",
         "4"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ "
         "p[\"__class__\"] }}",
         "6"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p.__class__ "
         "}}",
         ""},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p._u }}",
         "5"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ "
         "p[\"get\"](\"a\") }}",
         "2"},
        {"{% set p = {\"items\": 1, \"a\": 2, 3: 4, \"_u\": 5, \"__class__\": 6} %}{{ p[[1]] is "
         "defined }}",
         "False"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "\" %}{{ p[1] }}",
         "\xc3"
         "\xa9"
         ""},
        {"{% set p = \"h\xc3"
         "\xa9"
         "\" %}{{ p[-1] }}",
         "\xc3"
         "\xa9"
         ""},
        {"{% set p = \"h\xc3"
         "\xa9"
         "\" %}{{ p[5] is defined }}",
         "False"},
        {"{% set p = \"h\xc3"
         "\xa9"
         "\" %}{{ p[\"upper\"]() }}",
         "H\xc3"
         "\x89"
         ""},
        {"{% set p = \"h\xc3"
         "\xa9"
         "\" %}{{ p.upper() }}",
         "H\xc3"
         "\x89"
         ""},
        {"{% set p = [1, 2] %}{{ p[true] }}", "2"},
        {"{% set p = [1, 2] %}{{ p[-2] }}", "1"},
        {"{% set p = [1, 2] %}{{ p.0 }}", "1"},
        {"{% set p = [1, 2] %}{{ p[\"0\"] is defined }}", "False"},
        {"{% set p = [1, 2] %}{{ p[1.0] is defined }}", "False"},
        {"{% set p = namespace(a=1, _b=2) %}{{ p.a }}", "1"},
        {"{% set p = namespace(a=1, _b=2) %}{{ p[\"a\"] }}", "1"},
        {"{% set p = namespace(a=1, _b=2) %}{{ p._b is defined }}", "False"},
        {"{% set p = namespace(a=1, _b=2) %}{{ p[\"_b\"] is defined }}", "False"},
        {"{% set p = range(2, 9, 3) %}{{ p[1] }}", "5"},
        {"{% set p = range(2, 9, 3) %}{{ p[-1] }}", "8"},
        {"{% set p = range(2, 9, 3) %}{{ p.start ~ p.stop ~ p.step }}", "293"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void numbers_have_their_parts(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ (5).real }}", "5"},        {"{{ (5).imag }}", "0"},     {"{{ true.numerator }}", "1"},
        {"{{ (5).denominator }}", "1"}, {"{{ (5.5).real }}", "5.5"}, {"{{ (5.5).imag }}", "0.0"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
}

static void what_is_missing_tells_so_when_it_is_used(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ d.z }}{{ none.a }}{{ xs[9] }}{{ u }}|", "|"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{{ u.y }}", "'u' is undefined"},
        {"{{ u[\"y\"] }}", "'u' is undefined"},
        {"{{ u() }}", "'u' is undefined"},
        {"{{ u + 1 }}", "'u' is undefined"},
        {"{{ 1 - u }}", "'u' is undefined"},
        {"{{ \"a\" + u }}", "'u' is undefined"},
        {"{{ -u }}", "'u' is undefined"},
        {"{{ d.z + 1 }}", "'dict object' has no attribute 'z'"},
        {"{{ d[\"z\"] + 1 }}", "'dict object' has no attribute 'z'"},
        {"{{ d[0] + 1 }}", "dict object has no element 0"},
        {"{{ xs[9] + 1 }}", "list object has no element 9"},
        {"{{ none.a + 1 }}", "'None' has no attribute 'a'"},
        {"{{ none[0] + 1 }}", "None has no element 0"},
        {"{{ \"a\"[5] + 1 }}", "str object has no element 5"},
        {"{{ (\"a\"|safe).b + 1 }}", "'markupsafe.Markup object' has no attribute 'b'"},
        {"{{ range(3)[5] + 1 }}", "range object has no element 5"},
        {"{{ namespace().a + 1 }}", "'jinja2.utils.Namespace object' has no attribute 'a'"},
        {"{{ {}.keys().a + 1 }}", "'dict_keys object' has no attribute 'a'"},
        {"{{ \"a\".upper.b + 1 }}", "'builtin_function_or_method object' has no attribute 'b'"},
        {"{{ d.z.y }}", "'dict object' has no attribute 'z'"},
        {"{{ none.a.b }}", "'None' has no attribute 'a'"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void the_sandbox_hides_what_is_unsafe(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ xs.append is defined }}", "False"},
        {"{{ d.pop is defined }}", "False"},
        {"{{ \"a\".__class__ is defined }}", "False"},
        {"{{ u.__class__ is defined }}", "False"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{{ xs.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."},
        {"{{ d.update({}) }}", "access to attribute 'update' of 'dict' object is unsafe."},
        {"{{ \"a\".__class__.x }}", "access to attribute '__class__' of 'str' object is unsafe."},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void calls_take_arguments_as_python_does(void **state) {
    (void)state;
    static const struct render_case cases[] = {
        {"{{ dict(a=1, **{\"b\": 2}) }}", "{'a': 1, 'b': 2}"},
        {"{{ range(*[1, 3])|list }}", "[1, 2]"},
        {"{{ dict(*[[[\"a\", 1]]]) }}", "{'a': 1}"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(*\"ab\") }}", "('a', 'b'){}"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(*u) }}", "(){}"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, 4, 5, 6, 7, 8, *xs) "
         "}}",
         "(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3){}"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(a=1, b=2, c=3, d=4, e=5, f=6, "
         "g=7, h=8) }}",
         "(){'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8}"},
    };
    assert_all_render(cases, ARRAY_LEN(cases));
    static const struct render_case faults[] = {
        {"{{ 5() }}", "'int' object is not callable"},
        {"{{ none() }}", "'NoneType' object is not callable"},
        {"{{ \"a\"() }}", "'str' object is not callable"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(0, *xs, k=1, **d) }}",
         "got multiple values for keyword argument 'k'"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(*5) }}",
         "Value after * must be an iterable, not int"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

static void errors_name_the_line_of_what_failed(void **state) {
    (void)state;
    static const struct render_case faults[] = {
        {"{{ x }}\n{{ u.y }}", "t: line 2: 'u' is undefined"},
        {"{% macro m() %}\n{{ u.y }}{% endmacro %}\n\n{{ m() }}", "t: line 2: 'u' is undefined"},
        {"{{ [1,\n2,\nu.y] }}", "t: line 3: 'u' is undefined"},
        {"{% for i in xs %}\n{% set a = 1 - \"a\" %}{% endfor %}",
         "t: line 2: unsupported operand type(s) for -: 'int' and 'str'"},
    };
    assert_all_fail(faults, ARRAY_LEN(faults));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_follow_python),
        cmocka_unit_test(floats_follow_python),
        cmocka_unit_test(strings_and_lists_join_and_repeat),
        cmocka_unit_test(markup_escapes_what_is_joined_to_it),
        cmocka_unit_test(comparisons_chain),
        cmocka_unit_test(a_chain_evaluates_no_more_than_it_needs),
        cmocka_unit_test(a_conditional_without_else_is_undefined),
        cmocka_unit_test(slices_clamp_their_bounds),
        cmocka_unit_test(items_come_before_attributes_in_brackets),
        cmocka_unit_test(numbers_have_their_parts),
        cmocka_unit_test(what_is_missing_tells_so_when_it_is_used),
        cmocka_unit_test(the_sandbox_hides_what_is_unsafe),
        cmocka_unit_test(calls_take_arguments_as_python_does),
        cmocka_unit_test(errors_name_the_line_of_what_failed),
    };
    return cmocka_run_group_tests_name("jinja_eval", tests, NULL, NULL);
}
