// Which tokens a request may generate at each place of its output.
#include "engine/token_mask.h"

#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { VOCAB = 70, NUM_WORDS = 3, BEYOND = 200 };

static int32_t eos_ids[] = {5, 69, BEYOND}; // the last one is no token of the model
static const struct model_config config = {
    .vocab_size = VOCAB, .eos_token_ids = eos_ids, .num_eos_token_ids = 3};
static const struct nvllm_sampling_params params_init = NVLLM_SAMPLING_PARAMS_INIT;

static void init_ok(struct token_mask *mask, const struct nvllm_sampling_params *params) {
    struct err err = {0};
    if (token_mask_init(mask, params, &config, &err)) fail_msg("%s", err.message);
    assert_int_equal(mask->num_words, NUM_WORDS);
}

// After num_generated tokens exactly these ids [count] are banned.
static void expect_banned(const struct token_mask *mask, uint32_t num_generated, const int32_t *ids,
                          size_t count) {
    uint32_t words[BEYOND / 32 + 1];
    memset(words, 0xff, sizeof words);
    memset(words, 0, NUM_WORDS * sizeof *words);
    assert_int_equal(token_mask_is_needed(mask, num_generated), count != 0);
    token_mask_write(mask, num_generated, words);
    for (int32_t id = 0; id < VOCAB; id++) {
        bool is_banned = false;
        for (size_t i = 0; i < count; i++) is_banned |= ids[i] == id;
        bool is_allowed = words[id / 32] >> (id % 32) & 1;
        if (is_allowed == is_banned) fail_msg("token %d after %u", id, num_generated);
    }
    for (size_t i = NUM_WORDS; i < ARRAY_LEN(words); i++) assert_int_equal(words[i], UINT32_MAX);
}

static void test_nothing_is_banned_without_a_reason(void **state) {
    (void)state;
    static const int32_t stops[] = {7};
    struct nvllm_sampling_params params = params_init;
    params.stop_token_ids = stops, params.num_stop_token_ids = 1;
    struct token_mask mask;
    init_ok(&mask, &params);
    expect_banned(&mask, 0, NULL, 0);
    token_mask_fini(&mask);
}

static void test_what_ends_is_banned_from_the_first_tokens(void **state) {
    (void)state;
    static const int32_t stops[] = {7, 64}, ending[] = {5, 69, 7, 64};
    struct nvllm_sampling_params params = params_init;
    params.stop_token_ids = stops, params.num_stop_token_ids = 2;
    params.min_tokens = 2;
    for (params.ignore_eos = 0; params.ignore_eos < 2; params.ignore_eos++) {
        struct token_mask mask;
        init_ok(&mask, &params);
        expect_banned(&mask, 0, ending, ARRAY_LEN(ending));
        expect_banned(&mask, 1, ending, ARRAY_LEN(ending));
        expect_banned(&mask, 2, NULL, 0);
        token_mask_fini(&mask);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_banned_without_a_reason),
        cmocka_unit_test(test_what_ends_is_banned_from_the_first_tokens),
    };
    return cmocka_run_group_tests_name("token_mask", tests, NULL, NULL);
}
