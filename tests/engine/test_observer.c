/* What an observer of steps is told, on the bundled model. Most of the checks are step_watch's:
 * they hold in every call. */
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/mixed_workload.h"
#include "support/step_watch.h"

static struct nvllm_engine_options cpu_options(void) {
    struct nvllm_engine_options options = small_options();
    options.device = "cpu";
    return options;
}

static void observe(struct nvllm_engine *engine, struct step_watch *watch) {
    struct nvllm_error error = {0};
    if (nvllm_engine_observe(engine, watch ? step_watch_call : NULL, watch, &error)) {
        fail_msg("%s", error.message);
    }
}

static void run(struct nvllm_engine *engine) {
    struct nvllm_error error = {0};
    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
}

static uint64_t add(struct nvllm_engine *engine, const int32_t *ids, size_t count,
                    int32_t max_tokens) {
    struct nvllm_sampling_params params = greedy_params(max_tokens);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, count, &params);
    struct nvllm_error error = {0};
    uint64_t id = 0;
    if (nvllm_engine_add_request(engine, &request, &id, &error)) fail_msg("%s", error.message);
    return id;
}

static void fill_prompt(int32_t *ids, size_t count, int32_t first) {
    for (size_t i = 0; i < count; i++) ids[i] = first + (int32_t)i;
}

// The sequences of the picture are the prompts and results, each token once.
static void expect_results(const struct step_watch *watch, const struct nvllm_result *results) {
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        const struct nvllm_result *result = &results[i];
        const struct watched_sequence *seq = &watch->sequences[i + 1];
        assert_int_equal(seq->num_outputs, result->num_tokens);
        assert_int_equal(seq->num_tokens, result->num_prompt_tokens + result->num_tokens);
        assert_memory_equal(seq->tokens, result->prompt_token_ids,
                            result->num_prompt_tokens * sizeof(int32_t));
        assert_memory_equal(seq->tokens + result->num_prompt_tokens, result->token_ids,
                            result->num_tokens * sizeof(int32_t));
        assert_int_equal(seq->finish_reason, result->finish_reason);
    }
}

// Runs the workload and compares what was told with the results and the engine's statistics.
static struct step_watch *watch_workload(struct nvllm_engine_options options) {
    struct mixed_workload *workload = mixed_workload_create();
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    assert_non_null(watch);
    observe(engine, watch);
    if (nvllm_engine_generate(engine, workload->requests, WORKLOAD_REQUESTS, &results, NULL,
                              &error)) {
        fail_msg("%s", error.message);
    }
    expect_results(watch, results);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(watch->num_steps, stats.num_steps);
    assert_int_equal(watch->num_prefill_tokens, stats.num_prefill_tokens);
    assert_int_equal(watch->num_decode_tokens, stats.num_decode_tokens);
    assert_int_equal(watch->num_preempted, stats.num_preemptions);
    assert_int_equal(watch->num_first_hit_blocks * 16, stats.num_cached_tokens);
    assert_int_equal(watch->num_taken, watch->num_freed); // at rest
    assert_int_equal(watch->num_used, 0);
    nvllm_results_free(results, WORKLOAD_REQUESTS);
    nvllm_engine_destroy(engine);
    free(workload);
    return watch;
}

static void test_every_token_once(void **state) {
    (void)state;
    struct step_watch *watch = watch_workload(cpu_options());
    assert_true(watch->num_hit_blocks > 0);
    assert_int_equal(watch->num_overlaps, 0);
    free(watch);
}

static void test_prompts_in_chunks(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    options.max_num_batched_tokens = 24;
    free(watch_workload(options));
}

static void test_preemptions_are_told(void **state) {
    (void)state;
    static const char *const schedules[] = {"mixed", "prefill-first"};
    static const char *const overlaps[] = {"off", "on"};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            struct nvllm_engine_options options = cpu_options();
            options.num_kvcache_blocks = i ? 18 : 12;
            options.schedule = schedules[i];
            options.async_scheduling = overlaps[k];
            struct step_watch *watch = watch_workload(options);
            assert_true(watch->num_preempted > 0);
            free(watch);
        }
    }
}

static void test_without_a_prefix_cache(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    options.enable_prefix_caching = 0;
    struct step_watch *watch = watch_workload(options);
    assert_int_equal(watch->num_hit_blocks, 0);
    assert_int_equal(watch->changes[3], 0); // cached
    free(watch);
}

// Each step is told when its own results are there, with its own times.
static void test_steps_that_overlap(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    options.async_scheduling = "on";
    struct step_watch *watch = watch_workload(options);
    // All but those after a step that had to be waited for, for want of anything to launch.
    assert_true(watch->num_overlaps > watch->num_steps / 2);
    free(watch);
}

static void expect_one_call_without_a_step(const struct step_watch *watch, uint64_t before) {
    assert_int_equal(watch->num_calls, before + 1);
    assert_int_equal(watch->num_steps, before);
    assert_int_equal(watch->num_used, 0);
}

// A device's steps have rows that are no sequence's, are recorded, and overlap.
static void test_steps_of_a_device(void **state) {
    (void)state;
    fake_device_reset();
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.max_num_seqs = 5;
    options.num_kvcache_blocks = 14;
    struct step_watch *watch = watch_workload(options);
    assert_true(watch->num_overlaps > watch->num_steps / 2);
    assert_true(watch->num_preempted > 0);
    assert_true(fake_device_counts().num_graph_launches > 0);
    free(watch);
}

// The step that fails is not told; that its requests ended is.
static void test_a_device_that_breaks(void **state) {
    (void)state;
    fake_device_reset();
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.max_num_seqs = 4;
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    observe(engine, watch);
    int32_t ids[40];
    fill_prompt(ids, 40, 300);
    add(engine, ids, 40, 20);
    fake_device_fail_at(FAKE_FAULT_WAIT, 4);
    enum nvllm_status status = NVLLM_OK;
    while (!status) status = nvllm_engine_step(engine, NULL);
    assert_int_equal(status, NVLLM_ERR_DEVICE);
    expect_one_call_without_a_step(watch, 3);
    assert_int_equal(watch->num_taken, watch->num_freed);
    nvllm_engine_destroy(engine);
    assert_int_equal(watch->num_calls, 4);
    free(watch);
}

static void test_prefix_hits_are_told(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    observe(engine, watch);
    int32_t ids[40];
    fill_prompt(ids, 40, 300);
    add(engine, ids, 40, 2);
    run(engine);
    assert_int_equal(watch->changes[1], 0);
    add(engine, ids, 40, 2);
    run(engine);
    assert_int_equal(watch->num_hit_blocks, 2);
    assert_int_equal(watch->changes[1], 2); // hit
    assert_int_equal(watch->num_taken, 6); // 3 each: blocks that are found were free, too
    nvllm_engine_destroy(engine);
    free(watch);
}

// The outputs of one request are sequences of their own, which share the prompt's full blocks.
static void test_outputs_of_a_request(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    observe(engine, watch);
    int32_t ids[40];
    fill_prompt(ids, 40, 300);
    struct nvllm_sampling_params params = greedy_params(5);
    params.n = 3;
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 40, &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(watch->num_hit_blocks, 2 * 2);
    const struct nvllm_result *output = result;
    for (uint32_t i = 1; i <= 3; i++, output = output->next) {
        const struct watched_sequence *seq = &watch->sequences[i];
        assert_int_equal(seq->request_id, 1);
        assert_int_equal(seq->index, i - 1);
        assert_int_equal(seq->num_outputs, 5);
        assert_memory_equal(seq->tokens + 40, output->token_ids, 5 * sizeof(int32_t));
    }
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
    free(watch);
}

// Two sequences fill the first block with the same tokens, in the same step.
static void test_shared_blocks_are_told(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    observe(engine, watch);
    int32_t ids[8];
    fill_prompt(ids, 8, 300);
    for (int i = 0; i < 2; i++) add(engine, ids, 8, 20);
    run(engine);
    assert_int_equal(watch->num_hit_blocks, 0);
    assert_int_equal(watch->changes[2], 1); // shared
    nvllm_engine_destroy(engine);
    free(watch);
}

// Whoever begins in the middle is told of every block that is not simply free.
static void test_observing_begins_and_ends_at_any_time(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[40];
    fill_prompt(ids, 40, 300);
    add(engine, ids, 40, 2);
    run(engine); // leaves cached blocks
    fill_prompt(ids, 40, 400);
    add(engine, ids, 40, 30);
    for (int i = 0; i < 3; i++) assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    struct step_watch *watch = calloc(2, sizeof *watch);
    assert_non_null(watch);
    watch[0].is_attached_late = watch[1].is_attached_late = true;
    observe(engine, &watch[0]);
    for (int i = 0; i < 4; i++) assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    assert_int_equal(watch[0].num_used, 3);
    observe(engine, &watch[1]); // in the first one's place
    for (int i = 0; i < 4; i++) assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    observe(engine, NULL);
    run(engine);
    assert_int_equal(watch[0].num_calls, 4);
    assert_int_equal(watch[1].num_calls, 4);
    nvllm_engine_destroy(engine);
    free(watch);
}

// One that begins while nothing runs is told at the next wait, not only when somebody asks again.
static void test_an_idle_engine_tells_what_is_cached(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    int32_t ids[40];
    fill_prompt(ids, 40, 300);
    add(engine, ids, 40, 2);
    run(engine);
    watch->is_attached_late = true;
    observe(engine, watch);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK);
    assert_int_equal(watch->num_calls, 1);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK); // nothing is new
    assert_int_equal(watch->num_calls, 1);
    nvllm_engine_destroy(engine);
    free(watch);
}

static void test_sequences_are_listed_in_order(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    options.max_num_seqs = 2;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sequence all[4];
    int32_t ids[40];
    fill_prompt(ids, 40, 300);
    assert_int_equal(nvllm_engine_sequences(engine, all, 4), 0);
    for (uint32_t i = 0; i < 3; i++) add(engine, ids + i, 20 + i, 5);
    assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_sequences(engine, all, 4), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(all[i].sequence_id, i + 1);
        assert_int_equal(all[i].is_running, i < 2);
        assert_int_equal(all[i].num_prompt_tokens, 20 + i);
        assert_int_equal(all[i].num_computed_tokens, i < 2 ? 20 + i : 0);
        assert_int_equal(all[i].num_tokens, i < 2 ? 21 + i : 22);
        assert_int_equal(all[i].num_blocks, i < 2 ? 2 : 0); // of 16 tokens
    }
    assert_int_equal(nvllm_engine_sequences(engine, all, 1), 1);
    run(engine);
    assert_int_equal(nvllm_engine_sequences(engine, all, 4), 0);
    nvllm_engine_destroy(engine);
}

static void test_ends_without_a_step_are_told(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(2, sizeof *watch);
    assert_non_null(watch);
    int32_t ids[40];
    fill_prompt(ids, 40, 300);

    observe(engine, &watch[0]);
    uint64_t id = add(engine, ids, 40, 20);
    for (int i = 0; i < 3; i++) assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    assert_int_equal(watch[0].num_used, 3);
    assert_int_equal(nvllm_engine_abort(engine, id), 1);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK);
    expect_one_call_without_a_step(&watch[0], 3);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK); // nothing is new
    assert_int_equal(watch[0].num_calls, 4);

    watch[1].is_attached_late = true;
    observe(engine, &watch[1]);
    add(engine, ids, 40, 20);
    for (int i = 0; i < 3; i++) assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    nvllm_engine_destroy(engine);
    expect_one_call_without_a_step(&watch[1], 3);
    free(watch);
}

// A request that is aborted while its step runs: that step has no output of it.
static void abort_first(const struct nvllm_event *event, void *user_data) {
    if (event->num_tokens) nvllm_engine_abort(user_data, 1);
}

static void test_an_aborted_request_has_no_output(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    options.async_scheduling = "on";
    struct nvllm_engine *engine = open_engine(&options);
    struct step_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    watch->is_attached_late = true; // the id of the aborted one's token is never known
    observe(engine, watch);
    int32_t ids[20];
    fill_prompt(ids, 20, 300);
    add(engine, ids, 20, 20);
    struct nvllm_sampling_params params = greedy_params(6);
    struct nvllm_request request = ids_request(ids, 20, &params);
    request.on_event = abort_first;
    request.user_data = engine;
    uint64_t id;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
    run(engine);
    assert_int_equal(watch->num_used, 0);
    assert_int_equal(watch->num_taken, watch->num_freed);
    nvllm_engine_destroy(engine);
    free(watch);
}

struct nested {
    struct nvllm_engine *engine;
    enum nvllm_status observe, step;
    int num_calls;
};

static void try_nested(const struct nvllm_step_trace *trace, void *user_data) {
    (void)trace;
    struct nested *nested = user_data;
    nested->observe = nvllm_engine_observe(nested->engine, NULL, NULL, NULL);
    nested->step = nvllm_engine_step(nested->engine, NULL);
    nvllm_engine_destroy(nested->engine);
    nested->num_calls++;
}

static void test_an_observer_may_not_drive_the_engine(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct nested nested = {.engine = open_engine(&options)};
    assert_int_equal(nvllm_engine_observe(nested.engine, try_nested, &nested, NULL), NVLLM_OK);
    int32_t ids[20];
    fill_prompt(ids, 20, 300);
    add(nested.engine, ids, 20, 3);
    run(nested.engine);
    assert_int_equal(nested.num_calls, 3);
    assert_int_equal(nested.observe, NVLLM_ERR_INVALID);
    assert_int_equal(nested.step, NVLLM_ERR_INVALID);
    assert_int_equal(nvllm_engine_observe(nested.engine, NULL, NULL, NULL), NVLLM_OK);
    nvllm_engine_destroy(nested.engine);
}

struct adding {
    struct nvllm_engine *engine;
    int num_to_add;
};

static void add_one(const struct nvllm_step_trace *trace, void *user_data) {
    (void)trace;
    struct adding *adding = user_data;
    const int32_t ids[] = {300, 301};
    if (adding->num_to_add-- > 0) add(adding->engine, ids, 2, 3);
}

// Also of the ends in destroy, which end what it adds.
static void test_an_observer_may_add_a_request(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct adding adding = {.engine = open_engine(&options), .num_to_add = 2};
    assert_int_equal(nvllm_engine_observe(adding.engine, add_one, &adding, NULL), NVLLM_OK);
    add(adding.engine, (const int32_t[]){300, 301}, 2, 3);
    nvllm_engine_destroy(adding.engine);
    assert_int_equal(adding.num_to_add, -1); // one more call for each that was added
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token_once),
        cmocka_unit_test(test_prompts_in_chunks),
        cmocka_unit_test(test_preemptions_are_told),
        cmocka_unit_test(test_without_a_prefix_cache),
        cmocka_unit_test(test_steps_that_overlap),
        cmocka_unit_test(test_steps_of_a_device),
        cmocka_unit_test(test_a_device_that_breaks),
        cmocka_unit_test(test_prefix_hits_are_told),
        cmocka_unit_test(test_outputs_of_a_request),
        cmocka_unit_test(test_shared_blocks_are_told),
        cmocka_unit_test(test_observing_begins_and_ends_at_any_time),
        cmocka_unit_test(test_an_idle_engine_tells_what_is_cached),
        cmocka_unit_test(test_sequences_are_listed_in_order),
        cmocka_unit_test(test_ends_without_a_step_are_told),
        cmocka_unit_test(test_an_aborted_request_has_no_output),
        cmocka_unit_test(test_an_observer_may_not_drive_the_engine),
        cmocka_unit_test(test_an_observer_may_add_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
