/* The engine through the public API on the bundled model: admission, ends of requests, aborts,
 * events, determinism, several engines. Upstream's bugs are named where a test shows that they are
 * not here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/engine_fixture.h"
#include "support/odd_float_mode.h"

static void test_empty_prompt_is_refused_b2(void **state) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt = "";
    expect_refused(*state, &request, "the prompt is empty");
    const int32_t none[1] = {0};
    request = (struct nvllm_request)NVLLM_REQUEST_INIT;
    request.prompt_token_ids = none;
    expect_refused(*state, &request, "the prompt is empty");
}

static void test_request_without_prompt_is_refused(void **state) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    expect_refused(*state, &request, "needs prompt, prompt_token_ids or chat");
}

static void test_bad_max_tokens_are_refused_b2(void **state) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct nvllm_request request = text_request("hello", &params);
    params.max_tokens = 0;
    expect_refused(*state, &request, "max_tokens");
    params.max_tokens = -5;
    expect_refused(*state, &request, "max_tokens");
}

static void test_bad_parameters_name_the_field(void **state) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct nvllm_request request = text_request("hello", &params);
    params.temperature = -1;
    expect_refused(*state, &request, "temperature");
    params.temperature = NAN;
    expect_refused(*state, &request, "temperature");
    params = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    params.top_p = 0;
    expect_refused(*state, &request, "top_p");
    params = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    params.logprobs = 21;
    expect_refused(*state, &request, "logprobs");
    const int32_t stop[] = {4096};
    params = (struct nvllm_sampling_params)NVLLM_SAMPLING_PARAMS_INIT;
    params.stop_token_ids = stop;
    params.num_stop_token_ids = 1;
    expect_refused(*state, &request, "stop_token_ids");
}

static void test_ids_outside_the_vocabulary_are_refused(void **state) {
    const int32_t ids[] = {5, 4096};
    struct nvllm_request request = ids_request(ids, 2, NULL);
    expect_refused(*state, &request, "prompt_token_ids[1] is 4096");
    const int32_t negative[] = {-1};
    request = ids_request(negative, 1, NULL);
    expect_refused(*state, &request, "prompt_token_ids[0] is -1");
}

static void test_prompt_of_max_model_len_is_refused_b3(void **state) {
    int32_t ids[256] = {0};
    struct nvllm_request request = ids_request(ids, 256, NULL);
    expect_refused(*state, &request, "max_model_len 256");
}

// Not all of such a text is encoded.
static void test_prompt_far_beyond_max_model_len_is_refused(void **state) {
    enum { LEN = 1 << 20 };
    char *text = malloc(LEN);
    assert_non_null(text);
    for (size_t i = 0; i < LEN; i++) text[i] = "a word "[i % 7];
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt = text;
    request.prompt_len = LEN;
    expect_refused(*state, &request, "more than 256 tokens");
    free(text);
}

static void test_answer_stops_at_max_model_len_b3(void **state) {
    int32_t ids[250] = {0};
    struct nvllm_sampling_params params = greedy_params(100);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 250, &params);
    struct nvllm_result *result = generate_one(*state, &request);
    assert_int_equal(result->num_tokens, 6);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_LENGTH);
    nvllm_results_free(result, 1);
}

static void test_request_larger_than_the_cache_is_refused_b1(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.num_kvcache_blocks = 4; // 64 tokens
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[60] = {0};
    struct nvllm_sampling_params params = greedy_params(32);
    struct nvllm_request request = ids_request(ids, 60, &params);
    expect_refused(engine, &request, "KV");
    // One that fits still runs, filling the cache to its last block.
    params.max_tokens = 5; // 65 tokens: the last one needs no KV
    params.ignore_eos = 1;
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(result->num_tokens, 5);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

static void test_an_answer_may_fill_a_cache_smaller_than_the_context(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.num_kvcache_blocks = 4; // 64 tokens
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[60] = {0};
    struct nvllm_sampling_params params = greedy_params(INT32_MAX);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 60, &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(result->num_tokens, 5); // the last one needs no KV
    assert_int_equal(result->finish_reason, NVLLM_FINISH_LENGTH);
    nvllm_results_free(result, 1);
    int32_t too_many[65] = {0};
    request = ids_request(too_many, 65, &params);
    expect_refused(engine, &request, "KV");
    nvllm_engine_destroy(engine);
}

static struct nvllm_result *answer_in_mode(uint64_t mode) {
    struct nvllm_engine_options options = small_options();
    struct nvllm_sampling_params params = greedy_params(12);
    params.logprobs = 2;
    struct nvllm_request request = text_request(QUESTION, &params);
    float_mode_set(mode);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *result = generate_one(engine, &request);
    nvllm_engine_destroy(engine);
    uint64_t left = float_mode_get();
    float_mode_set(FLOAT_MODE_DEFAULT);
    assert_int_equal(left, mode);
    return result;
}

// Loading and steps compute in a mode of their own.
static void test_the_callers_float_mode_changes_no_bit(void **state) {
    (void)state;
    struct nvllm_result *want = answer_in_mode(FLOAT_MODE_DEFAULT);
    struct nvllm_result *got = answer_in_mode(ODD_FLOAT_MODE);
    assert_string_equal(got->text, want->text);
    assert_int_equal(got->num_tokens, want->num_tokens);
    assert_memory_equal(got->logprobs, want->logprobs,
                        want->num_tokens * 3 * sizeof *want->logprobs);
    nvllm_results_free(want, 1);
    nvllm_results_free(got, 1);
}

static void test_both_eos_ids_of_generation_config_end_it_b21(void **state) {
    // The model's greedy answer ends with <|im_end|>; a bias makes it <|endoftext|> instead.
    const int32_t ids[] = {4091, 4089};
    for (int i = 0; i < 2; i++) {
        const struct nvllm_logit_bias bias = {ids[i], 100.0f};
        struct nvllm_sampling_params params = greedy_params(8);
        params.logit_bias = &bias;
        params.num_logit_bias = 1;
        struct nvllm_request request = text_request("hello", &params);
        struct nvllm_result *result = generate_one(*state, &request);
        assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
        assert_int_equal(result->stop_token_id, ids[i]);
        assert_int_equal(result->num_tokens, 1);
        assert_int_equal(result->token_ids[0], ids[i]);
        assert_string_equal(result->text, "");
        nvllm_results_free(result, 1);
    }
}

static void test_ignore_eos_runs_to_max_tokens(void **state) {
    struct nvllm_sampling_params params = greedy_params(40);
    params.ignore_eos = 1;
    struct nvllm_request request = text_request(QUESTION, &params);
    struct nvllm_result *result = generate_one(*state, &request);
    assert_int_equal(result->num_tokens, 40);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_LENGTH);
    nvllm_results_free(result, 1);
}

static void test_stop_token_id_ends_it_without_its_text(void **state) {
    struct nvllm_sampling_params params = greedy_params(40);
    struct nvllm_request request = text_request(QUESTION, &params);
    struct nvllm_result *whole = generate_one(*state, &request);
    assert_true(whole->num_tokens >= 4);
    params.stop_token_ids = &whole->token_ids[2];
    params.num_stop_token_ids = 1;
    struct nvllm_result *result = generate_one(*state, &request);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
    assert_int_equal(result->stop_token_id, whole->token_ids[2]);
    assert_true(result->num_tokens <= 3);
    assert_memory_equal(result->text, whole->text, result->text_len);
    assert_true(result->text_len < whole->text_len);
    nvllm_results_free(whole, 1);
    nvllm_results_free(result, 1);
}

static void test_stop_string_is_cut_off_and_named(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    const char *stops[] = {"never said", "= 9"};
    params.stop = stops;
    params.num_stop = 2;
    struct nvllm_request request = text_request(QUESTION, &params);
    struct nvllm_result *result = generate_one(*state, &request);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
    assert_string_equal(result->stop_string, "= 9");
    assert_string_equal(result->text, "37 + 58 ");
    nvllm_results_free(result, 1);
}

static void test_generate_keeps_order_and_reports_the_refused_b22(void **state) {
    struct nvllm_sampling_params params = greedy_params(30), bad = greedy_params(30);
    bad.top_p = 7;
    struct nvllm_request requests[3] = {text_request(QUESTION, &params), text_request("x", &bad),
                                        text_request("hello", &params)};
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_generate(*state, requests, 3, &results, NULL, &error), NVLLM_OK);
    assert_string_equal(results[0].text, "37 + 58 = 95.");
    assert_int_equal(results[1].finish_reason, NVLLM_FINISH_ERROR);
    assert_non_null(strstr(results[1].error.message, "top_p"));
    assert_true(results[2].num_tokens > 0);
    nvllm_results_free(results, 3);
}

static void test_generate_of_nothing(void **state) {
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(*state, NULL, 0, &results, NULL, NULL), NVLLM_OK);
    assert_non_null(results);
    nvllm_results_free(results, 0);
}

static int read_flag(void *user_data) {
    return *(const int *)user_data;
}

static void count_event(const struct nvllm_event *event, void *user_data) {
    (void)event;
    ++*(int *)user_data;
}

// Wants an end once the long request has ten tokens.
static int has_ten(void *user_data) {
    return *(const int *)user_data >= 10;
}

static void test_interrupted_generate_returns_what_is_done(void **state) {
    struct nvllm_sampling_params params = greedy_params(100), few = greedy_params(3);
    params.ignore_eos = few.ignore_eos = 1;
    struct nvllm_request requests[2] = {text_request(QUESTION, &params),
                                        text_request("Once upon a time", &few)};
    struct nvllm_result *whole = generate_one(*state, &requests[0]), *results = NULL;
    int num_events = 0;
    requests[0].on_event = count_event;
    requests[0].user_data = &num_events;
    const struct nvllm_interrupt interrupt = {.is_wanted = has_ten, .user_data = &num_events};
    assert_int_equal(nvllm_engine_generate(*state, requests, 2, &results, &interrupt, NULL),
                     NVLLM_OK);
    assert_int_equal(results[0].finish_reason, NVLLM_FINISH_ABORT);
    assert_in_range(results[0].num_tokens, 10, 99);
    assert_memory_equal(results[0].token_ids, whole->token_ids,
                        results[0].num_tokens * sizeof *whole->token_ids);
    if (small_options().data_parallel_size == 1 || results[1].num_tokens == 3) {
        assert_int_equal(results[1].finish_reason, NVLLM_FINISH_LENGTH);
        assert_int_equal(results[1].num_tokens, 3);
    } else { // two engines do not step together: the other one may have had no turn yet
        assert_int_equal(results[1].finish_reason, NVLLM_FINISH_ABORT);
        assert_in_range(results[1].num_tokens, 0, 2);
    }
    assert_false(nvllm_engine_has_unfinished(*state));
    nvllm_results_free(whole, 1);
    nvllm_results_free(results, 2);
}

// A prompt that is long to encode is not added once the caller wants an end.
static void test_interrupt_ends_a_prompt(void **state) {
    enum { LEN = 16 << 20 };
    struct nvllm_sampling_params params = greedy_params(1);
    char *text = malloc(LEN);
    assert_non_null(text);
    memset(text, 'a', LEN);
    struct nvllm_request request = text_request("", &params);
    request.prompt = text;
    request.prompt_len = LEN;
    int wanted = 1;
    const struct nvllm_interrupt interrupt = {.is_wanted = read_flag, .user_data = &wanted};
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(*state, &request, 1, &results, &interrupt, NULL),
                     NVLLM_OK);
    assert_int_equal(results[0].finish_reason, NVLLM_FINISH_ABORT);
    assert_int_equal(results[0].num_prompt_tokens, 0);
    nvllm_results_free(results, 1);
    request.interrupt = &interrupt;
    uint64_t id = 0;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_add_request(*state, &request, &id, &error),
                     NVLLM_ERR_INTERRUPTED);
    assert_string_equal(error.message, "interrupted by the caller");
    assert_false(nvllm_engine_has_unfinished(*state));
    free(text);
}

static void test_seed_decides_whatever_else_runs(void **state) {
    struct nvllm_sampling_params seeded = NVLLM_SAMPLING_PARAMS_INIT;
    seeded.temperature = 1.5f;
    seeded.top_k = 0;
    seeded.top_p = 1;
    seeded.seed = 1234;
    seeded.max_tokens = 24;
    seeded.ignore_eos = 1;
    struct nvllm_sampling_params other = seeded;
    other.seed = -1;
    struct nvllm_request request = text_request(QUESTION, &seeded);
    struct nvllm_result *alone = generate_one(*state, &request);
    struct nvllm_request requests[5];
    for (int i = 0; i < 5; i++) requests[i] = text_request("hello", i == 3 ? &seeded : &other);
    requests[3] = request;
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(*state, requests, 5, &results, NULL, NULL), NVLLM_OK);
    assert_int_equal(results[3].num_tokens, 24);
    assert_memory_equal(results[3].token_ids, alone->token_ids, 24 * sizeof(int32_t));
    assert_true(memcmp(results[0].token_ids, results[1].token_ids, 24 * sizeof(int32_t)) != 0);
    nvllm_results_free(alone, 1);
    nvllm_results_free(results, 5);
}

// Wanted once it was asked as often as `user_data` says.
static int count_down(void *user_data) {
    int *left = user_data;
    return (*left)-- == 0;
}

static void test_an_interrupt_ends_loading_at_any_matrix(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    int left = 0;
    const struct nvllm_interrupt interrupt = {.is_wanted = count_down, .user_data = &left};
    options.data_parallel_size = 1; // several are asked by the clock
    options.interrupt = &interrupt;
    struct nvllm_error error = {0};
    struct nvllm_engine *engine = NULL;
    enum nvllm_status status = NVLLM_ERR_INTERRUPTED;
    int num_asked = 0;
    for (; status && num_asked < 1000; num_asked++) {
        left = num_asked;
        status = nvllm_engine_create(&engine, &options, &error);
        if (status) assert_null(engine);
        if (status) assert_int_equal(status, NVLLM_ERR_INTERRUPTED);
    }
    assert_int_equal(status, NVLLM_OK);
    assert_true(num_asked > 30); // q, k, v, o, gate, up and down of some layers
    nvllm_engine_destroy(engine);
}

struct told {
    int num_calls;
    uint64_t num_loaded, num_parameters;
    bool is_steady; // it never went back, and the total stayed
};

static void on_loaded(uint64_t num_loaded, uint64_t num_parameters, void *user_data) {
    struct told *told = user_data;
    bool is_first = told->num_calls++ == 0;
    if (is_first) told->is_steady = num_loaded == 0;
    told->is_steady &= num_loaded >= told->num_loaded && num_loaded <= num_parameters;
    told->is_steady &= is_first || num_parameters == told->num_parameters;
    told->num_loaded = num_loaded;
    told->num_parameters = num_parameters;
}

static void test_loading_tells_how_far_it_is(void **state) {
    (void)state;
    struct told told = {0};
    const struct nvllm_load_progress progress = {.on_loaded = on_loaded, .user_data = &told};
    struct nvllm_engine_options options = small_options();
    options.load_progress = &progress;
    struct nvllm_engine *engine = open_engine(&options);
    assert_true(told.is_steady);
    assert_true(told.num_calls > 30); // q, k, v, o, gate, up and down of some layers
    assert_int_equal(told.num_loaded, told.num_parameters);
    assert_true(told.num_parameters > 6000000); // the bundled model's
    nvllm_engine_destroy(engine);
}

static void test_logprobs_have_the_shape_asked_for(void **state) {
    struct nvllm_sampling_params params = greedy_params(10);
    params.logprobs = 3;
    struct nvllm_request request = text_request(QUESTION, &params);
    struct nvllm_result *result = generate_one(*state, &request);
    assert_int_equal(result->num_top, 3);
    for (size_t i = 0; i < result->num_tokens; i++) {
        const struct nvllm_logprob *row = &result->logprobs[i * 4];
        assert_int_equal(row[0].token_id, result->token_ids[i]);
        assert_int_equal(row[1].token_id, result->token_ids[i]); // greedy: the best one
        assert_true(row[0].logprob == row[1].logprob);
        assert_true(row[1].logprob >= row[2].logprob && row[2].logprob >= row[3].logprob);
        assert_true(row[0].logprob <= 0);
    }
    nvllm_results_free(result, 1);
}

static void test_second_use_of_a_prompt_hits_the_prefix_cache(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[100] = {0};
    for (int i = 0; i < 100; i++) ids[i] = i;
    struct nvllm_sampling_params params = greedy_params(5);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 100, &params);
    struct nvllm_result *first = generate_one(engine, &request);
    struct nvllm_result *second = generate_one(engine, &request);
    request.cache_salt = "somebody else";
    struct nvllm_result *salted = generate_one(engine, &request);
    assert_int_equal(first->num_cached_tokens, 0);
    assert_int_equal(second->num_cached_tokens, 96);
    assert_int_equal(salted->num_cached_tokens, 0);
    assert_memory_equal(first->token_ids, second->token_ids, 5 * sizeof(int32_t));
    nvllm_results_free(first, 1);
    nvllm_results_free(second, 1);
    nvllm_results_free(salted, 1);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_prompt_is_refused_b2),
        cmocka_unit_test(test_request_without_prompt_is_refused),
        cmocka_unit_test(test_bad_max_tokens_are_refused_b2),
        cmocka_unit_test(test_bad_parameters_name_the_field),
        cmocka_unit_test(test_ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(test_prompt_of_max_model_len_is_refused_b3),
        cmocka_unit_test(test_prompt_far_beyond_max_model_len_is_refused),
        cmocka_unit_test(test_answer_stops_at_max_model_len_b3),
        cmocka_unit_test(test_request_larger_than_the_cache_is_refused_b1),
        cmocka_unit_test(test_an_answer_may_fill_a_cache_smaller_than_the_context),
        cmocka_unit_test(test_the_callers_float_mode_changes_no_bit),
        cmocka_unit_test(test_both_eos_ids_of_generation_config_end_it_b21),
        cmocka_unit_test(test_ignore_eos_runs_to_max_tokens),
        cmocka_unit_test(test_stop_token_id_ends_it_without_its_text),
        cmocka_unit_test(test_stop_string_is_cut_off_and_named),
        cmocka_unit_test(test_generate_keeps_order_and_reports_the_refused_b22),
        cmocka_unit_test(test_generate_of_nothing),
        cmocka_unit_test(test_interrupted_generate_returns_what_is_done),
        cmocka_unit_test(test_interrupt_ends_a_prompt),
        cmocka_unit_test(test_seed_decides_whatever_else_runs),
        cmocka_unit_test(test_an_interrupt_ends_loading_at_any_matrix),
        cmocka_unit_test(test_loading_tells_how_far_it_is),
        cmocka_unit_test(test_logprobs_have_the_shape_asked_for),
        cmocka_unit_test(test_second_use_of_a_prompt_hits_the_prefix_cache),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
