// Every allocation of making and printing values failing in turn.
#include <string.h>

#include "jinja/src/value/value.h"
#include "jinja/tests/support/run.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static enum status print_all(struct jinja_run *run, struct jinja_value value,
                             struct jinja_text *text) {
    const struct jinja_string comma = jinja_string_of(", ", 2);
    const struct jinja_json_print_options options = {
        .sort_keys = true, .item_separator = &comma, .key_separator = &comma};
    enum status status = OK;
    for (int i = 0; i < 40 && !status; i++) {
        status = jinja_value_repr(run, value, text);
        if (!status) status = jinja_value_to_json(run, value, &options, text);
    }
    return status;
}

static enum status use_values(struct jinja_run *run, const json_t *document) {
    struct jinja_value value, string;
    struct jinja_text text = {0};
    const struct jinja_list *items = NULL;
    struct jinja_dict *dict = NULL;
    enum status status = jinja_value_from_json(run, document, &value);
    if (!status) status = print_all(run, value, &text);
    if (!status) status = jinja_text_finish(run, &text, &string);
    if (!status) status = jinja_value_items(run, string, &items);
    if (!status) status = jinja_dict_create(run, 0, &dict);
    for (size_t i = 0; !status && i < items->len; i++) {
        status = jinja_dict_set(run, dict, jinja_value_int((int64_t)i), items->items[i]);
    }
    return status;
}

static enum status make_and_use(void *context, struct err *err) {
    struct jinja_run run = {.memory_left = 64 << 20,
                            .steps_left = 10000000,
                            .depth_left = JINJA_DEPTH_MAX,
                            .what = "t",
                            .err = err};
    enum status status = use_values(&run, context);
    arena_fini(&run.arena);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char text[] = "{\"z\": [1, 2.5, {\"b\": \"x\", \"a\": null}], \"a\": \"\\u0001\"}";
    json_t *document = json_loads(text, 0, NULL);
    assert_non_null(document);
    struct alloc_sweep sweep = {.work = make_and_use, .context = document};
    assert_true(alloc_sweep_run(&sweep) > 5);
    json_decref(document);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("jinja_values_faults", tests, NULL, NULL);
}
