// Compiling a schema compares keys about in proportion to the schema's length, not to its square.
#include <string.h>

#include "base/json/jread.h"
#include "base/text/buf.h"
#include "structured/schema/schema.h"
#include "support/cmocka_all.h"

static size_t num_compared;

// In place of libc's.
int memcmp(const void *a, const void *b, size_t len) {
    const unsigned char *x = a, *y = b;
    num_compared++;
    for (size_t i = 0; i < len; i++) {
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

// Two negated schemas, each about `count` keys of its own.
static void add_schema(struct buf *out, uint32_t count) {
    assert_int_equal(buf_appendf(out, NULL, "{\"type\":\"object\",\"allOf\":["), OK);
    for (uint32_t k = 0; k < 2; k++) {
        assert_int_equal(buf_appendf(out, NULL, "%s{\"not\":{\"properties\":{", k ? "," : ""), OK);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(
                buf_appendf(out, NULL, "%s\"key_%u_%u\":{\"const\":1}", i ? "," : "", k, i), OK);
        }
        assert_int_equal(buf_appendf(out, NULL, "}}}"), OK);
    }
    assert_int_equal(buf_appendf(out, NULL, "]}"), OK);
}

static size_t comparisons(uint32_t count) {
    struct buf text = {0};
    struct grammar *grammar = NULL;
    struct schema_report report = {0};
    struct err err = {0};
    json_t *json;
    uint32_t rule;
    add_schema(&text, count);
    assert_int_equal(jread_request(&json, text.data, text.len, "schema", &err), OK);
    assert_int_equal(grammar_create(&grammar, NULL, &err), OK);
    num_compared = 0;
    if (schema_add(grammar, json, NULL, &rule, &report, &err)) fail_msg("%s", err.message);
    size_t result = num_compared;
    schema_report_fini(&report);
    grammar_destroy(grammar);
    json_decref(json);
    buf_fini(&text);
    return result;
}

static void test_keys_of_negated_schemas(void **state) {
    (void)state;
    size_t of_few = comparisons(200), of_many = comparisons(800);
    print_message("%zu and %zu comparisons\n", of_few, of_many);
    assert_true(of_few > 0 && of_many < 6 * of_few); // 16 times as many where it is the square
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys_of_negated_schemas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
