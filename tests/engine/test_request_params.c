// What single parameters of a request do, through the public API on the bundled model.
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

static void run(struct nvllm_engine *engine) {
    struct nvllm_error error = {0};
    for (int i = 0; nvllm_engine_has_unfinished(engine); i++) {
        assert_true(i < 10000);
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
}

// The one token that a text is.
static int32_t token_of(struct nvllm_engine *engine, const char *text) {
    int32_t *ids = NULL;
    size_t num_ids = 0;
    assert_int_equal(nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), text, strlen(text), 0,
                                            NULL, &ids, &num_ids, NULL),
                     NVLLM_OK);
    assert_int_equal(num_ids, 1);
    int32_t id = ids[0];
    nvllm_free(ids);
    return id;
}

enum { ORDER_MAX = 8 };

struct order {
    uint64_t ids[ORDER_MAX];
    int count;
};

static void note_end(const struct nvllm_event *event, void *user_data) {
    struct order *order = user_data;
    if (!event->finish_reason) return;
    assert_int_equal(event->finish_reason, NVLLM_FINISH_LENGTH);
    order->ids[order->count++] = event->request_id;
}

static void test_requests_run_by_priority_then_arrival(void **state) {
    (void)state;
    static const int32_t priorities[] = {0, 5, INT32_MIN, 0, -3, INT32_MAX};
    static const int want[] = {2, 4, 0, 3, 1, 5}; // ids are numbers from 1
    struct nvllm_engine_options options = small_options();
    options.max_num_seqs = 1;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(3);
    params.ignore_eos = 1;
    struct order order = {0};
    for (size_t i = 0; i < ARRAY_LEN(priorities); i++) {
        params.priority = priorities[i];
        struct nvllm_request request = text_request("Once upon a time", &params);
        request.on_event = note_end;
        request.user_data = &order;
        assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, NULL), NVLLM_OK);
    }
    run(engine);
    assert_int_equal(order.count, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) assert_int_equal(order.ids[i], want[i] + 1);
    nvllm_engine_destroy(engine);
}

// The answer to QUESTION is 12 tokens and EOS.
static void test_min_tokens_keep_a_request_from_ending(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    const int32_t stop_ids[] = {token_of(*state, " =")};
    const char *stops[] = {"37"};
    for (int which = 0; which < 3; which++) { // EOS, a stop token, a stop string
        params.num_stop_token_ids = which == 1;
        params.stop_token_ids = stop_ids;
        params.num_stop = which == 2;
        params.stop = stops;
        params.min_tokens = 0;
        const struct nvllm_request request = text_request(QUESTION, &params);
        struct nvllm_result *result = generate_one(*state, &request);
        assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
        size_t length = result->num_tokens;
        nvllm_results_free(result, 1);
        params.min_tokens = (int32_t)length - 1; // changes nothing
        result = generate_one(*state, &request);
        assert_int_equal(result->num_tokens, length);
        nvllm_results_free(result, 1);
        params.min_tokens = (int32_t)length;
        result = generate_one(*state, &request);
        assert_true(result->num_tokens > length);
        for (size_t i = 0; i < length; i++) {
            assert_int_not_equal(result->token_ids[i], 4091); // EOS
            if (which == 1) assert_int_not_equal(result->token_ids[i], stop_ids[0]);
        }
        if (which == 2) assert_memory_equal(result->text, "37 + 58", 7);
        nvllm_results_free(result, 1);
    }
}

// What a request's text ends with, by what ends it.
static void test_the_text_has_what_ended_it_on_demand(void **state) {
    const int32_t stop_ids[] = {token_of(*state, " =")};
    const char *stops[] = {" = 9"};
    static const struct {
        int skip_special, include, keep_stop_token;
        const char *eos, *stop_token, *stop_string;
    } cases[] = {
        {1, 0, 0, "37 + 58 = 95.", "37 + 58", "37 + 58"},
        {1, 0, 1, "37 + 58 = 95.", "37 + 58 =", "37 + 58"},
        {1, 1, 0, "37 + 58 = 95.", "37 + 58 =", "37 + 58 = 9"},
        {0, 0, 0, "37 + 58 = 95.", "37 + 58", "37 + 58"},
        {0, 0, 1, "37 + 58 = 95.<|im_end|>", "37 + 58 =", "37 + 58"},
        {0, 1, 0, "37 + 58 = 95.<|im_end|>", "37 + 58 =", "37 + 58 = 9"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *want[] = {cases[i].eos, cases[i].stop_token, cases[i].stop_string};
        struct nvllm_sampling_params params = greedy_params(60);
        params.skip_special_tokens = cases[i].skip_special;
        params.include_stop_str_in_output = cases[i].include;
        params.stop_token_ids = stop_ids;
        params.stop = stops;
        for (size_t which = 0; which < ARRAY_LEN(want); which++) {
            params.num_stop_token_ids = which == 1;
            params.num_stop = which == 2;
            struct nvllm_request request = text_request(QUESTION, &params);
            request.keep_stop_token = cases[i].keep_stop_token;
            struct nvllm_result *result = generate_one(*state, &request);
            assert_string_equal(result->text, want[which]);
            assert_int_equal(result->stop_token_id, which == 0   ? 4091
                                                    : which == 1 ? stop_ids[0]
                                                                 : -1);
            assert_int_equal(result->stop_string != NULL, which == 2);
            nvllm_results_free(result, 1);
        }
    }
}

static void test_special_tokens_are_skipped_wherever_they_stand(void **state) {
    struct nvllm_sampling_params params = greedy_params(3);
    const struct nvllm_logit_bias bias = {4091, 100};
    params.logit_bias = &bias;
    params.num_logit_bias = 1;
    params.ignore_eos = 1;
    for (params.skip_special_tokens = 0; params.skip_special_tokens < 2;
         params.skip_special_tokens++) {
        const struct nvllm_request request = text_request(QUESTION, &params);
        struct nvllm_result *result = generate_one(*state, &request);
        assert_string_equal(result->text,
                            params.skip_special_tokens ? "" : "<|im_end|><|im_end|><|im_end|>");
        nvllm_results_free(result, 1);
    }
}

static void test_masks_need_tokens_of_the_model(void **state) {
    static const int32_t ids[] = {7, 4096};
    static const char *const words[] = {" "};
    struct nvllm_sampling_params params = greedy_params(3);
    struct nvllm_request request = text_request(QUESTION, &params);
    params.allowed_token_ids = ids, params.num_allowed_token_ids = 2;
    expect_refused(*state, &request,
                   "allowed_token_ids has token id 4096, the vocabulary ends at 4095");
    params.num_allowed_token_ids = 0;
    params.bad_words = words, params.num_bad_words = 1;
    expect_refused(*state, &request, "entry 0 of bad_words has no token: it is white space");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_run_by_priority_then_arrival),
        cmocka_unit_test(test_min_tokens_keep_a_request_from_ending),
        cmocka_unit_test(test_the_text_has_what_ended_it_on_demand),
        cmocka_unit_test(test_special_tokens_are_skipped_wherever_they_stand),
        cmocka_unit_test(test_masks_need_tokens_of_the_model),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
