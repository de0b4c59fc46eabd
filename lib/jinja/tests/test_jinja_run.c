// The budget of a render: what goes over it ends with a sentence, wherever it happens.
#include <string.h>

#include "jinja/src/value/value.h"
#include "jinja/tests/support/run.h"
#include "support/cmocka_all.h"

static int setup(void **state) {
    static struct jinja_fixture fixture;
    jinja_fixture_init(&fixture);
    fixture.run.line = 7;
    *state = &fixture;
    return 0;
}

static int teardown(void **state) {
    jinja_fixture_fini(*state);
    return 0;
}

static void assert_message(struct jinja_fixture *fixture, const char *message) {
    assert_string_equal(fixture->err.message, message);
}

static void an_error_names_the_template_and_the_line(void **state) {
    struct jinja_fixture *fixture = *state;
    assert_int_equal(jinja_run_fail(&fixture->run, "%d is too %s", 3, "odd"), ERR_INVALID);
    assert_message(fixture, "t: line 7: 3 is too odd");
    assert_int_equal(jinja_run_fail_undefined(&fixture->run, (struct jinja_value){0}), ERR_INVALID);
    assert_message(fixture, "t: line 7: the value is undefined");
}

static void a_long_error_ends_at_a_whole_character(void **state) {
    struct jinja_fixture *fixture = *state;
    for (size_t shift = 0; shift < 4; shift++) {
        char text[601];
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 <= 600; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        assert_int_equal(jinja_run_fail(&fixture->run, "%s", text), ERR_INVALID);
        size_t len = strlen(fixture->err.message);
        assert_true(len > sizeof fixture->err.message - 5);
        assert_int_equal((len - strlen("t: line 7: ") - shift) % 4, 0);
    }
}

static void memory_is_bounded(void **state) {
    struct jinja_fixture *fixture = *state;
    fixture->run.memory_left = 1000;
    assert_non_null(jinja_run_alloc(&fixture->run, 985)); // pays 992
    assert_int_equal(fixture->run.memory_left, 8);
    assert_null(jinja_run_alloc(&fixture->run, 1));
    assert_int_equal(jinja_run_status(&fixture->run), ERR_INVALID);
    assert_message(fixture, "t: line 7: the template uses more memory than a render may");
    assert_null(jinja_run_alloc_array(&fixture->run, SIZE_MAX / 2, 4));
    assert_null(jinja_run_alloc(&fixture->run, SIZE_MAX));
}

static void a_text_that_grows_without_end_runs_out_of_memory(void **state) {
    struct jinja_fixture *fixture = *state;
    static const char line[4096];
    struct jinja_text text = {0};
    enum status status = OK;
    while (!status) status = jinja_text_append(&fixture->run, &text, line, sizeof line);
    assert_int_equal(status, ERR_INVALID);
    assert_non_null(strstr(fixture->err.message, "memory"));
    assert_true(text.len < 64 << 20);
}

static void steps_are_bounded(void **state) {
    struct jinja_fixture *fixture = *state;
    fixture->run.steps_left = 10;
    assert_int_equal(jinja_run_pay(&fixture->run, 10), OK);
    assert_int_equal(jinja_run_pay(&fixture->run, 0), OK);
    assert_int_equal(jinja_run_pay(&fixture->run, 1), ERR_INVALID);
    assert_message(fixture, "t: line 7: the template takes more steps than a render may");
}

// A list of the list before, twice: 2^40 items, which printing or comparing would all visit.
static struct jinja_value doubled(struct jinja_fixture *fixture, int times) {
    struct jinja_value value = jinja_value_of_list(jinja_fixture_json(fixture, "[]").list);
    for (int i = 0; i < times; i++) {
        struct jinja_list *list;
        assert_int_equal(jinja_list_create(&fixture->run, 2, &list), OK);
        assert_int_equal(jinja_list_append(&fixture->run, list, value), OK);
        assert_int_equal(jinja_list_append(&fixture->run, list, value), OK);
        value = jinja_value_of_tuple(list);
    }
    return value;
}

static void shared_lists_are_paid_as_often_as_they_are_visited(void **state) {
    struct jinja_fixture *fixture = *state;
    struct jinja_value a = doubled(fixture, 40), b = doubled(fixture, 40);
    const struct jinja_string comma = jinja_string_of(",", 1);
    const struct jinja_json_print_options options = {.item_separator = &comma,
                                                     .key_separator = &comma};
    struct jinja_text text = {0};
    bool is_equal;
    fixture->run.steps_left = 100000;
    assert_int_equal(jinja_value_equal(&fixture->run, a, b, &is_equal), ERR_INVALID);
    assert_non_null(strstr(fixture->err.message, "steps"));
    fixture->run.steps_left = 100000;
    assert_int_equal(jinja_value_repr(&fixture->run, a, &text), ERR_INVALID);
    assert_non_null(strstr(fixture->err.message, "steps"));
    fixture->run.steps_left = 100000;
    assert_int_equal(jinja_value_to_json(&fixture->run, a, &options, &text), ERR_INVALID);
    assert_non_null(strstr(fixture->err.message, "steps"));
}

static void a_search_pays_for_every_place_it_compares(void **state) {
    struct jinja_fixture *fixture = *state;
    enum { LEN = 1 << 20 };
    char *text = jinja_run_alloc(&fixture->run, LEN);
    assert_non_null(text);
    memset(text, 'a', LEN);
    char slow[200];
    memset(slow, 'a', sizeof slow);
    slow[sizeof slow - 1] = 'b';
    const struct jinja_string haystack = jinja_string_of(text, LEN),
                              needle = jinja_string_of(slow, sizeof slow);
    const struct jinja_string rare = jinja_string_of("b", 1);
    size_t at;
    fixture->run.steps_left = 100000;
    assert_int_equal(jinja_string_find(&fixture->run, &haystack, 0, LEN, &rare, &at), OK);
    assert_int_equal(fixture->run.steps_left, 100000 - LEN / 64);
    text[6400] = 'b'; // what is behind it costs nothing
    assert_int_equal(jinja_string_find(&fixture->run, &haystack, 0, LEN, &rare, &at), OK);
    assert_int_equal(fixture->run.steps_left, 100000 - LEN / 64 - 100);
    text[6400] = 'a';
    assert_int_equal(jinja_string_find(&fixture->run, &haystack, 0, LEN, &needle, &at),
                     ERR_INVALID);
    assert_non_null(strstr(fixture->err.message, "steps"));
}

static void depth_is_bounded(void **state) {
    struct jinja_fixture *fixture = *state;
    fixture->run.depth_left = 20;
    struct jinja_value deep = doubled(fixture, 30), other = doubled(fixture, 30);
    struct jinja_text text = {0};
    bool is_equal;
    assert_int_equal(jinja_value_repr(&fixture->run, deep, &text), ERR_INVALID);
    assert_message(fixture, "t: line 7: the template is nested too deeply");
    assert_int_equal(jinja_value_equal(&fixture->run, deep, other, &is_equal), ERR_INVALID);
    assert_message(fixture, "t: line 7: the template is nested too deeply");
    struct jinja_dict *dict;
    assert_int_equal(jinja_dict_create(&fixture->run, 0, &dict), OK);
    assert_int_equal(jinja_dict_set(&fixture->run, dict, deep, deep), ERR_INVALID);
    assert_int_equal(fixture->run.depth_left, 20); // every level was left
}

static void deep_documents_are_refused(void **state) {
    struct jinja_fixture *fixture = *state;
    json_t *document = json_array();
    assert_non_null(document);
    for (int i = 0; i < 2 * JINJA_DEPTH_MAX; i++) {
        json_t *outer = json_array();
        assert_non_null(outer);
        assert_int_equal(json_array_append_new(outer, document), 0);
        document = outer;
    }
    struct jinja_value value;
    assert_int_equal(jinja_value_from_json(&fixture->run, document, &value), ERR_INVALID);
    assert_message(fixture, "t: line 7: the template is nested too deeply");
    json_decref(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_error_names_the_template_and_the_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_error_ends_at_a_whole_character, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_text_that_grows_without_end_runs_out_of_memory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(steps_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_lists_are_paid_as_often_as_they_are_visited, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_search_pays_for_every_place_it_compares, setup, teardown),
        cmocka_unit_test_setup_teardown(depth_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(deep_documents_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("jinja_run", tests, NULL, NULL);
}
