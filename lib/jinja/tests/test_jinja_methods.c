// Methods of strings, lists, dicts and numbers, each against what Python gives.
#include <stdio.h>

#include "jinja/tests/support/cases.h"

static void case_mappings(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"ÀB\".lower()", "àb", NULL},
        {"greek.lower()", "οδος", NULL},
        {"\"ΑΣ Σ\".lower()", "ας σ", NULL},
        {"\"ß ŉ\".upper()", "SS ʼN", NULL},
        {"\"ǆ they're\".title()", "ǅ They'Re", NULL},
        {"\"ÀbÇ\".swapcase()", "àBç", NULL},
        {"\"Straße\".casefold()", "strasse", NULL},
        {"\"éA\".capitalize()", "Éa", NULL},
        {"\"İ\".lower()", "i̇", NULL},
        {"\"a\".upper(1)", NULL, "upper() takes 0 arguments, not 1"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void padding(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"ab\".center(5)", "  ab ", NULL},
        {"\"ab\".center(4, \"*\")", "*ab*", NULL},
        {"\"ab\".ljust(4, \"é\") ~ \"|\"", "abéé|", NULL},
        {"\"ab\".rjust(4)", "  ab", NULL},
        {"\"-5\".zfill(4)", "-005", NULL},
        {"\"é\".zfill(3)", "00é", NULL},
        {"\"a\\tb\\n\\tc\".expandtabs(4)", "a   b\n    c", NULL},
        {"\"\\t\".expandtabs(0)", "", NULL},
        {"\"a\".center(4, \"xy\")", NULL, "the fill character must be exactly one character long"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void stripping(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"  a b\\u3000\".strip() ~ \"|\"", "a b|", NULL},
        {"\"xyaxy\".strip(\"yx\")", "a", NULL},
        {"\"xxa\".lstrip(\"x\")", "a", NULL},
        {"\"axx\".rstrip(\"x\")", "a", NULL},
        {"\"éaé\".strip(\"é\")", "a", NULL},
        {"\"abc\".removeprefix(\"ab\")", "c", NULL},
        {"\"abc\".removesuffix(\"x\")", "abc", NULL},
        {"\"a\".strip(1)", NULL, "strip() wants a string as chars, not int"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void splitting(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\" a  b c \".split()", "['a', 'b', 'c']", NULL},
        {"\" a  b c \".split(none, 1)", "['a', 'b c ']", NULL},
        {"\" a  b c \".rsplit(none, 1)", "[' a  b', 'c']", NULL},
        {"\"a,b,,c\".split(\",\")", "['a', 'b', '', 'c']", NULL},
        {"\"a,b,c\".split(\",\", 1)", "['a', 'b,c']", NULL},
        {"\"a,b,c\".rsplit(\",\", maxsplit=1)", "['a,b', 'c']", NULL},
        {"\"\".split()", "[]", NULL},
        {"\"\".split(\",\")", "['']", NULL},
        {"\"a\".split(\"\")", NULL, "empty separator"},
        {"\"a\\nb\\r\\nc\\x85d\\n\".splitlines()", "['a', 'b', 'c', 'd']", NULL},
        {"\"a\\nb\".splitlines(true)", "['a\\n', 'b']", NULL},
        {"\"a-b-c\".partition(\"-\")", "('a', '-', 'b-c')", NULL},
        {"\"a-b-c\".rpartition(\"-\")", "('a-b', '-', 'c')", NULL},
        {"\"abc\".partition(\"-\")", "('abc', '', '')", NULL},
        {"\"abc\".rpartition(\"-\")", "('', '', 'abc')", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void searching(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"añbñ\".find(\"ñ\")", "1", NULL},
        {"\"añbñ\".rfind(\"ñ\")", "3", NULL},
        {"\"añbñ\".find(\"ñ\", 2)", "3", NULL},
        {"\"añbñ\".find(\"ñ\", -1)", "3", NULL},
        {"\"abc\".find(\"\", 3)", "3", NULL},
        {"\"abc\".find(\"\", 4)", "-1", NULL},
        {"\"abc\".index(\"x\")", NULL, "substring not found"},
        {"\"abc\".rindex(\"c\")", "2", NULL},
        {"\"aaaa\".count(\"aa\")", "2", NULL},
        {"\"añ\".count(\"\")", "3", NULL},
        {"\"abcabc\".count(\"a\", 1, 4)", "1", NULL},
        {"\"abc\".startswith(\"ab\")", "True", NULL},
        {"\"abc\".startswith((\"x\", \"a\"))", "True", NULL},
        {"\"abc\".startswith(\"b\", 1)", "True", NULL},
        {"\"abc\".endswith(\"c\", 0, -1)", "False", NULL},
        {"\"abc\".endswith([\"c\"])", NULL,
         "endswith() first arg must be str or a tuple of str, not list"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void replacing_and_joining(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"aXbX\".replace(\"X\", \"-\")", "a-b-", NULL},
        {"\"aXbX\".replace(\"X\", \"-\", 1)", "a-bX", NULL},
        {"\"ab\".replace(\"\", \".\")", ".a.b.", NULL},
        {"\", \".join(words)", "pear, Apple, fig, apple", NULL},
        {"\"-\".join(\"añb\")", "a-ñ-b", NULL},
        {"\"\".join([1])", NULL, "sequence item 0: expected str instance, int found"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void markup_stays_markup_and_escapes(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"(\"<b>\"|safe).upper() + \"<\"", "<B>&lt;", NULL},
        {"(\"a\"|safe).replace(\"a\", \"<\")", "&lt;", NULL},
        {"(\"-\"|safe).join([\"<\", \"&\"|safe])", "&lt;-&", NULL},
        {"(\"a b\"|safe).split()", "[Markup('a'), Markup('b')]", NULL},
        {"(\"<%s>\"|safe) % \"&\"", "<&amp;>", NULL},
        {"(\"<{}>\"|safe).format(\"&\")", "<&amp;>", NULL},
        {"(\"x\"|safe).center(3, \"<\")", NULL,
         "the fill character must be exactly one character long"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void lists_and_tuples(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"[1, 2, 1].count(1)", "2", NULL},
        {"[1, 2, 1].index(2)", "1", NULL},
        {"(1, 2).index(1)", "0", NULL},
        {"[1, 2, 1].index(1, 1)", "2", NULL},
        {"[1].index(2)", NULL, "the list has no such item"},
        {"[1].copy()", "[1]", NULL},
        {"[1].append(2)", NULL, "access to attribute 'append' of 'list' object is unsafe."},
        {"range(0, 10, 3).index(6)", "2", NULL},
        {"range(3).count(2)", "1", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void dicts(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"people[0].get(\"name\")", "Bo", NULL},
        {"people[0].get(\"x\"), people[0].get(\"x\", 5)", "(None, 5)", NULL},
        {"{\"a\": 1}.items(), {\"a\": 1}.keys(), {\"a\": 1}.values()",
         "(dict_items([('a', 1)]), dict_keys(['a']), dict_values([1]))", NULL},
        {"{\"a\": 1}.items()|list", "[('a', 1)]", NULL},
        {"{}.get([])", NULL, "unhashable type: 'list'"},
        {"{\"a\": 1}.update({})", NULL, "access to attribute 'update' of 'dict' object is unsafe."},
        {"{\"a\": 1}.copy()", "{'a': 1}", NULL},
        {"{}.fromkeys([1, 2])", "{1: None, 2: None}", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void numbers(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"(255).bit_length(), (-8).bit_length(), (0).bit_length()", "(8, 4, 0)", NULL},
        {"(2.0).is_integer(), (2.5).is_integer()", "(True, False)", NULL},
        {"(7).bit_count(), (1.5).conjugate()", "(3, 1.5)", NULL},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void digits_are_asked(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"0\".isdigit(), \"42\".isdigit(), \"٣²①\".isdigit()", "(True, True, True)", NULL},
        {"\"\".isdigit(), \"4 \".isdigit(), \"-4\".isdigit(), \"½\".isdigit(), \"a1\".isdigit()",
         "(False, False, False, False, False)", NULL},
        {"\"1\".isdigit(2)", NULL, "isdigit() takes 0 arguments, not 1"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void what_is_missing_is_undefined(void **state) {
    (void)state;
    static const struct jinja_case cases[] = {
        {"\"a\".nope", "", NULL},
        {"\"a\".nope()", NULL, "'str object' has no attribute 'nope'"},
        {"(5).upper()", NULL, "'int object' has no attribute 'upper'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

static void methods_without_a_use_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {
        "encode",    "isalnum",     "isalpha", "isascii", "isdecimal", "isidentifier", "islower",
        "isnumeric", "isprintable", "isspace", "istitle", "isupper",   "maketrans",    "translate",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char expression[64], reason[96];
        snprintf(expression, sizeof expression, "\"a\".%s()", names[i]);
        snprintf(reason, sizeof reason, "method '%s' of Python's str is not supported", names[i]);
        jinja_cases_run(&(struct jinja_case){expression, NULL, reason}, 1);
    }
    static const struct jinja_case cases[] = {
        {"\"a\".isalpha is callable", "True", NULL},
        {"{\"isalpha\": 1}.isalpha", "1", NULL},
        {"{}.isalpha()", NULL, "'dict object' has no attribute 'isalpha'"},
    };
    jinja_cases_run(cases, ARRAY_LEN(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_mappings),
        cmocka_unit_test(padding),
        cmocka_unit_test(stripping),
        cmocka_unit_test(splitting),
        cmocka_unit_test(searching),
        cmocka_unit_test(replacing_and_joining),
        cmocka_unit_test(markup_stays_markup_and_escapes),
        cmocka_unit_test(lists_and_tuples),
        cmocka_unit_test(dicts),
        cmocka_unit_test(numbers),
        cmocka_unit_test(digits_are_asked),
        cmocka_unit_test(what_is_missing_is_undefined),
        cmocka_unit_test(methods_without_a_use_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("jinja_methods", tests, NULL, NULL);
}
