// From what a request asks for to what the sample op is told: defaults and their order, refusals
// that name the field, copies that outlive the caller's lists, and which rows need token counts.
#include "engine/step/sampling.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { VOCAB = 1000 };

static const struct model_config config = {.vocab_size = VOCAB}, small = {.vocab_size = 7};
static const struct nvllm_sampling_params params_init = NVLLM_SAMPLING_PARAMS_INIT;

static void init_ok(struct sampling *sampling, const struct nvllm_sampling_params *params,
                    const struct generation_config *defaults) {
    struct err err = {0};
    if (sampling_init(sampling, params, defaults, &config, NULL, &err) != OK) {
        fail_msg("%s", err.message);
    }
    sampling_set_seed(sampling, 77, 0);
}

static void init_refused(const struct nvllm_sampling_params *params,
                         const struct generation_config *defaults, const char *sentence) {
    struct sampling sampling;
    static const struct sampling empty;
    struct err err = {0};
    assert_int_equal(sampling_init(&sampling, params, defaults, &config, NULL, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    assert_memory_equal(&sampling, &empty, sizeof empty);
}

static void test_library_defaults(void **state) {
    (void)state;
    const struct nvllm_sampling_params *const givens[] = {NULL, &params_init};
    for (size_t i = 0; i < ARRAY_LEN(givens); i++) {
        struct sampling s;
        init_ok(&s, givens[i], NULL);
        assert_true(s.params.temperature == 1.0f && s.row.temperature == 1.0f);
        assert_true(s.params.top_p == 1.0f && s.row.top_p == 1.0f);
        assert_true(s.params.min_p == 0.0f && s.row.min_p == 0.0f);
        assert_int_equal(s.row.top_k, 0);
        assert_true(s.row.repetition_penalty == 1.0f);
        assert_true(s.row.presence_penalty == 0.0f && s.row.frequency_penalty == 0.0f);
        assert_int_equal(s.row.num_top, -1);
        assert_int_equal(s.params.max_tokens, 256);
        assert_int_equal(s.row.seed_low, 77);
        assert_int_equal(s.row.seed_high, 0);
        assert_false(s.has_penalties);
        assert_int_equal(s.row.counts_slot, 0);
        assert_int_equal(s.row.bias_count, 0);
        assert_null(s.biases);
        assert_int_equal(s.row.mask, 0);
        assert_false(token_mask_is_needed(&s.mask, NULL, 0));
        sampling_fini(&s);
    }
}

static void test_model_defaults_come_between(void **state) {
    (void)state;
    const struct generation_config model = {
        .has_temperature = true,
        .temperature = 0.6f,
        .has_top_p = true,
        .top_p = 0.95f,
        .has_top_k = true,
        .top_k = 20,
        .has_min_p = true,
        .min_p = 0.1f,
        .has_repetition_penalty = true,
        .repetition_penalty = 1.05f,
    };
    struct sampling s;
    init_ok(&s, NULL, &model);
    assert_true(s.row.temperature == 0.6f && s.row.top_p == 0.95f && s.row.min_p == 0.1f);
    assert_true(s.row.repetition_penalty == 1.05f);
    assert_true(s.has_penalties);
    assert_int_equal(s.row.top_k, 20);
    sampling_fini(&s);

    struct nvllm_sampling_params params = params_init; // the user's word is the last
    params.temperature = 0;
    params.top_p = 0.5f;
    params.top_k = -1;
    params.min_p = 0;
    params.repetition_penalty = 1;
    init_ok(&s, &params, &model);
    assert_true(s.row.temperature == 0 && s.row.top_p == 0.5f && s.row.min_p == 0);
    assert_true(s.row.repetition_penalty == 1);
    assert_int_equal(s.row.top_k, 0);
    assert_false(s.has_penalties);
    sampling_fini(&s);

    const struct generation_config unused = {.temperature = 7, .top_p = 7, .top_k = 7};
    init_ok(&s, NULL, &unused); // no has_*: not there
    assert_true(s.row.temperature == 1 && s.row.top_p == 1 && s.row.top_k == 0);
    sampling_fini(&s);
}

static void test_tiny_temperatures_are_greedy(void **state) {
    (void)state;
    struct nvllm_sampling_params params = params_init;
    struct sampling s;
    params.temperature = 0.9e-5f;
    init_ok(&s, &params, NULL);
    assert_true(s.row.temperature == 0);
    sampling_fini(&s);
    params.temperature = 1e-5f;
    init_ok(&s, &params, NULL);
    assert_true(s.row.temperature == 1e-5f);
    sampling_fini(&s);
}

static void test_counts_beyond_the_vocabulary_are_cut(void **state) {
    (void)state;
    struct nvllm_sampling_params params = params_init;
    struct sampling s;
    params.top_k = VOCAB - 1;
    init_ok(&s, &params, NULL);
    assert_int_equal(s.row.top_k, VOCAB - 1);
    sampling_fini(&s);
    params.top_k = VOCAB; // keeps everything
    init_ok(&s, &params, NULL);
    assert_int_equal(s.row.top_k, 0);
    sampling_fini(&s);
    params.logprobs = params.prompt_logprobs = 20;
    assert_int_equal(sampling_init(&s, &params, NULL, &small, NULL, NULL), OK);
    assert_int_equal(s.row.num_top, 7);
    assert_int_equal(s.params.logprobs, 7);
    assert_int_equal(s.params.prompt_logprobs, 7);
    sampling_fini(&s);
}

static void test_a_seed_of_its_own_wins(void **state) {
    (void)state;
    struct nvllm_sampling_params params = params_init;
    struct sampling s;
    params.seed = 0x123456789abcdef0;
    init_ok(&s, &params, NULL);
    assert_int_equal(s.row.seed_low, 0x9abcdef0);
    assert_int_equal(s.row.seed_high, 0x12345678);
    sampling_fini(&s);
    params.seed = 0;
    init_ok(&s, &params, NULL);
    assert_int_equal(s.row.seed_low, 0);
    sampling_fini(&s);
    params.seed = INT64_MAX; // an output further on draws with the seed + its index
    init_ok(&s, &params, NULL);
    struct sampling other;
    assert_int_equal(sampling_init_borrowed(&other, &s, NULL), OK);
    sampling_set_seed(&other, 77, 3);
    assert_int_equal(other.row.seed_low, 2);
    assert_int_equal(other.row.seed_high, 0x80000000);
    sampling_fini(&other); // leaves what it borrowed
    sampling_fini(&s);
    uint64_t seed = 0xfedcba9876543210;
    assert_int_equal(sampling_init(&s, NULL, NULL, &config, NULL, NULL), OK);
    sampling_set_seed(&s, seed, 0);
    assert_int_equal(s.row.seed_low, 0x76543210);
    assert_int_equal(s.row.seed_high, 0xfedcba98);
    sampling_fini(&s);
}

static void test_refusals_name_the_field(void **state) {
    (void)state;
    struct nvllm_sampling_params params = params_init;
    params.temperature = -1;
    init_refused(&params, NULL, "temperature is -1, want a number from 0 to 100");
    params = params_init;
    const int32_t stops[] = {3, VOCAB};
    params.stop_token_ids = stops, params.num_stop_token_ids = 2;
    init_refused(&params, NULL, "stop_token_ids has token id 1000, the vocabulary ends at 999");
    params = params_init;
    const struct nvllm_logit_bias biases[] = {{7, 1}, {8, 1}, {7, 2}, {VOCAB, 1}};
    params.logit_bias = biases, params.num_logit_bias = 4;
    init_refused(&params, NULL, "logit_bias has token id 1000, the vocabulary ends at 999");
    params.num_logit_bias = 3;
    init_refused(&params, NULL, "logit_bias names token 7 twice");
    params = params_init;
    params.min_tokens = 9, params.max_tokens = 8;
    init_refused(&params, NULL, "min_tokens is 9, more than max_tokens 8");
    params.min_tokens = -1;
    init_refused(&params, NULL, "min_tokens is -1, want an integer from 0 to 2147483647");
    const struct generation_config model = {.has_top_p = true, .top_p = 1.5f};
    init_refused(NULL, &model,
                 "default of the model: top_p is 1.5, want a number above 0 and at most 1");
}

static void test_lists_are_copies(void **state) {
    (void)state;
    char first[] = "END", second[] = "\n\n";
    const char *stops[] = {first, second};
    int32_t ids[] = {3, 9};
    struct nvllm_logit_bias biases[] = {{7, 1.5f}, {8, -INFINITY}};
    struct nvllm_sampling_params params = params_init;
    params.stop = stops, params.num_stop = 2;
    params.stop_token_ids = ids, params.num_stop_token_ids = 2;
    params.logit_bias = biases, params.num_logit_bias = 2;
    params.owned = &params; // whatever it is, it is not ours
    struct sampling s;
    init_ok(&s, &params, NULL);
    memset(first, 'x', 3);
    memset(stops, 0, sizeof stops);
    memset(ids, 0, sizeof ids);
    memset(biases, 0, sizeof biases);
    assert_int_equal(s.params.num_stop, 2);
    assert_string_equal(s.params.stop[0], "END");
    assert_string_equal(s.stops[1], "\n\n");
    assert_int_equal(s.params.stop_token_ids[1], 9);
    assert_int_equal(s.params.logit_bias[0].token_id, 7);
    assert_null(s.params.owned);
    assert_true(sampling_is_stop_token(&s, 3) && sampling_is_stop_token(&s, 9));
    assert_false(sampling_is_stop_token(&s, 0));
    assert_int_equal(s.row.bias_count, 2);
    assert_int_equal(s.biases[0].token_id, 7);
    assert_true(s.biases[0].bias == 1.5f);
    assert_int_equal(s.biases[1].token_id, 8);
    assert_true(isinf(s.biases[1].bias));
    assert_false(s.has_penalties); // a bias alone needs no counts
    sampling_fini(&s);
    assert_false(sampling_is_stop_token(&s, 0)); // all-zero has none
    sampling_fini(&s);
    sampling_fini(NULL);
}

// logprob_token_ids stand behind the biases and make the best ones superfluous.
static void test_given_tokens(void **state) {
    (void)state;
    const struct nvllm_logit_bias biases[] = {{50, 3}, {6, 2}};
    const int32_t ids[] = {9, 6, 9};
    struct nvllm_sampling_params params = params_init;
    params.logit_bias = biases, params.num_logit_bias = ARRAY_LEN(biases);
    params.logprob_token_ids = ids, params.num_logprob_token_ids = ARRAY_LEN(ids);
    params.logprobs = 0;
    struct sampling s;
    init_ok(&s, &params, NULL);
    assert_int_equal(s.row.bias_count, 2);
    assert_int_equal(s.row.num_given, 3);
    assert_int_equal(s.row.num_top, 3);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) assert_int_equal(s.biases[2 + i].token_id, ids[i]);
    sampling_fini(&s);
    params.logprobs = -1;
    assert_int_equal(sampling_init(&s, &params, NULL, &config, NULL, NULL), ERR_INVALID);
    const int32_t beyond = (int32_t)config.vocab_size;
    params.logprobs = 0;
    params.logprob_token_ids = &beyond, params.num_logprob_token_ids = 1;
    assert_int_equal(sampling_init(&s, &params, NULL, &config, NULL, NULL), ERR_INVALID);
}

// The caller's order is the caller's; a token named twice is found wherever it stands.
static void test_biases_of_any_order(void **state) {
    (void)state;
    const struct nvllm_logit_bias biases[] = {{50, 3}, {6, 2}, {999, -1}, {0, 0.5f}};
    struct nvllm_sampling_params params = params_init;
    params.logit_bias = biases, params.num_logit_bias = ARRAY_LEN(biases);
    struct sampling s;
    init_ok(&s, &params, NULL);
    assert_int_equal(s.row.bias_count, ARRAY_LEN(biases));
    for (size_t i = 0; i < ARRAY_LEN(biases); i++) {
        size_t num_found = 0;
        for (uint32_t k = 0; k < s.row.bias_count; k++) {
            if (s.biases[k].token_id != biases[i].token_id) continue;
            assert_true(s.biases[k].bias == biases[i].bias);
            num_found++;
        }
        assert_int_equal(num_found, 1);
        assert_int_equal(s.params.logit_bias[i].token_id, biases[i].token_id);
    }
    sampling_fini(&s);
    const struct nvllm_logit_bias twice[] = {{50, 3}, {6, 2}, {999, -1}, {50, 3}};
    params.logit_bias = twice;
    init_refused(&params, NULL, "logit_bias names token 50 twice");
}

static void test_each_penalty_needs_counts(void **state) {
    (void)state;
    for (int which = 0; which < 6; which++) {
        struct nvllm_sampling_params params = params_init;
        float sign = which % 2 ? -1.0f : 1.0f; // liked tokens too
        if (which / 2 == 0) params.repetition_penalty = 1 + 0.2f * sign;
        if (which / 2 == 1) params.presence_penalty = 0.5f * sign;
        if (which / 2 == 2) params.frequency_penalty = 0.5f * sign;
        struct sampling s;
        init_ok(&s, &params, NULL);
        assert_true(s.has_penalties);
        assert_true(s.row.repetition_penalty == (which / 2 == 0 ? 1 + 0.2f * sign : 1.0f));
        assert_true(s.row.presence_penalty == (which / 2 == 1 ? 0.5f * sign : 0.0f));
        assert_true(s.row.frequency_penalty == (which / 2 == 2 ? 0.5f * sign : 0.0f));
        assert_int_equal(s.row.bias_count, 0);
        sampling_fini(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_defaults),
        cmocka_unit_test(test_model_defaults_come_between),
        cmocka_unit_test(test_tiny_temperatures_are_greedy),
        cmocka_unit_test(test_counts_beyond_the_vocabulary_are_cut),
        cmocka_unit_test(test_a_seed_of_its_own_wins),
        cmocka_unit_test(test_refusals_name_the_field),
        cmocka_unit_test(test_lists_are_copies),
        cmocka_unit_test(test_given_tokens),
        cmocka_unit_test(test_biases_of_any_order),
        cmocka_unit_test(test_each_penalty_needs_counts),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
