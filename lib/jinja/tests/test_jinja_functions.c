// Tests and global functions, each against what Jinja2 gives.
#include "jinja/tests/support/cases.h"

static void types_are_told_apart(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"1 is integer, true is integer, 1.0 is integer, 1 is float, 1.0 is float",
         "(True, False, False, False, True)", NULL},
        {"true is number, 1 is number, \"1\" is number", "(True, True, False)", NULL},
        {"\"a\" is string, html|safe is string, 1 is string", "(True, True, False)", NULL},
        {"{} is mapping, [] is mapping", "(True, False)", NULL},
        {"[] is sequence, \"a\" is sequence, {} is sequence, range(1) is sequence, {}.items() is "
         "sequence, 5 is sequence, nothing is sequence",
         "(True, True, True, True, False, False, True)", NULL},
        {"[] is iterable, 5 is iterable, nothing is iterable, {}.items() is iterable",
         "(True, False, True, True)", NULL},
        {"range is callable, \"a\".upper is callable, 5 is callable, nothing is callable",
         "(True, True, False, True)", NULL},
        {"true is boolean, 1 is boolean, none is none, nothing is none",
         "(True, False, True, False)", NULL},
        {"true is true, 1 is true, false is false", "(True, False, True)", NULL},
        {"html is escaped, html|safe is escaped", "(False, True)", NULL},
        {"nothing is defined, none is defined, nothing is undefined", "(False, True, True)", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void numbers_are_asked(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"3 is odd, 3 is even, -3 is odd, 2.0 is even", "(True, False, True, True)", NULL},
        {"6 is divisibleby 3, 7 is divisibleby(3)", "(True, False)", NULL},
        {"1 is divisibleby 0", NULL, "integer modulo by zero"},
        {"\"a\" is odd", NULL, "not all arguments converted during string formatting"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void values_are_compared(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"1 is eq 1.0, 1 is ne 1", "(True, False)", NULL},
        {"1 is lt 2, 1 is le 1, 2 is gt 1, 1 is ge 2", "(True, True, True, False)", NULL},
        {"\"a\" is lessthan \"b\", \"a\" is greaterthan \"b\", \"a\" is equalto \"a\"",
         "(True, False, True)", NULL},
        {"1 is lt \"a\"", NULL, "'<' not supported between instances of 'int' and 'str'"},
        {"\"a\" is in \"abc\", 1 is in [2], \"k\" is in {\"k\": 1}", "(True, False, True)", NULL},
        {"none is sameas none, 1 is sameas 1.0", "(True, False)", NULL},
        {"range(4)|select(\"lt\", 2)|list, range(4)|select(\">=\", 2)|list", "([0, 1], [2, 3])",
         NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void text_is_asked(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"ab\" is lower, \"aB\" is lower, \"AB\" is upper, 5 is lower",
         "(True, False, True, False)", NULL},
        {"\"upper\" is filter, \"nope\" is filter, \"escape\" is filter, \"odd\" is test, 5 is "
         "test",
         "(True, False, False, True, False)", NULL},
        {"[] is filter", NULL, "unhashable type: 'list'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void ranges(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"range(3)|list, range(1, 3)|list, range(5, 0, -2)|list, range(0)|list",
         "([0, 1, 2], [1, 2], [5, 3, 1], [])", NULL},
        {"range(3)", "range(0, 3)", NULL},
        {"range(100001)", NULL,
         "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000)."},
        {"range(0, 1, 0)", NULL, "range() arg 3 must not be zero"},
        {"range(1.5)", NULL, "range() wants an integer as a bound, not float"},
        {"range()", NULL, "range() takes 1 to 3 arguments, not 0"},
        {"range(9223372036854775807, -9223372036854775807)|list", "[]", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void dicts_and_namespaces(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"dict(a=1, b=2)", "{'a': 1, 'b': 2}", NULL},
        {"dict({\"a\": 1}, a=2)", "{'a': 2}", NULL},
        {"dict([(\"a\", 1), \"bc\"])", "{'a': 1, 'b': 'c'}", NULL},
        {"dict([1])", NULL, "cannot convert dictionary update sequence element #0 to a sequence"},
        {"dict(nothing)", NULL, "'nothing' is undefined"},
        {"namespace(a=1).a", "1", NULL},
        {"namespace({\"a\": 1}, b=2).b", "2", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void functions_without_a_use_are_refused_by_name(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"cycler(1, 2)", NULL, "function 'cycler' of Jinja2 is not supported"},
        {"joiner()()", NULL, "function 'joiner' of Jinja2 is not supported"},
        {"lipsum is defined", NULL, "function 'lipsum' of Jinja2 is not supported"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void exceptions(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"raise_exception(\"no \" ~ 1)", NULL, "no 1"},
        {"raise_exception()", NULL, "raise_exception() wants the argument 'message'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void time(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"strftime_now(\"%Y-%m-%d %H:%M:%S\")", "2023-11-14 22:13:20", NULL},
        {"strftime_now(\"%d %b %Y, %A %B %-d %j\")", "14 Nov 2023, Tuesday November 14 318", NULL},
        {"strftime_now(\"%f|%z|%Z|%%f\")", "123456|||%f", NULL},
        {"strftime_now(\"%5Y %^a %e %p %I\")", "02023 TUE 14 PM 10", NULL},
        {"strftime_now(\"é%q%\")", "é%q%", NULL},
        {"strftime_now(\"\")", "", NULL},
        {"strftime_now(5)", NULL, "strftime_now() wants a string as format, not int"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_told_apart),
        cmocka_unit_test(numbers_are_asked),
        cmocka_unit_test(values_are_compared),
        cmocka_unit_test(text_is_asked),
        cmocka_unit_test(ranges),
        cmocka_unit_test(dicts_and_namespaces),
        cmocka_unit_test(functions_without_a_use_are_refused_by_name),
        cmocka_unit_test(exceptions),
        cmocka_unit_test(time),
    };
    return cmocka_run_group_tests_name("jinja_functions", tests, NULL, NULL);
}
