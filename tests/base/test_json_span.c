// A document without its large values, which others read by hand.
#include <string.h>

#include "base/json/json_span.h"
#include "support/cmocka_all.h"

static struct json_span span_of(const char *text, const char *value) {
    const char *place = strstr(text, value);
    assert_non_null(place);
    return (struct json_span){place, strlen(value)};
}

// The spans are given in another order than that of the text.
static void test_rest(void **state) {
    (void)state;
    const char *text = "{\"a\": [1, 2], \"b\": {\"c\": 1}, \"d\": 3}";
    const struct json_span spans[] = {span_of(text, "{\"c\": 1}"), {0}, span_of(text, "[1, 2]")};
    json_t *root;
    assert_int_equal(json_span_read_rest(&root, (struct json_span){text, strlen(text)}, spans,
                                         ARRAY_LEN(spans), jread_text, "it", NULL),
                     OK);
    assert_int_equal(json_object_size(root), 3);
    assert_true(json_is_array(json_object_get(root, "a")));
    assert_int_equal(json_array_size(json_object_get(root, "a")), 0);
    assert_true(json_is_object(json_object_get(root, "b")));
    assert_int_equal(json_object_size(json_object_get(root, "b")), 0);
    assert_int_equal(json_integer_value(json_object_get(root, "d")), 3);
    json_decref(root);
}

// An error's place is that in the whole text.
static void test_place_of_an_error(void **state) {
    (void)state;
    const char *text = "{\"a\": [1,\n\n2],\n\"d\": }";
    const struct json_span span = span_of(text, "[1,\n\n2]");
    struct err err = {0};
    json_t *root;
    assert_int_equal(json_span_read_rest(&root, (struct json_span){text, strlen(text)}, &span, 1,
                                         jread_text, "it", &err),
                     ERR_FORMAT);
    assert_non_null(strstr(err.message, "at line 4, "));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rest),
                                       cmocka_unit_test(test_place_of_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
