// Compiled forms and refusals: both are remembered, within bounds.
#include <stdio.h>
#include <string.h>

#include "engine/request/forms.h"
#include "support/cmocka_all.h"

static struct tokenizer *tokenizer;

static void begin(struct forms *forms) {
    static const int32_t ending[] = {0};
    const struct forms_options options = {tokenizer, 4096, ending, 1};
    assert_int_equal(forms_init(forms, &options, NULL), OK);
}

static uint64_t num_compiled(const struct forms *forms) {
    uint64_t sum = 0;
    for (size_t i = 0; i < NVLLM_DURATION_BUCKETS; i++) sum += forms->stats.compile.counts[i];
    return sum;
}

static enum status get(struct forms *forms, const char *text, struct err *err) {
    struct automaton *automaton;
    enum status status = forms_get(forms, text, strlen(text), &automaton, err);
    automaton_release(automaton);
    return status;
}

static void test_form_is_kept(void **state) {
    (void)state;
    struct forms forms;
    begin(&forms);
    assert_int_equal(get(&forms, "{\"regex\": \"a\"}", NULL), OK);
    assert_int_equal(get(&forms, "{\"regex\": \"a\"}", NULL), OK);
    assert_int_equal(num_compiled(&forms), 1);
    forms_fini(&forms);
}

static void test_refusal_is_remembered(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum status status;
    } cases[] = {{"{\"regex\": \"(\"}", ERR_INVALID},
                 {"{\"json\": {\"$dynamicRef\": \"#a\"}}", ERR_UNSUPPORTED}};
    struct forms forms;
    begin(&forms);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err first = {0}, second = {0};
        assert_int_equal(get(&forms, cases[i].text, &first), cases[i].status);
        assert_int_equal(get(&forms, cases[i].text, &second), cases[i].status);
        assert_int_equal(get(&forms, cases[i].text, NULL), cases[i].status);
        assert_string_equal(first.message, second.message);
        assert_int_equal(first.status, second.status);
        assert_int_equal(num_compiled(&forms), i + 1);
    }
    assert_int_equal(forms.stats.num_refused, 6);
    forms_fini(&forms);
}

// The one that was asked for longest ago goes first.
static void test_many_refusals(void **state) {
    (void)state;
    struct forms forms;
    char text[64];
    begin(&forms);
    for (int i = 0; i <= FORMS_REFUSALS; i++) {
        snprintf(text, sizeof text, "{\"regex\": \"(%d\"}", i);
        assert_int_equal(get(&forms, text, NULL), ERR_INVALID);
        assert_int_equal(get(&forms, "{\"regex\": \"(0\"}", NULL), ERR_INVALID);
    }
    uint64_t before = num_compiled(&forms);
    assert_int_equal(before, FORMS_REFUSALS + 1);
    assert_int_equal(get(&forms, "{\"regex\": \"(2\"}", NULL), ERR_INVALID);
    assert_int_equal(num_compiled(&forms), before);
    assert_int_equal(get(&forms, "{\"regex\": \"(1\"}", NULL), ERR_INVALID);
    assert_int_equal(num_compiled(&forms), before + 1);
    forms_fini(&forms);
}

static void test_bytes_of_refusals(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    struct forms forms;
    static char text[BYTES + 1];
    begin(&forms);
    for (int i = 0; i < 6; i++) {
        memset(text, ' ', BYTES);
        text[i] = '5'; // no object
        assert_int_equal(get(&forms, text, NULL), ERR_INVALID);
        assert_true(forms.refusal_bytes <= FORMS_REFUSAL_BYTES_MAX);
    }
    assert_int_equal(forms.refusal_bytes, FORMS_REFUSAL_BYTES_MAX);
    forms_fini(&forms);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form_is_kept),
        cmocka_unit_test(test_refusal_is_remembered),
        cmocka_unit_test(test_many_refusals),
        cmocka_unit_test(test_bytes_of_refusals),
    };
    struct err err = {0};
    if (tokenizer_open_file(&tokenizer, "models/tiny-qwen3/tokenizer.json", &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    int failed = cmocka_run_group_tests_name("forms", tests, NULL, NULL);
    tokenizer_close(tokenizer);
    return failed;
}
