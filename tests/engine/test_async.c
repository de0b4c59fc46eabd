/* Asynchronous scheduling: a step is launched before the one before is waited for. On the CPU,
 * where a request's results do not depend on its batch, every result must be the same to the
 * bit. */
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
#include "support/mixed_workload.h"

static void expect_same_results(const struct mixed_workload_expected *expected,
                                struct nvllm_engine_options options, bool preempts) {
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    options.async_scheduling = "on";
    struct nvllm_result *got = mixed_workload_run(expected->workload, &options, &stats);
    mixed_workload_expect_same(got, expected->results);
    assert_int_equal(stats.num_generated_tokens, expected->stats.num_generated_tokens);
    assert_int_equal(stats.num_kv_blocks_used, 0);
    if (preempts) assert_true(stats.num_preemptions > 0);
    nvllm_results_free(got, WORKLOAD_REQUESTS);
}

static void test_same_results(void **state) {
    expect_same_results(*state, small_options(), false);
}

static void test_same_results_in_chunks(void **state) {
    struct nvllm_engine_options options = small_options();
    options.max_num_batched_tokens = 24;
    expect_same_results(*state, options, false);
}

static void test_same_results_with_preemption(void **state) {
    struct nvllm_engine_options options = small_options();
    options.num_kvcache_blocks = 12;
    expect_same_results(*state, options, true);
}

static void test_same_results_without_a_prefix_cache(void **state) {
    struct nvllm_engine_options options = small_options();
    options.enable_prefix_caching = 0;
    options.max_num_seqs = 3;
    expect_same_results(*state, options, false);
}

// prefill-first keeps running step by step, whatever is asked for.
static void test_same_results_with_prefill_first(void **state) {
    struct nvllm_engine_options options = small_options();
    options.schedule = "prefill-first";
    options.num_kvcache_blocks = 18;
    expect_same_results(*state, options, true);
}

struct tally {
    struct nvllm_engine *engine;
    uint64_t victim; // aborted by the other's third token
    int tokens, ends, victim_tokens;
    enum nvllm_finish_reason victim_reason;
};

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct tally *tally = user_data;
    tally->ends += event->finish_reason != NVLLM_FINISH_NONE;
    if (event->request_id == tally->victim) {
        tally->victim_tokens = (int)event->num_generated_tokens;
        tally->victim_reason = event->finish_reason;
        return;
    }
    tally->tokens += (int)event->num_tokens;
    if (tally->tokens == 3) nvllm_engine_abort(tally->engine, tally->victim);
}

// The victim's next token is on its way in two launched steps when it goes.
static void test_abort_of_a_request_on_its_way(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.async_scheduling = "on";
    struct tally tally = {.engine = open_engine(&options)};
    const int32_t ids[] = {300, 301, 302};
    struct nvllm_sampling_params params = greedy_params(20);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 3, &params);
    request.on_event = on_event;
    request.user_data = &tally;
    uint64_t first;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_add_request(tally.engine, &request, &first, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_add_request(tally.engine, &request, &tally.victim, &error),
                     NVLLM_OK);
    while (nvllm_engine_has_unfinished(tally.engine)) {
        assert_int_equal(nvllm_engine_step(tally.engine, &error), NVLLM_OK);
    }
    assert_int_equal(tally.tokens, 20);
    assert_int_equal(tally.ends, 2);
    assert_int_equal(tally.victim_reason, NVLLM_FINISH_ABORT);
    assert_int_equal(tally.victim_tokens, 2); // the third is not known yet
    nvllm_engine_destroy(tally.engine);
}

// Destroyed with a step on its way, and aborted before a step that nobody waits for any more.
static void test_ends_with_a_step_on_its_way(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.async_scheduling = "on";
    struct nvllm_engine *engine = open_engine(&options);
    const int32_t ids[] = {300, 301, 302};
    struct nvllm_sampling_params params = greedy_params(20);
    struct nvllm_request request = ids_request(ids, 3, &params);
    struct nvllm_error error = {0};
    uint64_t id;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(engine, id), 1);
    assert_int_equal(nvllm_engine_wait(engine, 0, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_has_unfinished(engine), 0);
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_results),
        cmocka_unit_test(test_same_results_in_chunks),
        cmocka_unit_test(test_same_results_with_preemption),
        cmocka_unit_test(test_same_results_without_a_prefix_cache),
        cmocka_unit_test(test_same_results_with_prefill_first),
        cmocka_unit_test(test_abort_of_a_request_on_its_way),
        cmocka_unit_test(test_ends_with_a_step_on_its_way),
    };
    return cmocka_run_group_tests(tests, mixed_workload_expected_make,
                                  mixed_workload_expected_free);
}
