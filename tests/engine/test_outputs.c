// Requests with several outputs: each is what a request with its seed would be, on every way of
// running; the prompt is computed once; events say whose they are and which is the last.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/ways.h"

enum { N = 5, NUM_PROMPT = 70, NUM_NEW = 90 };

static int32_t prompt[NUM_PROMPT];

static struct nvllm_sampling_params drawn_params(void) {
    struct nvllm_sampling_params params = greedy_params(NUM_NEW);
    params.temperature = 1.3f;
    params.seed = 40;
    params.ignore_eos = 1;
    params.logprobs = 2;
    params.frequency_penalty = 0.3f;
    return params;
}

static struct nvllm_request request_with(const struct nvllm_sampling_params *params) {
    return ids_request(prompt, NUM_PROMPT, params);
}

static int make_expected(void **state) {
    for (int32_t i = 0; i < NUM_PROMPT; i++) prompt[i] = (i * 37 + 300) % 4000;
    struct nvllm_result **expected = calloc(N, sizeof *expected); // each alone
    assert_non_null(expected);
    struct nvllm_engine_options options = way_options(&way_alone);
    struct nvllm_engine *engine = open_engine(&options);
    for (int32_t i = 0; i < N; i++) {
        struct nvllm_sampling_params params = drawn_params();
        params.seed += i;
        const struct nvllm_request request = request_with(&params);
        expected[i] = generate_one(engine, &request);
    }
    nvllm_engine_destroy(engine);
    *state = expected;
    return 0;
}

static int free_expected(void **state) {
    struct nvllm_result **expected = *state;
    for (int i = 0; i < N; i++) nvllm_results_free(expected[i], 1);
    free(expected);
    return 0;
}

static void expect_same(const struct nvllm_result *got, const struct nvllm_result *want) {
    assert_int_equal(got->finish_reason, want->finish_reason);
    assert_int_equal(got->num_tokens, want->num_tokens);
    assert_memory_equal(got->token_ids, want->token_ids, want->num_tokens * sizeof(int32_t));
    assert_string_equal(got->text, want->text);
    assert_int_equal(got->num_top, 2);
    assert_memory_equal(got->logprobs, want->logprobs,
                        want->num_tokens * 3 * sizeof *want->logprobs);
}

static void test_outputs_are_those_of_their_seeds(void **state) {
    struct nvllm_result *const *expected = *state;
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 8},
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 8, .no_prefix_cache = 1},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .no_prefix_cache = 1},
        {.device = "cpu", .max_num_seqs = 8, .max_num_tokens = 16, .no_prefix_cache = 1},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 8, .no_prefix_cache = 1},
        {.device = "cpu", .max_num_seqs = 2},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 12},
        {.device = "cpu", .max_num_seqs = 8, .num_blocks = 10, .no_prefix_cache = 1},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8, .no_prefix_cache = 1},
    };
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        fake_device_reset();
        struct nvllm_engine_options options = way_options(&ways[w]);
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = drawn_params();
        params.n = N;
        const struct nvllm_request request = request_with(&params);
        struct nvllm_result *result = generate_one(engine, &request), *output = result;
        for (uint32_t i = 0; i < N; i++, output = output->next) {
            assert_int_equal(output->index, i);
            expect_same(output, expected[i]);
            assert_int_equal(output->num_cached_tokens, 0);
            assert_int_equal(output->num_prompt_tokens, NUM_PROMPT);
        }
        assert_null(output);
        nvllm_results_free(result, 1);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        assert_int_equal(stats.num_requests_added, N);
        assert_int_equal(stats.num_requests_finished, N);
        assert_int_equal(stats.num_cached_tokens, 0);
        assert_int_equal(stats.num_kv_blocks_used, 0);
        if (ways[w].num_blocks) assert_true(stats.num_preemptions > 0);
        nvllm_engine_destroy(engine);
    }
}

// 70 tokens are 4 blocks of 16 that are shared and 6 tokens of each output's own.
static void test_the_prompt_is_computed_once(void **state) {
    (void)state;
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        struct nvllm_engine_options options = small_options();
        options.enable_prefix_caching = is_cached;
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = drawn_params();
        params.n = N;
        const struct nvllm_request request = request_with(&params);
        nvllm_results_free(generate_one(engine, &request), 1);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        assert_int_equal(stats.num_prefill_tokens, NUM_PROMPT + (N - 1) * 6);
        // The second time all but the last block is cached, for all outputs: it counts once.
        struct nvllm_result *result = generate_one(engine, &request);
        assert_int_equal(result->next->num_cached_tokens, is_cached ? 64 : 0);
        nvllm_results_free(result, 1);
        nvllm_engine_stats(engine, &stats);
        assert_int_equal(stats.num_cached_tokens, is_cached ? 64 : 0);
        nvllm_engine_destroy(engine);
    }
}

struct record {
    struct nvllm_engine *engine;
    uint64_t id, abort_id; // aborts this one at the third end; 0: none
    uint32_t num_ended, num_last;
    bool has_ended[N];
    uint32_t num_tokens[N];
    enum nvllm_finish_reason reasons[N];
};

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct record *r = user_data;
    assert_int_equal(event->request_id, r->id);
    assert_true(event->index < N);
    assert_false(r->has_ended[event->index]);
    assert_int_equal(event->num_generated_tokens, r->num_tokens[event->index] += event->num_tokens);
    if (event->finish_reason) {
        r->has_ended[event->index] = true;
        r->reasons[event->index] = event->finish_reason;
        r->num_ended++;
    }
    assert_int_equal(event->num_outputs_left, N - r->num_ended);
    r->num_last += !event->num_outputs_left;
    assert_int_equal(nvllm_engine_is_unfinished(r->engine, r->id), event->num_outputs_left > 0);
    assert_int_equal(nvllm_engine_has_unfinished(r->engine), 1);
    if (r->abort_id && r->num_ended == 3) {
        assert_int_equal(nvllm_engine_abort(r->engine, r->abort_id), 1);
        r->abort_id = 0;
    }
}

// Greedy outputs end at once, so max_tokens is not the end; the EOS of the drawn ones differs.
static void add(struct record *r, struct nvllm_sampling_params *params) {
    params->n = N;
    struct nvllm_request request = text_request(QUESTION, params);
    request.on_event = on_event;
    request.user_data = r;
    r->id = 1;
    uint64_t id = 0;
    assert_int_equal(nvllm_engine_add_request(r->engine, &request, &id, NULL), NVLLM_OK);
    assert_int_equal(id, 1);
}

static void run(struct nvllm_engine *engine) {
    for (int i = 0; nvllm_engine_has_unfinished(engine); i++) {
        assert_true(i < 1000);
        assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    }
}

static void test_each_output_has_its_end_and_the_request_its_last(void **state) {
    (void)state;
    static const char *const overlaps[] = {"off", "on"};
    for (int which = 0; which < 4; which++) {
        struct nvllm_engine_options options = small_options();
        options.async_scheduling = overlaps[which % 2];
        struct record r = {.engine = open_engine(&options)};
        struct nvllm_sampling_params params = greedy_params(40);
        params.temperature = 1.5f;
        params.seed = 3;
        add(&r, &params);
        if (which >= 2) r.abort_id = r.id;
        run(r.engine);
        assert_int_equal(r.num_ended, N);
        assert_int_equal(r.num_last, 1);
        int num_aborted = 0;
        for (int i = 0; i < N; i++) num_aborted += r.reasons[i] == NVLLM_FINISH_ABORT;
        assert_int_equal(num_aborted, which >= 2 ? N - 3 : 0);
        assert_int_equal(nvllm_engine_abort(r.engine, r.id), 0);
        nvllm_engine_destroy(r.engine);
    }
}

static void test_outputs_that_never_ran_end_too(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_seqs = 2;
    struct record r = {.engine = open_engine(&options)};
    struct nvllm_sampling_params params = greedy_params(40);
    add(&r, &params);
    assert_int_equal(nvllm_engine_step(r.engine, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(r.engine, r.id), 1);
    assert_int_equal(nvllm_engine_wait(r.engine, 0, NULL), NVLLM_OK);
    assert_int_equal(r.num_ended, N);
    assert_int_equal(r.num_last, 1);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(r.engine, &stats);
    assert_int_equal(stats.num_waiting + stats.num_running, 0);
    nvllm_engine_destroy(r.engine);
}

static void test_destroy_ends_all_outputs(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.async_scheduling = "on";
    struct record r = {.engine = open_engine(&options)};
    struct nvllm_sampling_params params = greedy_params(40);
    add(&r, &params);
    for (int i = 0; i < 3; i++) assert_int_equal(nvllm_engine_step(r.engine, NULL), NVLLM_OK);
    nvllm_engine_destroy(r.engine);
    assert_int_equal(r.num_ended, N);
    assert_int_equal(r.num_last, 1);
    for (int i = 0; i < N; i++) assert_int_equal(r.reasons[i], NVLLM_FINISH_ABORT);
}

// Without a seed of its own the first output is what it would be alone.
static void test_outputs_differ_without_a_seed(void **state) {
    (void)state;
    struct nvllm_result *results[2];
    for (int i = 0; i < 2; i++) {
        struct nvllm_engine_options options = small_options();
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = drawn_params();
        params.seed = -1;
        params.n = i ? N : 1;
        const struct nvllm_request request = request_with(&params);
        results[i] = generate_one(engine, &request);
        nvllm_engine_destroy(engine);
    }
    expect_same(results[1], results[0]);
    for (struct nvllm_result *a = results[1]; a; a = a->next) {
        for (struct nvllm_result *b = a->next; b; b = b->next) {
            assert_string_not_equal(a->text, b->text);
        }
    }
    for (int i = 0; i < 2; i++) nvllm_results_free(results[i], 1);
}

static void test_a_refused_request_has_one_result(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = drawn_params();
    params.n = 1025;
    struct nvllm_request request = request_with(&params);
    struct nvllm_result *result = NULL;
    assert_int_equal(nvllm_engine_generate(engine, &request, 1, &result, NULL, NULL), NVLLM_OK);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_ERROR);
    assert_string_equal(result->error.message, "n is 1025, want an integer from 1 to 1024");
    assert_null(result->next);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_those_of_their_seeds),
        cmocka_unit_test(test_the_prompt_is_computed_once),
        cmocka_unit_test(test_each_output_has_its_end_and_the_request_its_last),
        cmocka_unit_test(test_outputs_that_never_ran_end_too),
        cmocka_unit_test(test_destroy_ends_all_outputs),
        cmocka_unit_test(test_outputs_differ_without_a_seed),
        cmocka_unit_test(test_a_refused_request_has_one_result),
    };
    return cmocka_run_group_tests(tests, make_expected, free_expected);
}
