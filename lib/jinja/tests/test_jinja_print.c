// How values are written (str, repr, JSON) and numbers read. What is expected is Python's output.
#include <math.h>
#include <string.h>

#include "jinja/src/value/value.h"
#include "jinja/tests/support/run.h"
#include "support/cmocka_all.h"

static int setup(void **state) {
    static struct jinja_fixture fixture;
    jinja_fixture_init(&fixture);
    *state = &fixture;
    return 0;
}

static int teardown(void **state) {
    jinja_fixture_fini(*state);
    return 0;
}

static const struct {
    const char *json, *repr;
} reprs[] = {
    {"[null, true, false, -9223372036854775808]", "[None, True, False, -9223372036854775808]"},
    {"[1.0, -0.0, 1e16, 1e15, 0.0001, 0.00001, 1.5e300]",
     "[1.0, -0.0, 1e+16, 1000000000000000.0, 0.0001, 1e-05, 1.5e+300]"},
    {"[0.1, 1e22, 5e-324, 123456789012345680.0]", "[0.1, 1e+22, 5e-324, 1.2345678901234568e+17]"},
    {"[5.684341886080802e-14]", "[5.684341886080802e-14]"}, // 2 ** -44: the nearest fails
    {"[9007199254740993.0, 100.0, 0.5, 12.25]", "[9007199254740992.0, 100.0, 0.5, 12.25]"},
    {"\"plain\"", "'plain'"},
    {"\"it's\"", "\"it's\""},
    {"\"it's \\\"it\\\"\"", "'it\\'s \"it\"'"},
    {"\"\\\"\"", "'\"'"},
    {"\"\\n\\r\\t\\\\\\u0000\\u001b\\u007f\"", "'\\n\\r\\t\\\\\\x00\\x1b\\x7f'"},
    {"\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\"", "'\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80'"},
    {"\"\\u0085\\u00a0\\u00ad\\u200b\\u2028\\u3000\\ue000\"",
     "'\\x85\\xa0\\xad\\u200b\\u2028\\u3000\\ue000'"},
    {"\"\\udb40\\udc01\"", "'\\U000e0001'"},
    {"[]", "[]"},
    {"{}", "{}"},
    {"{\"a\": [1, {\"b\": \"c\"}], \"\": null}", "{'a': [1, {'b': 'c'}], '': None}"},
};

static void repr_is_that_of_python(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(reprs); i++) {
        struct jinja_fixture fixture;
        jinja_fixture_init(&fixture);
        struct jinja_value value = jinja_fixture_json(&fixture, reprs[i].json);
        assert_string_equal(jinja_fixture_repr(&fixture, value), reprs[i].repr);
        jinja_fixture_fini(&fixture);
    }
}

static void str_differs_from_repr_for_strings_and_undefined(void **state) {
    struct jinja_fixture *fixture = *state;
    assert_string_equal(jinja_fixture_str(fixture, jinja_fixture_json(fixture, "\"it's\"")),
                        "it's");
    assert_string_equal(jinja_fixture_str(fixture, (struct jinja_value){0}), "");
    assert_string_equal(jinja_fixture_repr(fixture, (struct jinja_value){0}), "Undefined");
    assert_string_equal(jinja_fixture_str(fixture, jinja_fixture_json(fixture, "[\"a\"]")),
                        "['a']");
    assert_string_equal(jinja_fixture_str(fixture, jinja_value_float((double)-INFINITY)), "-inf");
    assert_string_equal(jinja_fixture_str(fixture, jinja_value_float((double)-NAN)), "nan");
}

static void tuples_views_and_ranges(void **state) {
    struct jinja_fixture *fixture = *state;
    const struct jinja_list *one = jinja_fixture_json(fixture, "[1]").list;
    const struct jinja_list *two = jinja_fixture_json(fixture, "[1, 2]").list;
    struct jinja_list none = {0};
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_tuple(one)), "(1,)");
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_tuple(two)), "(1, 2)");
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_tuple(&none)), "()");
    const struct jinja_dict *dict = jinja_fixture_json(fixture, "{\"a\": 1, \"b\": 2}").dict;
    static const char *const views[] = {[JINJA_VIEW_KEYS] = "dict_keys(['a', 'b'])",
                                        [JINJA_VIEW_VALUES] = "dict_values([1, 2])",
                                        [JINJA_VIEW_ITEMS] = "dict_items([('a', 1), ('b', 2)])"};
    for (enum jinja_view_type type = JINJA_VIEW_KEYS; type <= JINJA_VIEW_ITEMS; type++) {
        struct jinja_view view = {type, dict};
        struct jinja_value value = {.type = JINJA_VIEW, .view = &view};
        assert_string_equal(jinja_fixture_repr(fixture, value), views[type]);
    }
    struct jinja_range up = {0, 3, 1, 3}, by_two = {0, 3, 2, 2};
    struct jinja_value value = {.type = JINJA_RANGE, .range = &up};
    assert_string_equal(jinja_fixture_repr(fixture, value), "range(0, 3)");
    value.range = &by_two;
    assert_string_equal(jinja_fixture_repr(fixture, value), "range(0, 3, 2)");
}

static void markup_shows_only_in_repr(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_string string = jinja_string_of("<b>", 3);
    string.is_markup = true;
    assert_string_equal(jinja_fixture_str(fixture, jinja_value_of_string(&string)), "<b>");
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_string(&string)),
                        "Markup('<b>')");
}

static void a_namespace_inside_itself_prints_as_dots(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_dict *attributes;
    struct jinja_list *list;
    struct jinja_value name;
    assert_int_equal(jinja_dict_create(&fixture->run, 1, &attributes), OK);
    assert_int_equal(jinja_list_create(&fixture->run, 1, &list), OK);
    struct jinja_value self = {.type = JINJA_NAMESPACE, .attributes = attributes};
    assert_int_equal(jinja_list_append(&fixture->run, list, self), OK);
    assert_int_equal(jinja_value_string(&fixture->run, "a", 1, &name), OK);
    assert_int_equal(jinja_dict_set(&fixture->run, attributes, name, jinja_value_of_list(list)),
                     OK);
    assert_string_equal(jinja_fixture_repr(fixture, self),
                        "<Namespace {'a': [<Namespace {...}>]}>");
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_list(list)),
                        "[<Namespace {'a': [...]}>]");
}

// ---- JSON ----

static const char *to_json(struct jinja_fixture *fixture, struct jinja_value value,
                           const struct jinja_json_print_options *options) {
    struct jinja_text text = {0};
    enum status status = jinja_value_to_json(&fixture->run, value, options, &text);
    if (!status) status = jinja_text_append(&fixture->run, &text, "", 1);
    return status ? fixture->err.message : text.data;
}

static struct jinja_json_print_options compact(void) {
    static struct jinja_string comma, colon;
    comma = jinja_string_of(", ", 2);
    colon = jinja_string_of(": ", 2);
    return (struct jinja_json_print_options){.item_separator = &comma, .key_separator = &colon};
}

static void json_keeps_other_scripts_unless_told(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_json_print_options options = compact();
    struct jinja_value value = jinja_fixture_json(
        fixture, "\"\\u007f\\u2028\\u00e9\\ud83d\\ude00\\\"\\\\/\\b\\f\\u0000\"");
    assert_string_equal(to_json(fixture, value, &options),
                        "\"\x7f\xe2\x80\xa8\xc3\xa9\xf0\x9f\x98\x80\\\"\\\\/\\b\\f\\u0000\"");
    options.ensure_ascii = true;
    assert_string_equal(to_json(fixture, value, &options),
                        "\"\\u007f\\u2028\\u00e9\\ud83d\\ude00\\\"\\\\/\\b\\f\\u0000\"");
}

static void json_indents_but_not_what_is_empty(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_json_print_options options = compact();
    struct jinja_value value = jinja_fixture_json(fixture, "[[], {}, [1, 2.0], {\"a\": null}]");
    assert_string_equal(to_json(fixture, value, &options), "[[], {}, [1, 2.0], {\"a\": null}]");
    struct jinja_string indent = jinja_string_of("  ", 2), comma = jinja_string_of(",", 1);
    options.indent = &indent;
    options.item_separator = &comma;
    assert_string_equal(
        to_json(fixture, value, &options),
        "[\n  [],\n  {},\n  [\n    1,\n    2.0\n  ],\n  {\n    \"a\": null\n  }\n]");
    indent = jinja_string_of("", 0);
    assert_string_equal(to_json(fixture, jinja_fixture_json(fixture, "[1, 2]"), &options),
                        "[\n1,\n2\n]");
}

static void json_writes_keys_that_are_no_strings(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_json_print_options options = compact();
    struct jinja_dict *dict;
    const struct jinja_value keys[] = {jinja_value_none(), jinja_value_bool(true),
                                       jinja_value_int(2), jinja_value_float(1.5),
                                       jinja_value_float((double)NAN)};
    assert_int_equal(jinja_dict_create(&fixture->run, 0, &dict), OK);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        assert_int_equal(jinja_dict_set(&fixture->run, dict, keys[i], keys[i]), OK);
    }
    assert_string_equal(to_json(fixture, jinja_value_of_dict(dict), &options),
                        "{\"null\": null, \"true\": true, \"2\": 2, \"1.5\": 1.5, \"NaN\": NaN}");
    struct jinja_value tuple = jinja_value_of_tuple(jinja_fixture_json(fixture, "[1]").list);
    assert_int_equal(jinja_dict_set(&fixture->run, dict, tuple, jinja_value_none()), OK);
    assert_string_equal(to_json(fixture, jinja_value_of_dict(dict), &options),
                        "t: line 1: keys must be str, int, float, bool or None, not tuple");
}

static void json_sorts_keys_at_every_depth(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_json_print_options options = compact();
    options.sort_keys = true;
    struct jinja_value value = jinja_fixture_json(
        fixture, "{\"e\": 1, \"b\": {\"z\": 2, \"y\": 3}, \"d\": 4, \"a\": 5, \"c\": 6}");
    assert_string_equal(to_json(fixture, value, &options),
                        "{\"a\": 5, \"b\": {\"y\": 3, \"z\": 2}, \"c\": 6, \"d\": 4, \"e\": 1}");
    struct jinja_dict *dict;
    assert_int_equal(jinja_dict_create(&fixture->run, 0, &dict), OK);
    assert_int_equal(jinja_dict_set(&fixture->run, dict, jinja_value_none(), jinja_value_int(1)),
                     OK);
    assert_string_equal(to_json(fixture, jinja_value_of_dict(dict), &options), "{\"null\": 1}");
    assert_int_equal(jinja_dict_set(&fixture->run, dict, jinja_value_int(1), jinja_value_int(2)),
                     OK);
    assert_string_equal(to_json(fixture, jinja_value_of_dict(dict), &options),
                        "t: line 1: '<' not supported between instances of 'int' and 'NoneType'");
}

static void json_of_what_it_cannot_hold_is_an_error(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_json_print_options options = compact();
    struct jinja_value undefined = {0};
    struct jinja_list list = {.items = &undefined, .len = 1, .capacity = 1};
    assert_string_equal(to_json(fixture, jinja_value_of_list(&list), &options),
                        "t: line 1: Object of type Undefined is not JSON serializable");
    assert_string_equal(to_json(fixture, jinja_value_float((double)INFINITY), &options),
                        "Infinity");
}

// ---- numbers ----

static const struct {
    const char *text;
    int base;
    const char *want; // NULL: not a number
} ints[] = {
    {" -12\n", 10, "-12"},
    {"+1_000", 10, "1000"},
    {"1__0", 10, NULL},
    {"_1", 10, NULL},
    {"1_", 10, NULL},
    {"", 10, NULL},
    {"- 1", 10, NULL},
    {"1.0", 10, NULL},
    {"0x1f", 16, "31"},
    {"1F", 16, "31"},
    {"0x_1", 0, "1"},
    {"0b101", 0, "5"},
    {"0o17", 0, "15"},
    {"00", 0, "0"},
    {"01", 0, NULL},
    {"01", 10, "1"},
    {"0b1", 16, "177"},
    {"0x", 16, NULL},
    {"zz", 36, "1295"},
    {"1", 37, NULL},
    {"1", 1, NULL},
    {"\xd9\xa1\xd9\xa2", 10, "12"}, // Arabic-Indic
    {"\xf0\x9d\x9f\x99", 10, "1"}, // a mathematical digit, the second of five rows
    {"\xe2\x80\x83\x37\xc2\xa0", 10, "7"}, // wide white space
    {"\x1c"
     "1",
     10, NULL},
    {"9223372036854775807", 10, "9223372036854775807"},
    {"9223372036854775808", 10, "too large"},
    {"-9223372036854775808", 10, "-9223372036854775808"},
    {"-0x8000000000000001", 16, "too large"},
};

static void integers_are_read_as_by_int(void **state) {
    struct jinja_fixture *fixture = *state;
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        struct jinja_string string = jinja_string_of(ints[i].text, strlen(ints[i].text));
        int64_t integer = 0;
        bool too_large = false;
        const char *got = NULL;
        if (jinja_number_parse_int(&string, ints[i].base, &integer, &too_large)) {
            got = too_large ? "too large" : jinja_fixture_repr(fixture, jinja_value_int(integer));
        }
        if (!got != !ints[i].want || (got && strcmp(got, ints[i].want) != 0)) {
            fail_msg("int(\"%s\", %d) is %s", ints[i].text, ints[i].base, got ? got : "no number");
        }
    }
}

static const struct {
    const char *text, *want; // NULL: not a number
} floats[] = {
    {"  1.5\n", "1.5"},
    {"1_0.5_0e1_0", "105000000000.0"},
    {"1_.5", NULL},
    {"1._5", NULL},
    {"1e_1", NULL},
    {".5", "0.5"},
    {"5.", "5.0"},
    {".", NULL},
    {"e5", NULL},
    {"1e", NULL},
    {"1e+", NULL},
    {"0x1p3", NULL},
    {"-1e-400", "-0.0"},
    {"1e400", "inf"},
    {"-iNfinity", "-inf"},
    {"+nan", "nan"},
    {"infinit", NULL},
    {"1 2", NULL},
    {"0e99999999999999999999", "0.0"},
    {"9007199254740993", "9007199254740992.0"},
    {"\xd9\xa3.5", "3.5"},
};

static void floats_are_read_as_by_float(void **state) {
    struct jinja_fixture *fixture = *state;
    for (size_t i = 0; i < ARRAY_LEN(floats); i++) {
        struct jinja_string string = jinja_string_of(floats[i].text, strlen(floats[i].text));
        double number = 0;
        const char *got = NULL;
        if (jinja_number_parse_float(&string, &number)) {
            got = jinja_fixture_repr(fixture, jinja_value_float(number));
        }
        if (!got != !floats[i].want || (got && strcmp(got, floats[i].want) != 0)) {
            fail_msg("float(\"%s\") is %s", floats[i].text, got ? got : "no number");
        }
    }
}

// Half way between two doubles except for a digit far behind what is kept.
static void the_last_of_a_thousand_digits_decides(void **state) {
    (void)state;
    char text[1024];
    memset(text, '0', sizeof text);
    memcpy(text, "9007199254740993.", 17);
    text[sizeof text - 1] = '1';
    struct jinja_string string = jinja_string_of(text, sizeof text);
    double number = 0;
    assert_true(jinja_number_parse_float(&string, &number));
    assert_true(number == 9007199254740994.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repr_is_that_of_python),
        cmocka_unit_test_setup_teardown(str_differs_from_repr_for_strings_and_undefined, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(tuples_views_and_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(markup_shows_only_in_repr, setup, teardown),
        cmocka_unit_test_setup_teardown(a_namespace_inside_itself_prints_as_dots, setup, teardown),
        cmocka_unit_test_setup_teardown(json_keeps_other_scripts_unless_told, setup, teardown),
        cmocka_unit_test_setup_teardown(json_indents_but_not_what_is_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(json_writes_keys_that_are_no_strings, setup, teardown),
        cmocka_unit_test_setup_teardown(json_sorts_keys_at_every_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(json_of_what_it_cannot_hold_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(integers_are_read_as_by_int, setup, teardown),
        cmocka_unit_test_setup_teardown(floats_are_read_as_by_float, setup, teardown),
        cmocka_unit_test(the_last_of_a_thousand_digits_decides),
    };
    return cmocka_run_group_tests_name("jinja_print", tests, NULL, NULL);
}
