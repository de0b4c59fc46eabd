// Values of the template language: equality, order, membership, dicts, items. What is expected is
// what Python answers.
#include <math.h>
#include <stdio.h>
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

static void assert_failed(struct jinja_fixture *fixture, enum status status, const char *sentence) {
    char want[200];
    snprintf(want, sizeof want, "t: line 1: %s", sentence);
    if (status != ERR_INVALID || strcmp(fixture->err.message, want) != 0) {
        fail_msg("%s \"%s\", want \"%s\"", status_name(status), fixture->err.message, want);
    }
}

// From `json`: a tuple of the items of a list.
static struct jinja_value tuple(struct jinja_fixture *fixture, const char *json) {
    return jinja_value_of_tuple(jinja_fixture_json(fixture, json).list);
}

static struct jinja_value string(struct jinja_fixture *fixture, const char *text) {
    struct jinja_value value;
    assert_int_equal(jinja_value_string(&fixture->run, text, strlen(text), &value), OK);
    return value;
}

static struct jinja_value range(struct jinja_fixture *fixture, int64_t start, int64_t stop,
                                int64_t step, size_t len) {
    struct jinja_range *made = jinja_run_alloc(&fixture->run, sizeof *made);
    assert_non_null(made);
    *made = (struct jinja_range){start, stop, step, len};
    return (struct jinja_value){.type = JINJA_RANGE, .range = made};
}

static struct jinja_value view(struct jinja_fixture *fixture, enum jinja_view_type type,
                               const char *json) {
    struct jinja_view *made = jinja_run_alloc(&fixture->run, sizeof *made);
    assert_non_null(made);
    *made = (struct jinja_view){type, jinja_fixture_json(fixture, json).dict};
    return (struct jinja_value){.type = JINJA_VIEW, .view = made};
}

static struct jinja_value undefined(struct jinja_fixture *fixture) {
    struct jinja_value value;
    assert_int_equal(jinja_value_undefined(&fixture->run, &value, "'%s' is undefined", "x"), OK);
    return value;
}

static bool equal(struct jinja_fixture *fixture, struct jinja_value a, struct jinja_value b) {
    bool is_equal = false, is_equal_back = false;
    assert_int_equal(jinja_value_equal(&fixture->run, a, b, &is_equal), OK);
    assert_int_equal(jinja_value_equal(&fixture->run, b, a, &is_equal_back), OK);
    assert_int_equal(is_equal, is_equal_back);
    return is_equal;
}

static bool contains(struct jinja_fixture *fixture, struct jinja_value haystack,
                     struct jinja_value needle) {
    bool found = false;
    enum status status = jinja_value_contains(&fixture->run, haystack, needle, &found);
    if (status) fail_msg("%s", fixture->err.message);
    return found;
}

static const struct {
    const char *a, *b;
    bool equal;
} equalities[] = {
    {"1", "1.0", true},
    {"true", "1", true},
    {"false", "0.0", true},
    {"true", "2", false},
    {"1", "\"1\"", false},
    {"null", "false", false},
    {"null", "null", true},
    {"9007199254740993", "9007199254740992.0", false}, // no rounding to a float
    {"9007199254740992", "9007199254740992.0", true},
    {"9223372036854775807", "9223372036854775808.0", false},
    {"-9223372036854775808", "-9223372036854775808.0", true},
    {"\"a\\u0000b\"", "\"a\\u0000c\"", false},
    {"\"\"", "\"\"", true},
    {"[1, [2, \"x\"]]", "[1.0, [2, \"x\"]]", true},
    {"[1, 2]", "[1, 2, 3]", false},
    {"[]", "{}", false},
    {"{\"a\": 1, \"b\": [2]}", "{\"b\": [2], \"a\": true}", true},
    {"{\"a\": 1}", "{\"a\": 2}", false},
    {"{\"a\": 1}", "{\"b\": 1}", false},
};

static void values_are_equal_as_in_python(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(equalities); i++) {
        struct jinja_fixture fixture;
        jinja_fixture_init(&fixture);
        struct jinja_value a = jinja_fixture_json(&fixture, equalities[i].a);
        struct jinja_value b = jinja_fixture_json(&fixture, equalities[i].b);
        if (equal(&fixture, a, b) != equalities[i].equal) {
            fail_msg("%s == %s is not %d", equalities[i].a, equalities[i].b, equalities[i].equal);
        }
        jinja_fixture_fini(&fixture);
    }
}

static void lists_and_tuples_differ(void **state) {
    assert_false(equal(*state, tuple(*state, "[1]"), jinja_fixture_json(*state, "[1]")));
    assert_true(equal(*state, tuple(*state, "[1]"), tuple(*state, "[true]")));
}

static void undefined_values_are_equal_to_each_other_only(void **state) {
    assert_true(equal(*state, undefined(*state), undefined(*state)));
    assert_false(equal(*state, undefined(*state), jinja_value_none()));
    assert_false(jinja_value_is_same(undefined(*state), undefined(*state)));
}

static void a_nan_equals_nothing_but_itself_inside_a_list(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value nan = jinja_value_float((double)NAN);
    assert_false(equal(fixture, nan, nan));
    struct jinja_list list = {.items = &nan, .len = 1, .capacity = 1};
    assert_true(equal(fixture, jinja_value_of_list(&list), jinja_value_of_list(&list)));
    assert_true(contains(fixture, jinja_value_of_list(&list), nan));
}

static void ranges_are_equal_as_sequences(void **state) {
    assert_true(equal(*state, range(*state, 0, 0, 1, 0), range(*state, 2, 2, 1, 0)));
    assert_true(equal(*state, range(*state, 0, 3, 2, 2), range(*state, 0, 4, 2, 2)));
    assert_false(equal(*state, range(*state, 0, 3, 1, 3), range(*state, 1, 4, 1, 3)));
}

static void views_of_keys_and_items_are_sets(void **state) {
    struct jinja_value keys = view(*state, JINJA_VIEW_KEYS, "{\"a\": 1, \"b\": 2}");
    struct jinja_value turned = view(*state, JINJA_VIEW_KEYS, "{\"b\": 1, \"a\": 3}");
    struct jinja_value items = view(*state, JINJA_VIEW_ITEMS, "{\"b\": 2, \"a\": 1}");
    assert_true(equal(*state, keys, turned));
    assert_false(equal(*state, keys, items));
    assert_true(equal(*state, items, view(*state, JINJA_VIEW_ITEMS, "{\"a\": 1, \"b\": 2}")));
    assert_false(equal(*state, items, view(*state, JINJA_VIEW_ITEMS, "{\"a\": 1, \"b\": 3}")));
    struct jinja_value values = view(*state, JINJA_VIEW_VALUES, "{\"a\": 1}");
    assert_true(equal(*state, values, values));
    assert_false(equal(*state, values, view(*state, JINJA_VIEW_VALUES, "{\"a\": 1}")));
}

static const struct {
    const char *a, *b;
    int order;
    const char *error;
} orders[] = {
    {"1", "2", -1, NULL},
    {"true", "0.5", 1, NULL},
    {"9007199254740993", "9007199254740992.0", 1, NULL},
    {"-5", "-5.5", 1, NULL},
    {"\"a\"", "\"b\"", -1, NULL},
    {"\"a\"", "\"a\\u0000\"", -1, NULL},
    {"\"\\uffee\"", "\"\\ud83d\\ude00\"", -1, NULL}, // by code points, not by UTF-16
    {"[1, 2]", "[1, 3]", -1, NULL},
    {"[1, 2]", "[1]", 1, NULL},
    {"[1]", "[1.0]", 0, NULL},
    {"[null, 1]", "[null, 2]", -1, NULL}, // equal items are not ordered
    {"null", "null", 0, "'<' not supported between instances of 'NoneType' and 'NoneType'"},
    {"1", "\"1\"", 0, "'<' not supported between instances of 'int' and 'str'"},
    {"{}", "{}", 0, "'<' not supported between instances of 'dict' and 'dict'"},
    {"[[]]", "[1]", 0, "'<' not supported between instances of 'list' and 'int'"},
};

static void values_are_ordered_as_in_python(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        struct jinja_fixture fixture;
        jinja_fixture_init(&fixture);
        struct jinja_value a = jinja_fixture_json(&fixture, orders[i].a);
        struct jinja_value b = jinja_fixture_json(&fixture, orders[i].b);
        int order = 0;
        bool unordered = true;
        enum status status = jinja_value_compare(&fixture.run, a, b, &order, &unordered);
        if (orders[i].error) {
            assert_failed(&fixture, status, orders[i].error);
        } else if (status || unordered || (order > 0) - (order < 0) != orders[i].order) {
            fail_msg("%s < %s: order %d, want %d %s", orders[i].a, orders[i].b, order,
                     orders[i].order, fixture.err.message);
        }
        jinja_fixture_fini(&fixture);
    }
}

static void a_nan_is_unordered(void **state) {
    struct jinja_fixture *fixture = *state;
    int order;
    bool unordered = false;
    struct jinja_value nan = jinja_value_float((double)NAN);
    assert_int_equal(
        jinja_value_compare(&fixture->run, jinja_value_int(1), nan, &order, &unordered), OK);
    assert_true(unordered);
}

static void an_undefined_value_in_an_order_gives_its_reason(void **state) {
    struct jinja_fixture *fixture = *state;
    int order;
    bool unordered;
    enum status status = jinja_value_compare(&fixture->run, jinja_value_int(1), undefined(fixture),
                                             &order, &unordered);
    assert_failed(fixture, status, "'x' is undefined");
}

static void sets_are_ordered_by_inclusion(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value small = view(fixture, JINJA_VIEW_KEYS, "{\"a\": 1}");
    struct jinja_value large = view(fixture, JINJA_VIEW_KEYS, "{\"a\": 1, \"b\": 2}");
    struct jinja_value other = view(fixture, JINJA_VIEW_KEYS, "{\"b\": 1, \"c\": 2}");
    int order;
    bool unordered;
    assert_int_equal(jinja_value_compare(&fixture->run, small, large, &order, &unordered), OK);
    assert_true(order < 0 && !unordered);
    assert_int_equal(jinja_value_compare(&fixture->run, large, small, &order, &unordered), OK);
    assert_true(order > 0 && !unordered);
    assert_int_equal(jinja_value_compare(&fixture->run, small, other, &order, &unordered), OK);
    assert_true(unordered);
}

static void membership_follows_the_haystack(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value list = jinja_fixture_json(fixture, "[1, \"a\", [2]]");
    assert_true(contains(fixture, list, jinja_value_float(1)));
    assert_true(contains(fixture, list, jinja_fixture_json(fixture, "[2]")));
    assert_false(contains(fixture, list, jinja_value_none()));
    struct jinja_value text = string(fixture, "haystack");
    assert_true(contains(fixture, text, string(fixture, "stack")));
    assert_true(contains(fixture, text, string(fixture, "")));
    assert_false(contains(fixture, text, string(fixture, "needle")));
    assert_false(contains(fixture, string(fixture, ""), string(fixture, "a")));
    struct jinja_value dict = jinja_fixture_json(fixture, "{\"a\": 1}");
    assert_true(contains(fixture, dict, string(fixture, "a")));
    assert_false(contains(fixture, dict, jinja_value_int(1)));
    assert_false(contains(fixture, undefined(fixture), jinja_value_int(1)));
}

static void membership_in_a_range_is_computed(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value up = range(fixture, INT64_MIN, INT64_MAX, 3, 1),
                       down = range(*state, 5, 0, -2, 3);
    assert_true(contains(fixture, up, jinja_value_int(INT64_MIN + 3)));
    assert_false(contains(fixture, up, jinja_value_int(INT64_MIN + 4)));
    assert_true(contains(fixture, down, jinja_value_int(1)));
    assert_true(contains(fixture, down, jinja_value_bool(true)));
    assert_true(contains(fixture, down, jinja_value_float(3.0)));
    assert_false(contains(fixture, down, jinja_value_float(3.5)));
    assert_false(contains(fixture, down, jinja_value_float((double)NAN)));
    assert_false(contains(fixture, down, jinja_value_int(0)));
    assert_false(contains(fixture, down, string(fixture, "1")));
}

static void membership_in_views(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value items = view(fixture, JINJA_VIEW_ITEMS, "{\"a\": 1}");
    assert_true(contains(fixture, items, tuple(fixture, "[\"a\", 1]")));
    assert_false(contains(fixture, items, tuple(fixture, "[\"a\", 2]")));
    assert_false(contains(fixture, items, jinja_fixture_json(fixture, "[\"a\", 1]")));
    assert_false(contains(fixture, items, jinja_value_int(5)));
    assert_true(contains(fixture, view(fixture, JINJA_VIEW_VALUES, "{\"a\": [1]}"),
                         jinja_fixture_json(fixture, "[1]")));
    assert_true(
        contains(fixture, view(fixture, JINJA_VIEW_KEYS, "{\"a\": 1}"), string(fixture, "a")));
}

static void looking_for_an_item_walks_an_iterator_up_to_it(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value iterator;
    const struct jinja_list *items = jinja_fixture_json(fixture, "[1, 2, 3]").list;
    assert_int_equal(jinja_value_iterator(&fixture->run, items, "generator", &iterator), OK);
    assert_true(contains(fixture, iterator, jinja_value_int(2)));
    const struct jinja_list *rest;
    assert_int_equal(jinja_value_items(&fixture->run, iterator, &rest), OK);
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_list(rest)), "[3]");
    assert_int_equal(jinja_value_items(&fixture->run, iterator, &rest), OK);
    assert_int_equal(rest->len, 0);
}

static void what_has_no_members_says_so(void **state) {
    struct jinja_fixture *fixture = *state;
    bool found;
    struct jinja_run *run = &fixture->run;
    assert_failed(fixture,
                  jinja_value_contains(run, jinja_value_int(5), jinja_value_int(1), &found),
                  "argument of type 'int' is not iterable");
    assert_failed(fixture,
                  jinja_value_contains(run, string(fixture, "a"), jinja_value_int(1), &found),
                  "'in <string>' requires string as left operand, not int");
    struct jinja_value list = jinja_fixture_json(fixture, "[]"),
                       dict = jinja_fixture_json(fixture, "{}");
    assert_failed(fixture, jinja_value_contains(run, dict, list, &found),
                  "unhashable type: 'list'");
    struct jinja_value nested = tuple(fixture, "[1, {}]");
    assert_failed(fixture, jinja_value_contains(run, dict, nested, &found),
                  "unhashable type: 'dict'");
}

static void equal_numbers_are_one_key(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_dict *dict;
    assert_int_equal(jinja_dict_create(&fixture->run, 0, &dict), OK);
    assert_int_equal(jinja_dict_set(&fixture->run, dict, jinja_value_int(1), jinja_value_int(2)),
                     OK);
    assert_int_equal(
        jinja_dict_set(&fixture->run, dict, jinja_value_bool(true), jinja_value_int(3)), OK);
    assert_int_equal(
        jinja_dict_set(&fixture->run, dict, jinja_value_float(1.0), jinja_value_int(4)), OK);
    assert_int_equal(
        jinja_dict_set(&fixture->run, dict, jinja_value_float(-0.0), jinja_value_int(5)), OK);
    assert_int_equal(jinja_dict_set(&fixture->run, dict, jinja_value_int(0), jinja_value_int(6)),
                     OK);
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_dict(dict)), "{1: 4, -0.0: 6}");
}

static void a_large_dict_keeps_its_order_and_finds_every_key(void **state) {
    struct jinja_fixture *fixture = *state;
    enum { NUM_KEYS = 3000 };
    struct jinja_dict *dict;
    assert_int_equal(jinja_dict_create(&fixture->run, 5, &dict), OK);
    for (int i = 0; i < 2 * NUM_KEYS; i++) { // the second half overwrites
        char key[16];
        snprintf(key, sizeof key, "key %d", i % NUM_KEYS);
        struct jinja_value text = string(fixture, key);
        assert_int_equal(jinja_dict_set(&fixture->run, dict, text, jinja_value_int(i)), OK);
    }
    assert_int_equal(dict->len, NUM_KEYS);
    for (int i = 0; i < NUM_KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        struct jinja_value value = {0}, text = string(fixture, key);
        bool found = false;
        assert_true(jinja_string_is(dict->entries[i].key.string, key));
        assert_int_equal(jinja_dict_get(&fixture->run, dict, text, &found, &value), OK);
        assert_true(found);
        assert_int_equal(value.integer, NUM_KEYS + i);
    }
    struct jinja_value ignored, absent[] = {string(fixture, "key"), jinja_value_int(1)};
    for (size_t i = 0; i < ARRAY_LEN(absent); i++) {
        bool found = true;
        assert_int_equal(jinja_dict_get(&fixture->run, dict, absent[i], &found, &ignored), OK);
        assert_false(found);
    }
}

static void equal_tuples_and_ranges_are_one_key(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_dict *dict;
    struct jinja_run *run = &fixture->run;
    assert_int_equal(jinja_dict_create(run, 0, &dict), OK);
    assert_int_equal(jinja_dict_set(run, dict, tuple(fixture, "[1, \"a\"]"), jinja_value_int(1)),
                     OK);
    assert_int_equal(jinja_dict_set(run, dict, tuple(fixture, "[1.0, \"a\"]"), jinja_value_int(2)),
                     OK);
    assert_int_equal(jinja_dict_set(run, dict, range(fixture, 0, 3, 2, 2), jinja_value_int(3)), OK);
    assert_int_equal(jinja_dict_set(run, dict, range(fixture, 0, 4, 2, 2), jinja_value_int(4)), OK);
    assert_int_equal(jinja_dict_set(run, dict, undefined(fixture), jinja_value_int(5)), OK);
    assert_int_equal(jinja_dict_set(run, dict, undefined(fixture), jinja_value_int(6)), OK);
    assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_dict(dict)),
                        "{(1, 'a'): 2, range(0, 3, 2): 4, Undefined: 6}");
}

static void items_of_every_iterable(void **state) {
    struct jinja_fixture *fixture = *state;
    const struct {
        struct jinja_value value;
        const char *items;
    } cases[] = {
        {string(fixture, "a\xc3\xa9\xf0\x9f\x98\x80"), "['a', '\xc3\xa9', '\xf0\x9f\x98\x80']"},
        {string(fixture, ""), "[]"},
        {jinja_fixture_json(fixture, "[1]"), "[1]"},
        {jinja_fixture_json(fixture, "{\"a\": 1, \"b\": 2}"), "['a', 'b']"},
        {view(fixture, JINJA_VIEW_KEYS, "{\"a\": 1}"), "['a']"},
        {view(fixture, JINJA_VIEW_VALUES, "{\"a\": 1}"), "[1]"},
        {view(fixture, JINJA_VIEW_ITEMS, "{\"a\": 1}"), "[('a', 1)]"},
        {range(fixture, 5, 0, -2, 3), "[5, 3, 1]"},
        {undefined(fixture), "[]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct jinja_list *items;
        size_t len = 99;
        assert_true(jinja_value_is_iterable(cases[i].value));
        assert_int_equal(jinja_value_items(&fixture->run, cases[i].value, &items), OK);
        assert_string_equal(jinja_fixture_repr(fixture, jinja_value_of_list(items)),
                            cases[i].items);
        assert_int_equal(jinja_value_length(&fixture->run, cases[i].value, &len), OK);
        assert_int_equal(len, items->len);
        assert_int_equal(jinja_value_is_true(cases[i].value), len > 0);
    }
}

static void what_is_not_iterable_says_so(void **state) {
    struct jinja_fixture *fixture = *state;
    const struct jinja_list *items;
    size_t len;
    assert_failed(fixture, jinja_value_items(&fixture->run, jinja_value_none(), &items),
                  "'NoneType' object is not iterable");
    assert_failed(fixture, jinja_value_length(&fixture->run, jinja_value_int(1), &len),
                  "object of type 'int' has no len()");
    assert_false(jinja_value_is_iterable(jinja_value_int(1)));
}

static void views_and_iterators_are_no_sequences(void **state) {
    struct jinja_fixture *fixture = *state;
    assert_true(jinja_value_is_sequence(string(fixture, "a")));
    assert_true(jinja_value_is_sequence(jinja_fixture_json(fixture, "{}")));
    assert_true(jinja_value_is_sequence(undefined(fixture)));
    assert_false(jinja_value_is_sequence(view(fixture, JINJA_VIEW_KEYS, "{}")));
    assert_false(jinja_value_is_sequence(jinja_value_int(1)));
}

static void identity_is_that_of_python_objects(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value list = jinja_fixture_json(fixture, "[1]");
    assert_true(jinja_value_is_same(list, list));
    assert_false(jinja_value_is_same(list, jinja_fixture_json(fixture, "[1]")));
    assert_true(jinja_value_is_same(tuple(fixture, "[]"), tuple(fixture, "[]")));
    assert_true(jinja_value_is_same(string(fixture, "\xc3\xa9"), string(fixture, "\xc3\xa9")));
    assert_false(jinja_value_is_same(string(fixture, "ab"), string(fixture, "ab")));
    assert_false(jinja_value_is_same(jinja_value_int(1), jinja_value_bool(true)));
    assert_false(jinja_value_is_same(jinja_value_int(1), jinja_value_float(1)));
    assert_true(jinja_value_is_same(jinja_value_none(), jinja_value_none()));
}

static void characters_are_found_by_number(void **state) {
    (void)state;
    static const char text[] = "abcdefg\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80zzzzzzzzz\xc3\xa9!";
    struct jinja_string string = jinja_string_of(text, sizeof text - 1);
    assert_int_equal(string.num_chars, 21);
    size_t offset = 0;
    for (size_t i = 0; i <= string.num_chars; i++) {
        assert_int_equal(jinja_string_offset(&string, i), offset);
        if (offset < string.len) offset++;
        while (offset < string.len && (text[offset] & 0xc0) == 0x80) offset++;
    }
}

static void a_text_is_found_wherever_it_is(void **state) {
    struct jinja_fixture *fixture = *state;
    char text[1000];
    memset(text, 'a', sizeof text);
    const struct jinja_string haystack = jinja_string_of(text, sizeof text);
    for (size_t len = 1; len <= 700; len += 1 + len / 2) {
        for (size_t start = 0; start <= 300; start += 50) {
            size_t at = 0;
            text[start + len - 1] = 'b'; // the needle's last byte
            char needle_text[700];
            memcpy(needle_text, text + start, len);
            const struct jinja_string needle = jinja_string_of(needle_text, len);
            struct jinja_run *run = &fixture->run;
            assert_int_equal(jinja_string_find(run, &haystack, 0, sizeof text, &needle, &at), OK);
            assert_int_equal(at, start);
            assert_int_equal(jinja_string_find(run, &haystack, start, start + len, &needle, &at),
                             OK);
            assert_int_equal(at, start);
            assert_int_equal(
                jinja_string_find(run, &haystack, start + 1, sizeof text, &needle, &at), OK);
            assert_true(at == SIZE_MAX);
            assert_int_equal(jinja_string_find(run, &haystack, 0, start + len - 1, &needle, &at),
                             OK);
            assert_true(at == SIZE_MAX);
            text[start + len - 1] = 'a';
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_equal_as_in_python),
        cmocka_unit_test_setup_teardown(lists_and_tuples_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(undefined_values_are_equal_to_each_other_only, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_nan_equals_nothing_but_itself_inside_a_list, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ranges_are_equal_as_sequences, setup, teardown),
        cmocka_unit_test_setup_teardown(views_of_keys_and_items_are_sets, setup, teardown),
        cmocka_unit_test(values_are_ordered_as_in_python),
        cmocka_unit_test_setup_teardown(a_nan_is_unordered, setup, teardown),
        cmocka_unit_test_setup_teardown(an_undefined_value_in_an_order_gives_its_reason, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(sets_are_ordered_by_inclusion, setup, teardown),
        cmocka_unit_test_setup_teardown(membership_follows_the_haystack, setup, teardown),
        cmocka_unit_test_setup_teardown(membership_in_a_range_is_computed, setup, teardown),
        cmocka_unit_test_setup_teardown(membership_in_views, setup, teardown),
        cmocka_unit_test_setup_teardown(looking_for_an_item_walks_an_iterator_up_to_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_has_no_members_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_numbers_are_one_key, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_dict_keeps_its_order_and_finds_every_key, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(equal_tuples_and_ranges_are_one_key, setup, teardown),
        cmocka_unit_test_setup_teardown(items_of_every_iterable, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_iterable_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(views_and_iterators_are_no_sequences, setup, teardown),
        cmocka_unit_test_setup_teardown(identity_is_that_of_python_objects, setup, teardown),
        cmocka_unit_test(characters_are_found_by_number),
        cmocka_unit_test_setup_teardown(a_text_is_found_wherever_it_is, setup, teardown),
    };
    return cmocka_run_group_tests_name("jinja_values", tests, NULL, NULL);
}
