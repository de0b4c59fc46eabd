// Formatting: the % operator, str.format and its mini-language, each against what Python gives.
#include "jinja/tests/support/cases.h"

static void percent_takes_values_in_order(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"%s-%s\" % (1, \"b\")", "1-b", NULL},
        {"\"%s\" % [1, 2]", "[1, 2]", NULL},
        {"\"%s\" % 5", "5", NULL},
        {"\"100%%\" % ()", "100%", NULL},
        {"\"%s\" % (1, 2)", NULL, "not all arguments converted during string formatting"},
        {"\"%s %s\" % 1", NULL, "not enough arguments for format string"},
        {"\"%s\" % nothing", "", NULL},
        {"\"%\" % ()", NULL, "incomplete format"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void percent_takes_values_by_name(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"%(a)s %(b)r\" % {\"a\": 1, \"b\": \"x\"}", "1 'x'", NULL},
        {"\"%(a)s\" % {}", NULL, "the format's key 'a' is missing"},
        {"\"%(a)s\" % 5", NULL, "format requires a mapping"},
        {"\"%(a(b))s\" % {\"a(b)\": 1}", "1", NULL},
        {"\"%(a\" % {}", NULL, "incomplete format key"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void percent_formats_integers(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"%d|%5d|%-5d|%05d|%+d|% d\" % (42, 42, 42, 42, 42, 42)", "42|   42|42   |00042|+42| 42",
         NULL},
        {"\"%x %X %#x %o %#o\" % (255, 255, 255, 8, 8)", "ff FF 0xff 10 0o10", NULL},
        {"\"%.5d %8.3d|%#010x\" % (42, -7, 255)", "00042     -007|0x000000ff", NULL},
        {"\"%d\" % 3.99", "3", NULL},
        {"\"%d\" % -9223372036854775807", "-9223372036854775807", NULL},
        {"\"%*d\" % (5, 1)", "    1", NULL},
        {"\"%-*d|\" % (5, 1)", "1    |", NULL},
        {"\"%x\" % 1.5", NULL, "%x format: an integer is required, not float"},
        {"\"%d\" % \"x\"", NULL, "%d format: a real number is required, not str"},
        {"\"%i %u\" % (true, 2)", "1 2", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void percent_formats_floats(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"%f %.2f %8.3f|%-8.1f|%08.2f\" % (1.5, 2.345, 3.14159, 2.5, -1.5)",
         "1.500000 2.35    3.142|2.5     |-0001.50", NULL},
        {"\"%e %.0e %G %g %g\" % (12345.678, 12345.678, 1e-10, 100000.0, 1000000.0)",
         "1.234568e+04 1e+04 1E-10 100000 1e+06", NULL},
        {"\"%#.3g %.3g %+.1f\" % (1.0, 1.0, 0.05)", "1.00 1 +0.1", NULL},
        {"\"%5.1f\" % 2", "  2.0", NULL},
        {"\"%f\" % \"x\"", NULL, "must be real number, not str"},
        {"\"%.0f %.0f\" % (0.5, 1.5)", "0 2", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void percent_formats_text(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"%5s|%-5s|%.2s\" % (\"é\", \"é\", \"éab\")", "    é|é    |éa", NULL},
        {"\"%r %a\" % (\"é\\n\", \"é\")", "'é\\n' '\\xe9'", NULL},
        {"\"%c%c\" % (\"x\", 233)", "xé", NULL},
        {"\"%c\" % \"xy\"", NULL, "%c requires int or char"},
        {"\"%y\" % 1", NULL, "unsupported format character (0x79)"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void fields_are_numbered_or_named(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{} {}\".format(1, 2)", "1 2", NULL},
        {"\"{1} {0} {a}\".format(1, 2, a=3)", "2 1 3", NULL},
        {"\"{{}}\".format()", "{}", NULL},
        {"\"{0[a]} {1[0]}\".format({\"a\": 1}, [2])", "1 2", NULL},
        {"\"{} {0}\".format(1)", NULL,
         "cannot switch from manual field specification to automatic field numbering"},
        {"\"{0} {}\".format(1)", NULL,
         "cannot switch from manual field specification to automatic field numbering"},
        {"\"{1}\".format(1)", NULL, "Replacement index 1 out of range for positional args tuple"},
        {"\"{a}\".format(b=1)", NULL, "the format's key 'a' is missing"},
        {"\"{a}\".format_map({\"a\": 1})", "1", NULL},
        {"\"{x.name}\".format(x=people[0])", "Bo", NULL},
        {"\"{0.__class__}\".format(1)", "", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void fields_are_converted(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{!r:>6} {!s:5}| {!a}\".format(\"é\", 1, \"é\")", "   'é' 1    | '\\xe9'", NULL},
        {"\"{!x}\".format(1)", NULL, "Unknown conversion specifier 'x'"},
        {"\"{!r\".format(1)", NULL, "unmatched '{' in format spec"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void specifications_may_hold_fields(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{:{}}\".format(\"a\", 5) ~ \"|\"", "a    |", NULL},
        {"\"{:{w}.{p}f}\".format(2.5, w=6, p=2)", "  2.50", NULL},
        {"\"{:{:{}}}\".format(1, 2, 3)", NULL, "Max string recursion exceeded"},
        {"\"{:{:{:{}}}}\".format(1, 2, 3, 4)", NULL, "Max string recursion exceeded"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void broken_formats_are_refused(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{\".format()", NULL, "Single '{' encountered in format string"},
        {"\"}\".format()", NULL, "Single '}' encountered in format string"},
        {"\"{0\".format(1)", NULL, "expected '}' before end of string"},
        {"\"{0:\".format(1)", NULL, "unmatched '{' in format spec"},
        {"\"{a{\".format()", NULL, "unexpected '{' in field name"},
        {"\"{0[}\".format([1])", NULL, "expected '}' before end of string"},
        {"\"{0[0]x}\".format([1])", NULL,
         "Only '.' or '[' may follow ']' in format field specifier"},
        {"\"{0.}\".format(1)", NULL, "Empty attribute in format string"},
        {"\"{!}\".format(1)", NULL, "unmatched '{' in format spec"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void integers_have_specifications(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{:d}|{:5}|{:<5}|{:^5}|{:05}|{:*^7}\".format(42, 42, 42, 42, -42, 42)",
         "42|   42|42   | 42  |-0042|**42***", NULL},
        {"\"{:+} {: } {:-} {:=+5}\".format(1, 1, 1, 1)", "+1  1 1 +   1", NULL},
        {"\"{:x} {:#X} {:#b} {:o} {:c} {:n}\".format(255, 255, 5, 8, 233, 5)",
         "ff 0XFF 0b101 10 é 5", NULL},
        {"\"{:,} {:_} {:_b} {:012,} {:08,}\".format(1234567, 1234567, 255, 1234, 1234)",
         "1,234,567 1_234_567 1111_1111 0,000,001,234 0,001,234", NULL},
        {"\"{:.2f} {:e} {:%}\".format(2, 10, 1)", "2.00 1.000000e+01 100.000000%", NULL},
        {"\"{:.2}\".format(1)", NULL, "Precision not allowed in integer format specifier"},
        {"\"{:s}\".format(1)", NULL, "Unknown format code 's' for object of type 'int'"},
        {"\"{:,x}\".format(1)", NULL, "Cannot specify ',' with 'x'."},
        {"\"{:d} {}\".format(true, true)", "1 True", NULL},
        {"\"{:,}\".format(-9223372036854775807)", "-9,223,372,036,854,775,807", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void floats_have_specifications(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{} {:.3} {:.3} {:.4}\".format(1.0, 123.456, 100.0, 100.0)", "1.0 1.23e+02 1e+02 100.0",
         NULL},
        {"\"{:g} {:g} {:.2e} {:G}\".format(1e-5, 123456789.0, 12345.0, 1e-10)",
         "1e-05 1.23457e+08 1.23e+04 1E-10", NULL},
        {"\"{:8.2f}|{:<8.2f}|{:+08.2f}|{:,.2f}\".format(3.14159, 3.14159, 3.14159, 1234567.891)",
         "    3.14|3.14    |+0003.14|1,234,567.89", NULL},
        {"\"{:.1%} {:#.0f} {:z.1f} {:_}\".format(0.256, 2.0, -0.01, 1e6)",
         "25.6% 2. 0.0 1_000_000.0", NULL},
        {"\"{:012,.1f}\".format(1234.5)", "00,001,234.5", NULL},
        {"\"{:d}\".format(1.5)", NULL, "Unknown format code 'd' for object of type 'float'"},
        {"\"{:.0f} {:.0f} {:.0f}\".format(0.5, 1.5, 2.5)", "0 2 2", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void text_has_specifications(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"{:5}|{:>5}|{:^5}|{:é^5}|{:.2}|{:05}\".format(\"a\", \"a\", \"a\", \"a\", \"abc\", "
         "\"a\")",
         "a    |    a|  a  |ééaéé|ab|a0000", NULL},
        {"\"{:+}\".format(\"a\")", NULL, "Sign not allowed in string format specifier"},
        {"\"{:=5}\".format(\"a\")", NULL, "'=' alignment not allowed in string format specifier"},
        {"\"{:,}\".format(\"a\")", NULL, "Cannot specify ',' with 's'."},
        {"\"{:d}\".format(\"a\")", NULL, "Unknown format code 'd' for object of type 'str'"},
        {"\"{:5}\".format(none)", NULL, "unsupported format string passed to NoneType.__format__"},
        {"\"{}\".format(none)", "None", NULL},
        {"\"{:5x5}\".format(\"a\")", NULL,
         "Invalid format specifier '5x5' for object of type 'str'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percent_takes_values_in_order),
        cmocka_unit_test(percent_takes_values_by_name),
        cmocka_unit_test(percent_formats_integers),
        cmocka_unit_test(percent_formats_floats),
        cmocka_unit_test(percent_formats_text),
        cmocka_unit_test(fields_are_numbered_or_named),
        cmocka_unit_test(fields_are_converted),
        cmocka_unit_test(specifications_may_hold_fields),
        cmocka_unit_test(broken_formats_are_refused),
        cmocka_unit_test(integers_have_specifications),
        cmocka_unit_test(floats_have_specifications),
        cmocka_unit_test(text_has_specifications),
    };
    return cmocka_run_group_tests_name("jinja_format", tests, NULL, NULL);
}
