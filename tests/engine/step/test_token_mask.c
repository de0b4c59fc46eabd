// Which tokens a request may generate at each place of its output.
#include "engine/step/token_mask.h"

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
    if (token_mask_init(mask, params, &config, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(mask->num_words, NUM_WORDS);
}

static void init_refused(const struct nvllm_sampling_params *params, const char *sentence) {
    struct token_mask mask;
    struct err err = {0};
    assert_int_equal(token_mask_init(&mask, params, &config, NULL, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    assert_null(mask.always);
    assert_null(mask.ending);
}

// After num_generated tokens exactly these ids [count] are banned.
static void expect_banned(const struct token_mask *mask, uint32_t num_generated, const int32_t *ids,
                          size_t count) {
    static const int32_t generated[8];
    uint32_t words[BEYOND / 32 + 1];
    memset(words, 0xff, sizeof words);
    memset(words, 0, NUM_WORDS * sizeof *words);
    assert_int_equal(token_mask_is_needed(mask, generated, num_generated), count != 0);
    token_mask_write(mask, generated, num_generated, words);
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

// Ids 0, 2, 4 ... are allowed; EOS ids are 5 and 69.
static void test_only_allowed_tokens_are_left(void **state) {
    (void)state;
    int32_t allowed[VOCAB / 2], others[VOCAB / 2 + 1];
    for (int32_t i = 0; i < VOCAB / 2; i++) allowed[i] = 2 * i, others[i] = 2 * i + 1;
    struct nvllm_sampling_params params = params_init;
    params.allowed_token_ids = allowed, params.num_allowed_token_ids = ARRAY_LEN(allowed);
    struct token_mask mask;
    init_ok(&mask, &params);
    assert_false(token_mask_reads_ids(&mask));
    expect_banned(&mask, 0, others, VOCAB / 2);
    expect_banned(&mask, 7, others, VOCAB / 2);
    token_mask_fini(&mask);
    // Those that end it too, while they must.
    params.min_tokens = 3;
    params.stop_token_ids = &allowed[4], params.num_stop_token_ids = 1;
    others[VOCAB / 2] = allowed[4];
    init_ok(&mask, &params);
    expect_banned(&mask, 2, others, VOCAB / 2 + 1);
    expect_banned(&mask, 3, others, VOCAB / 2);
    token_mask_fini(&mask);
}

static void test_a_mask_leaves_a_token(void **state) {
    (void)state;
    static const char sentence[] =
        "allowed_token_ids, bad_words and min_tokens together ban every first token";
    static const int32_t allowed[] = {5, 9};
    struct nvllm_sampling_params params = params_init;
    params.allowed_token_ids = allowed, params.num_allowed_token_ids = 1; // EOS
    struct token_mask mask;
    init_ok(&mask, &params);
    token_mask_fini(&mask);
    params.min_tokens = 1;
    init_refused(&params, sentence);
    params.num_allowed_token_ids = 2;
    init_ok(&mask, &params);
    token_mask_fini(&mask);
    params.stop_token_ids = &allowed[1], params.num_stop_token_ids = 1;
    init_refused(&params, sentence);
}

static void test_bad_words_need_a_tokenizer(void **state) {
    (void)state;
    static const char *const words[] = {"a"};
    struct nvllm_sampling_params params = params_init;
    params.bad_words = words, params.num_bad_words = 1;
    init_refused(&params, "bad_words need the tokenizer, which skip_tokenizer_init left out");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_banned_without_a_reason),
        cmocka_unit_test(test_what_ends_is_banned_from_the_first_tokens),
        cmocka_unit_test(test_only_allowed_tokens_are_left),
        cmocka_unit_test(test_a_mask_leaves_a_token),
        cmocka_unit_test(test_bad_words_need_a_tokenizer),
    };
    return cmocka_run_group_tests_name("token_mask", tests, NULL, NULL);
}
