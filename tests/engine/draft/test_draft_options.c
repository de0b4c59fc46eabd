// The options of drafts: vLLM's JSON object and a plain number, and what is refused by name.
#include "engine/draft/draft_options.h"

#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

static enum status read(const char *drafts, const char *config, bool has_states,
                        struct draft_options *out, struct err *err) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    if (drafts) options.drafts = drafts;
    options.speculative_config = config;
    options.model = "m";
    return draft_options_read(out, &options, has_states, err);
}

static void expect(const char *drafts, const char *config, uint32_t num_tokens, uint32_t min_len,
                   uint32_t max_len) {
    struct draft_options options;
    struct err err = {0};
    if (read(drafts, config, false, &options, &err)) fail_msg("%s", err.message);
    assert_int_equal(options.num_tokens, num_tokens);
    assert_int_equal(options.min_len, min_len);
    assert_int_equal(options.max_len, max_len);
    assert_false(options.is_adaptive);
}

static void test_numbers_and_vllms_object(void **state) {
    (void)state;
    expect("off", NULL, 0, 0, 0);
    expect("7", NULL, 7, 3, 16);
    expect(NULL, "{\"method\": \"ngram\", \"num_speculative_tokens\": 4}", 4, 5, 5);
    expect(NULL, "{\"model\": \"[ngram]\", \"num_speculative_tokens\": 4}", 4, 5, 5);
    expect(NULL,
           "{\"method\": \"ngram\", \"num_speculative_tokens\": 15, \"prompt_lookup_max\": 4}", 15,
           4, 4);
    expect(NULL,
           "{\"method\": \"ngram\", \"num_speculative_tokens\": 1, \"prompt_lookup_min\": 2, "
           "\"prompt_lookup_max\": 4}",
           1, 2, 4);
    struct draft_options options;
    assert_int_equal(read("auto", NULL, false, &options, NULL), OK);
    assert_true(options.is_adaptive && options.num_tokens == DRAFT_TOKENS_MAX);
}

static void test_what_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *drafts, *config, *sentence;
    } cases[] = {
        {"16", NULL, "drafts is 16, want auto, off or 1 to 15 tokens"},
        {"0", NULL, "drafts is 0, want"},
        {"4", "{\"method\": \"ngram\"}", "want one of them"},
        {NULL, "{\"method\": \"eagle\", \"num_speculative_tokens\": 4}", "method eagle is not"},
        {NULL, "{\"model\": \"some/draft\", \"num_speculative_tokens\": 4}", "(some/draft)"},
        {NULL, "{\"num_speculative_tokens\": 4}", "method is missing"},
        {NULL, "{\"method\": \"ngram\"}", "num_speculative_tokens is missing"},
        {NULL, "{\"method\": \"ngram\", \"num_speculative_tokens\": 16}", "num_speculative_tokens"},
        {NULL, "{\"method\": \"ngram\", \"disable_by_batch_size\": 4}", "disable_by_batch_size"},
        {NULL,
         "{\"method\": \"ngram\", \"num_speculative_tokens\": 1, \"prompt_lookup_min\": 5, "
         "\"prompt_lookup_max\": 4}",
         "prompt_lookup_min is 5"},
        {NULL, "[]", "want an object"},
        {NULL, "{", "speculative_config"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct draft_options options;
        struct err err = {0};
        if (!read(cases[i].drafts, cases[i].config, false, &options, &err)) fail_msg("case %zu", i);
        if (!strstr(err.message, cases[i].sentence)) fail_msg("%zu: %s", i, err.message);
    }
}

static void test_recurrent_layers(void **state) {
    (void)state;
    struct draft_options options;
    struct err err = {0};
    assert_int_equal(read("4", NULL, true, &options, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "recurrent layers"));
    assert_int_equal(read("auto", NULL, true, &options, NULL), OK);
    assert_int_equal(options.num_tokens, 0);
}

static void test_rows_of_few_sequences(void **state) {
    (void)state;
    const struct draft_options drafts = {.num_tokens = 15}, none = {0};
    assert_int_equal(draft_options_rows(&drafts, 1, 2048), 16);
    assert_int_equal(draft_options_rows(&drafts, 30, 2048), DRAFT_ROWS_MAX);
    assert_int_equal(draft_options_rows(&drafts, 1, 8), 8);
    assert_int_equal(draft_options_rows(&drafts, 256, 2048), 256);
    assert_int_equal(draft_options_rows(&none, 3, 2048), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_and_vllms_object),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_recurrent_layers),
        cmocka_unit_test(test_rows_of_few_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
