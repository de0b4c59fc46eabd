// From what a request asks for to what the sample op is told: defaults and their order, refusals
// that name the field, copies that outlive the caller's lists, and the counts behind the penalties.
#include "engine/sampling.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { VOCAB = 1000 };

static const struct nvllm_sampling_params params_init = NVLLM_SAMPLING_PARAMS_INIT;
static const int32_t prompt[] = {5, 6, 5, 999};

static void init_ok(struct sampling *sampling, const struct nvllm_sampling_params *params,
                    const struct generation_config *defaults) {
    struct err err = {0};
    if (sampling_init(sampling, params, defaults, VOCAB, 77, prompt, 4, &err) != OK) {
        fail_msg("%s", err.message);
    }
}

static void init_refused(const struct nvllm_sampling_params *params,
                         const struct generation_config *defaults, const char *sentence) {
    struct sampling sampling;
    static const struct sampling empty;
    struct err err = {0};
    assert_int_equal(sampling_init(&sampling, params, defaults, VOCAB, 0, prompt, 4, &err),
                     ERR_INVALID);
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
        assert_false(s.track_outputs);
        assert_int_equal(s.num_adjusts, 0);
        assert_null(s.adjusts);
        sampling_count_output(&s, 5); // nothing to count
        assert_int_equal(s.num_adjusts, 0);
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
    assert_false(s.track_outputs);
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
    params.logprobs = 20;
    assert_int_equal(sampling_init(&s, &params, NULL, 7, 0, prompt, 3, NULL), OK);
    assert_int_equal(s.row.num_top, 7);
    assert_int_equal(s.params.logprobs, 7);
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
    uint64_t seed = 0xfedcba9876543210;
    assert_int_equal(sampling_init(&s, NULL, NULL, VOCAB, seed, prompt, 4, NULL), OK);
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
    const struct generation_config model = {.has_top_p = true, .top_p = 1.5f};
    init_refused(NULL, &model,
                 "default of the model: top_p is 1.5, want a number above 0 and at most 1");

    struct sampling s;
    struct err err = {0};
    assert_int_equal(sampling_init(&s, NULL, NULL, 999, 0, prompt, 4, &err), ERR_INVALID);
    assert_string_equal(err.message, "the prompt has token id 999, the vocabulary ends at 998");
    const int32_t negative[] = {-1};
    assert_int_equal(sampling_init(&s, NULL, NULL, 999, 0, negative, 1, &err), ERR_INVALID);
    assert_string_equal(err.message, "the prompt has token id -1, the vocabulary ends at 998");
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
    assert_int_equal(s.num_adjusts, 2);
    assert_int_equal(s.adjusts[0].token_id, 7);
    assert_true(s.adjusts[0].bias == 1.5f);
    assert_true(isinf(s.adjusts[1].bias));
    assert_false(s.track_outputs); // a bias alone needs no counts
    sampling_fini(&s);
    assert_false(sampling_is_stop_token(&s, 0)); // all-zero has none
    sampling_fini(&s);
    sampling_fini(NULL);
}

static const struct sample_adjust *find(const struct sampling *s, int32_t id) {
    const struct sample_adjust *found = NULL;
    for (uint32_t i = 0; i < s->num_adjusts; i++) {
        if (s->adjusts[i].token_id != id) continue;
        assert_null(found); // each id once
        found = &s->adjusts[i];
    }
    return found;
}

static void test_repetition_sees_prompt_and_output(void **state) {
    (void)state;
    const struct nvllm_logit_bias biases[] = {{6, 2}, {50, 3}};
    struct nvllm_sampling_params params = params_init;
    params.repetition_penalty = 1.2f;
    params.logit_bias = biases, params.num_logit_bias = 2;
    struct sampling s;
    init_ok(&s, &params, NULL);
    assert_int_equal(s.num_adjusts, 4); // 5, 6, 999 of the prompt and 50
    assert_int_equal(find(&s, 5)->in_prompt, 1);
    assert_int_equal(find(&s, 6)->in_prompt, 1);
    assert_true(find(&s, 6)->bias == 2.0f);
    assert_int_equal(find(&s, 50)->in_prompt, 0);
    sampling_count_output(&s, 5);
    sampling_count_output(&s, 70);
    sampling_count_output(&s, 70);
    assert_int_equal(s.num_adjusts, 5);
    assert_int_equal(find(&s, 5)->output_count, 1);
    assert_int_equal(find(&s, 70)->output_count, 2);
    assert_int_equal(find(&s, 70)->in_prompt, 0);
    assert_true(find(&s, 70)->bias == 0.0f);
    assert_int_equal(find(&s, 6)->output_count, 0);
    sampling_fini(&s);
}

static void test_presence_and_frequency_see_the_output_only(void **state) {
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct nvllm_sampling_params params = params_init;
        params.presence_penalty = which ? 0 : 0.5f;
        params.frequency_penalty = which ? -0.5f : 0;
        struct sampling s;
        init_ok(&s, &params, NULL);
        assert_true(s.track_outputs);
        assert_int_equal(s.num_adjusts, 0);
        sampling_count_output(&s, 5);
        assert_int_equal(s.num_adjusts, 1);
        assert_int_equal(find(&s, 5)->output_count, 1);
        sampling_fini(&s);
    }
}

static void test_there_is_room_for_every_token(void **state) {
    (void)state;
    struct nvllm_sampling_params params = params_init;
    params.repetition_penalty = 1.2f;
    params.max_tokens = 100;
    struct sampling s;
    init_ok(&s, &params, NULL);
    for (int32_t i = 0; i < 100; i++) sampling_count_output(&s, 100 + i);
    assert_int_equal(s.num_adjusts, 103);
    for (int32_t i = 0; i < 100; i++) assert_int_equal(find(&s, 100 + i)->output_count, 1);
    sampling_fini(&s);

    params.max_tokens = INT32_MAX; // room for the vocabulary is enough
    init_ok(&s, &params, NULL);
    assert_int_equal(s.num_adjusts_max, VOCAB);
    for (int32_t i = 0; i < 3 * VOCAB; i++) sampling_count_output(&s, i % VOCAB);
    assert_int_equal(s.num_adjusts, VOCAB);
    assert_int_equal(find(&s, 999)->output_count, 3);
    sampling_fini(&s);
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
        cmocka_unit_test(test_repetition_sees_prompt_and_output),
        cmocka_unit_test(test_presence_and_frequency_see_the_output_only),
        cmocka_unit_test(test_there_is_room_for_every_token),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
