// Every allocation of reading a JSON schema failing in turn: ERR_NOMEM, nothing leaked. The schema
// is parsed before: jansson's own allocations are tested elsewhere.
#include <string.h>

#include "base/json/jread.h"
#include "structured/schema/schema.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/t\"},\"b\":{\"pattern\":"
    "\"^(?!x)[a-z\\\\d]{2}\\\\b\"},\"c\":{\"oneOf\":[{\"multipleOf\":3},{\"enum\":[1,\"z\"]},"
    "{\"format\":\"date\"}]},\"d\":{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":7},"
    "\"e\":{\"uniqueItems\":true,\"items\":{\"enum\":[1,2]},\"type\":\"array\"}},\"required\":["
    "\"a\"],"
    "\"patternProperties\":{\"^p\":{\"minLength\":2},\"q$\":true},\"propertyNames\":{\"maxLength\":"
    "5},"
    "\"minProperties\":1,\"maxProperties\":6,\"$defs\":{\"t\":{\"items\":{\"$ref\":\"#/$defs/t\"},"
    "\"contains\":{\"type\":\"null\"},\"unknown\":1,\"type\":[\"array\",\"null\"]}}}";

static enum status work(void *context, struct err *err) {
    struct grammar *grammar = NULL;
    struct schema_report report = {0};
    uint32_t rule;
    enum status status = grammar_create(&grammar, NULL, err);
    if (!status) status = schema_add(grammar, context, NULL, &rule, &report, err);
    schema_report_fini(&report);
    grammar_destroy(grammar);
    return status;
}

static void every_allocation(void **state) {
    (void)state;
    json_t *json;
    struct err err = {0};
    assert_int_equal(jread_request(&json, schema, sizeof schema - 1, "schema", &err), OK);
    if (work(json, &err)) fail_msg("%s", err.message);
    struct alloc_sweep sweep = {.work = work, .context = json};
    assert_in_range(alloc_sweep_run(&sweep), 50, 2000);
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
