/* The engine on a device that runs beside the host, as far as a machine without one can show it:
 * recorded steps give the CPU's results to the bit, and whatever breaks, and whenever, every
 * request gets its one last event, nothing is lost, and no memory is given back that the device
 * still uses. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/mini_engine.h"
#include "support/mixed_workload.h"

static struct nvllm_engine_options device_options(void) {
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.max_num_batched_tokens = 64; // warm-up computes with every number of rows up to it
    options.max_num_seqs = 24;
    return options;
}

static void expect_all_given_back(void) {
    struct fake_device_counts counts = fake_device_counts();
    assert_int_equal(counts.live, 0);
    assert_int_equal(counts.num_given_back_early, 0);
}

// Returns what the device counted.
static struct fake_device_counts expect_cpu_results(const struct mixed_workload_expected *expected,
                                                    const struct nvllm_engine_options *options,
                                                    bool preempts) {
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    fake_device_reset();
    struct nvllm_result *got = mixed_workload_run(expected->workload, options, &stats);
    mixed_workload_expect_same(got, expected->results);
    assert_int_equal(stats.num_generated_tokens, expected->stats.num_generated_tokens);
    assert_int_equal(stats.num_requests_finished, WORKLOAD_REQUESTS);
    assert_int_equal(stats.num_kv_blocks_used, 0);
    expect_all_given_back();
    nvllm_results_free(got, WORKLOAD_REQUESTS);
    if (preempts) assert_true(stats.num_preemptions > 0);
    return fake_device_counts();
}

// Also where max_num_seqs is none of the sizes that steps are padded to.
static void test_recorded_steps_give_the_same_results(void **state) {
    static const int sizes[] = {1, 5, 17};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct nvllm_engine_options options = device_options();
        options.max_num_seqs = sizes[i];
        struct fake_device_counts counts = expect_cpu_results(*state, &options, false);
        assert_true(counts.num_graphs > 0);
        assert_true(counts.num_graph_launches > counts.num_graphs);
    }
}

static void test_recorded_steps_with_chunks_and_preemption(void **state) {
    struct nvllm_engine_options options = device_options();
    options.max_num_batched_tokens = 24;
    options.num_kvcache_blocks = 12;
    assert_true(expect_cpu_results(*state, &options, true).num_graph_launches > 0);
}

static void test_recorded_steps_one_after_the_other(void **state) {
    struct nvllm_engine_options options = device_options();
    options.async_scheduling = "off";
    assert_true(expect_cpu_results(*state, &options, false).num_graph_launches > 0);
}

static void test_enforce_eager_records_nothing(void **state) {
    struct nvllm_engine_options options = device_options();
    options.enforce_eager = 1;
    assert_int_equal(expect_cpu_results(*state, &options, false).num_graphs, 0);
}

// Steps with drafts are recorded too, each size in two parts. Those with prompts are not.
static void test_recorded_steps_with_drafts(void **state) {
    enum { PARTS = 2, SIZES = 7 }; // 2, 4, 8, 16, 32, 48, 64 rows
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = device_options();
    options.async_scheduling = "off"; // with overlap, certain tokens of forms are drafts too
    uint32_t num_plain = expect_cpu_results(expected, &options, false).num_graphs;
    options.async_scheduling = "on";
    options.full_warm_up = 1; // sizes that do not occur are recorded too
    options.speculative_config = "{\"method\": \"ngram\", \"num_speculative_tokens\": 6, "
                                 "\"prompt_lookup_min\": 1}";
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    fake_device_reset();
    struct nvllm_result *got = mixed_workload_run(expected->workload, &options, &stats);
    mixed_workload_expect_same(got, expected->results);
    nvllm_results_free(got, WORKLOAD_REQUESTS);
    expect_all_given_back();
    assert_true(stats.num_accepted_tokens > 0);
    assert_true(stats.num_draft_tokens > stats.num_accepted_tokens);
    struct fake_device_counts counts = fake_device_counts();
    assert_int_equal(counts.num_graphs, num_plain + PARTS * SIZES);
    assert_int_equal(counts.num_recorded_cold, 0);
    // Two launches a step but for those with prompts.
    assert_true(counts.num_graph_launches > PARTS * stats.num_steps / 2);
}

enum { NUM_WATCHED = 5 };

struct watched {
    uint32_t num_tokens;
    int num_ends;
    enum nvllm_finish_reason reason;
    struct nvllm_error error;
};

static void watch(const struct nvllm_event *event, void *user_data) {
    struct watched *w = user_data;
    assert_int_equal(w->num_ends, 0);
    for (uint32_t i = 0; i < event->num_tokens; i++) {
        assert_int_equal(event->generated_token_ids[w->num_tokens++], event->token_ids[i]);
    }
    assert_int_equal(event->num_generated_tokens, w->num_tokens);
    if (event->finish_reason == NVLLM_FINISH_NONE) return;
    w->num_ends++;
    w->reason = event->finish_reason;
    if (event->error) snprintf(w->error.message, sizeof w->error.message, "%s", event->error);
}

static void add_watched(struct nvllm_engine *engine, struct watched watched[NUM_WATCHED]) {
    static const int32_t ids[] = {300, 317, 334, 351, 368};
    for (int i = 0; i < NUM_WATCHED; i++) {
        watched[i] = (struct watched){0};
        struct nvllm_sampling_params params = greedy_params(2 + 2 * i);
        params.ignore_eos = 1;
        if (i == 3) params.repetition_penalty = 1.3f;
        struct nvllm_request request = ids_request(ids, (size_t)(1 + i), &params);
        request.on_event = watch;
        request.user_data = &watched[i];
        uint64_t id;
        struct nvllm_error error = {0};
        assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_OK);
    }
}

// What a failed engine owes to those who use it.
static void expect_failed(struct nvllm_engine *engine, const struct watched watched[NUM_WATCHED],
                          const struct nvllm_error *failure) {
    assert_non_null(strstr(failure->message, "fake"));
    for (int i = 0; i < NUM_WATCHED; i++) {
        assert_int_equal(watched[i].num_ends, 1);
        if (watched[i].reason == NVLLM_FINISH_LENGTH) continue;
        assert_int_equal(watched[i].reason, NVLLM_FINISH_ERROR);
        assert_string_equal(watched[i].error.message, failure->message);
    }
    assert_int_equal(nvllm_engine_has_unfinished(engine), 0);
    uint32_t num_waits = fake_device_counts().num_waits;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_ERR_DEVICE);
    assert_int_equal(fake_device_counts().num_waits, num_waits);
    const int32_t id = 300;
    struct nvllm_sampling_params params = greedy_params(2);
    struct nvllm_request request = ids_request(&id, 1, &params);
    expect_refused(engine, &request, "failed");
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.num_requests_finished, NUM_WATCHED);
    assert_int_equal(stats.num_kv_blocks_used, 0);
}

// False: there are fewer such occasions than n.
static bool run_failing(enum fake_fault fault, uint32_t n, const char *async_scheduling) {
    struct nvllm_engine_options options = device_options();
    options.async_scheduling = async_scheduling;
    options.skip_tokenizer_init = 1;
    fake_device_reset();
    struct nvllm_engine *engine = open_engine(&options);
    struct watched watched[NUM_WATCHED];
    add_watched(engine, watched);
    fake_device_fail_at(fault, n);
    struct nvllm_error error = {0};
    enum nvllm_status status = NVLLM_OK;
    int num_steps = 0;
    while (!status && nvllm_engine_has_unfinished(engine)) {
        status = nvllm_engine_step(engine, &error);
        assert_true(++num_steps < 100);
    }
    if (status) {
        assert_int_equal(status, NVLLM_ERR_DEVICE);
        expect_failed(engine, watched, &error);
    }
    nvllm_engine_destroy(engine);
    expect_all_given_back();
    // A device that breaks in a step that nobody waits for any more need not be noticed.
    return fake_device_has_failed();
}

static uint32_t fail_everywhere(enum fake_fault fault) {
    uint32_t n = 1;
    while (run_failing(fault, n, "on")) n += fault == FAKE_FAULT_RUN ? 1 + n / 3 : 1;
    uint32_t last = n;
    for (n = 1; run_failing(fault, n, "off");) n += fault == FAKE_FAULT_RUN ? 1 + n / 3 : 1;
    return last < n ? last : n;
}

static void test_a_device_that_breaks_while_it_runs(void **state) {
    (void)state;
    assert_true(fail_everywhere(FAKE_FAULT_RUN) > 50);
}

static void test_a_device_that_breaks_before_a_wait(void **state) {
    (void)state;
    assert_true(fail_everywhere(FAKE_FAULT_WAIT) > 5);
}

// Steps that cannot be recorded run eagerly: nothing fails, and results stay the same.
static void expect_eager_steps(const struct mixed_workload_expected *expected,
                               enum fake_fault fault, uint32_t n) {
    struct nvllm_engine_options options = device_options();
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    fake_device_reset();
    fake_device_fail_at(fault, n);
    log_set_level(LOG_QUIET);
    struct nvllm_result *got = mixed_workload_run(expected->workload, &options, &stats);
    log_set_level(LOG_NOTICE);
    assert_true(fake_device_has_failed());
    assert_int_equal(fake_device_counts().num_graphs, n - 1);
    mixed_workload_expect_same(got, expected->results);
    expect_all_given_back();
    nvllm_results_free(got, WORKLOAD_REQUESTS);
}

static void test_a_recording_that_cannot_begin(void **state) {
    for (uint32_t n = 1; n < 4; n++) expect_eager_steps(*state, FAKE_FAULT_GRAPH_BEGIN, n);
}

static void test_a_recording_that_cannot_end(void **state) {
    for (uint32_t n = 1; n < 4; n++) expect_eager_steps(*state, FAKE_FAULT_GRAPH_END, n);
}

static void test_no_step_is_recorded_while_requests_run(void **state) {
    (void)state;
    struct nvllm_engine_options options = device_options();
    options.skip_tokenizer_init = 1;
    fake_device_reset();
    struct nvllm_engine *engine = open_engine(&options);
    uint32_t num_graphs = fake_device_counts().num_graphs;
    struct watched watched[NUM_WATCHED];
    add_watched(engine, watched);
    struct nvllm_error error = {0};
    while (nvllm_engine_has_unfinished(engine)) {
        assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    }
    assert_true(num_graphs > 1);
    assert_int_equal(fake_device_counts().num_graphs, num_graphs);
    nvllm_engine_destroy(engine);
}

static void test_device_memory_that_is_not_to_be_had(void **state) {
    (void)state;
    struct nvllm_engine_options options = device_options();
    options.skip_tokenizer_init = 1;
    for (uint32_t n = 1;; n++) {
        fake_device_reset();
        fake_device_fail_at(FAKE_FAULT_CREATE, n);
        struct nvllm_engine *engine = NULL;
        struct nvllm_error error = {0};
        enum nvllm_status status = nvllm_engine_create(&engine, &options, &error);
        nvllm_engine_destroy(engine);
        expect_all_given_back();
        assert_int_equal(status, fake_device_has_failed() ? NVLLM_ERR_NOMEM : NVLLM_OK);
        if (status) continue;
        assert_true(n > 10);
        return;
    }
}

// What may be left when sampling fails: a launched pass without the end that a wait looks for.
static void test_a_wait_for_a_step_that_was_not_sampled(void **state) {
    (void)state;
    const int32_t prompt[] = {300, 317, 334};
    struct mini_engine mini;
    struct nvllm_engine_options options = mini_options("models/tiny-qwen3");
    options.device = "cuda";
    options.max_num_batched_tokens = 64;
    options.num_kvcache_blocks = 16;
    fake_device_reset();
    mini_open(&mini, &options);
    struct mini_request request = {.prompt = prompt, .num_prompt = 3, .max_new = 2};
    mini_run(&mini, &request, 1); // there are old ends to be mistaken for this one
    mini.batch.header->num_late_masks = 1;
    struct model_runner_times times = {0};
    const struct sample_result *results, *prompt_results;
    assert_int_equal(executor_launch(mini.executor, &mini.batch, 0, &times, NULL), OK);
    assert_int_equal(executor_wait(mini.executor, 0, &results, &prompt_results, NULL), OK);
    mini_close(&mini);
    expect_all_given_back();
}

static void test_destroyed_with_steps_on_their_way(void **state) {
    (void)state;
    struct nvllm_engine_options options = device_options();
    for (int num_steps = 0; num_steps < 8; num_steps++) {
        fake_device_reset();
        struct nvllm_engine *engine = open_engine(&options);
        struct watched watched[NUM_WATCHED];
        add_watched(engine, watched);
        struct nvllm_error error = {0};
        for (int i = 0; i < num_steps; i++) {
            assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
        }
        nvllm_engine_destroy(engine);
        expect_all_given_back();
        for (int i = 0; i < NUM_WATCHED; i++) assert_int_equal(watched[i].num_ends, 1);
        assert_int_equal(watched[NUM_WATCHED - 1].reason, NVLLM_FINISH_ABORT);
    }
}

// Where a step's time is, there its tokens are counted too.
static void test_a_step_counts_when_its_results_are_there(void **state) {
    (void)state;
    fake_device_reset();
    struct nvllm_engine_options options = device_options();
    struct nvllm_engine *engine = open_engine(&options);
    const int32_t ids[] = {300, 317, 334};
    struct nvllm_sampling_params params = greedy_params(3);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 3, &params);
    struct nvllm_error error = {0};
    uint64_t id;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_OK);
    static const uint64_t prefill[] = {0, 3, 3, 3}, decode[] = {0, 0, 1, 2};
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        assert_int_equal(stats.num_steps, i);
        assert_int_equal(stats.num_prefill_tokens, prefill[i]);
        assert_int_equal(stats.num_decode_tokens, decode[i]);
        assert_int_equal(stats.num_generated_tokens, i);
    }
    assert_int_equal(nvllm_engine_has_unfinished(engine), 0);
    nvllm_engine_destroy(engine);
}

// The KV cache gets what the share leaves; where that is not even one sequence, what is missing is
// said.
static void test_the_kv_cache_fills_the_share_of_a_device(void **state) {
    (void)state;
    const size_t memory = (size_t)1 << 30;
    fake_device_reset();
    fake_device_set_memory(memory);
    struct nvllm_engine_options options = device_options();
    options.num_kvcache_blocks = 0;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    nvllm_engine_destroy(engine);
    uint32_t of_a_share = stats.num_kv_blocks;
    options.gpu_memory_utilization = 0.45;
    engine = open_engine(&options);
    nvllm_engine_stats(engine, &stats);
    nvllm_engine_destroy(engine);
    assert_true(of_a_share > 256 / 16 && stats.num_kv_blocks < of_a_share);
    fake_device_set_memory((size_t)1 << 20);
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_NOMEM);
    assert_non_null(strstr(error.message, "needs"));
    expect_all_given_back();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_steps_give_the_same_results),
        cmocka_unit_test(test_recorded_steps_with_chunks_and_preemption),
        cmocka_unit_test(test_recorded_steps_one_after_the_other),
        cmocka_unit_test(test_enforce_eager_records_nothing),
        cmocka_unit_test(test_recorded_steps_with_drafts),
        cmocka_unit_test(test_a_device_that_breaks_while_it_runs),
        cmocka_unit_test(test_a_device_that_breaks_before_a_wait),
        cmocka_unit_test(test_a_recording_that_cannot_begin),
        cmocka_unit_test(test_a_recording_that_cannot_end),
        cmocka_unit_test(test_no_step_is_recorded_while_requests_run),
        cmocka_unit_test(test_device_memory_that_is_not_to_be_had),
        cmocka_unit_test(test_a_wait_for_a_step_that_was_not_sampled),
        cmocka_unit_test(test_destroyed_with_steps_on_their_way),
        cmocka_unit_test(test_a_step_counts_when_its_results_are_there),
        cmocka_unit_test(test_the_kv_cache_fills_the_share_of_a_device),
    };
    return cmocka_run_group_tests(tests, mixed_workload_expected_make,
                                  mixed_workload_expected_free);
}
