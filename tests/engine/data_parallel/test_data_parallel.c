/* Several engines behind one: the same answers as of one, where requests go, and what happens when
 * an engine is lost. The program nanovllm is in NANOVLLM_TEST_PROGRAM. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/step_tokens.h"
#include "base/os/clock.h"
#include "support/children.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

static struct nvllm_engine_options options_of(int32_t num_engines, int32_t world_size) {
    struct nvllm_engine_options options = small_options();
    options.data_parallel_size = num_engines;
    options.tensor_parallel_size = world_size;
    options.worker_program = getenv("NANOVLLM_TEST_PROGRAM");
    assert_non_null(options.worker_program);
    return options;
}

// ---- the same answers ----

enum { NUM_REQUESTS = 12 };

static struct nvllm_result *run_all(int32_t num_engines, int32_t world_size) {
    static const char *const prompts[] = {QUESTION, "Once upon a time", "The sun", "12 + 12 ="};
    static struct nvllm_sampling_params params[3];
    static struct nvllm_request requests[NUM_REQUESTS];
    struct nvllm_engine_options options = options_of(num_engines, world_size);
    params[0] = greedy_params(24);
    params[0].logprobs = 3;
    params[1] = greedy_params(30);
    params[1].temperature = 0.8f; // seeded by the request's number
    params[1].n = 2;
    params[2] = greedy_params(9);
    params[2].repetition_penalty = 1.3f;
    for (size_t i = 0; i < NUM_REQUESTS; i++) {
        requests[i] = text_request(prompts[i % 4], &params[i % 3]);
    }
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, requests, NUM_REQUESTS, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    nvllm_engine_destroy(engine);
    return results;
}

static void assert_same(const struct nvllm_result *got, const struct nvllm_result *want,
                        bool has_same_bits) {
    for (size_t i = 0; i < NUM_REQUESTS; i++) {
        const struct nvllm_result *a = &got[i], *b = &want[i];
        for (; a && b; a = a->next, b = b->next) {
            assert_int_equal(a->finish_reason, b->finish_reason);
            assert_string_equal(a->text, b->text);
            assert_int_equal(a->num_tokens, b->num_tokens);
            assert_memory_equal(a->token_ids, b->token_ids, b->num_tokens * sizeof *b->token_ids);
            if (!b->logprobs || !has_same_bits) continue;
            size_t row = 1 + (size_t)b->num_top;
            assert_memory_equal(a->logprobs, b->logprobs,
                                b->num_tokens * row * sizeof *b->logprobs);
        }
        assert_true(!a && !b);
    }
}

static void test_same_bits_and_order_as_one_engine(void **state) {
    (void)state;
    struct nvllm_result *want = run_all(1, 1);
    for (int32_t num_engines = 2; num_engines <= 3; num_engines++) {
        struct nvllm_result *got = run_all(num_engines, 1);
        assert_same(got, want, true);
        nvllm_results_free(got, NUM_REQUESTS);
    }
    nvllm_results_free(want, NUM_REQUESTS);
}

static void test_two_engines_of_two_processes(void **state) {
    (void)state;
    struct nvllm_result *want = run_all(1, 2), *got = run_all(2, 2);
    assert_same(got, want, true);
    nvllm_results_free(got, NUM_REQUESTS);
    nvllm_results_free(want, NUM_REQUESTS);
    assert_no_children();
}

// ---- where requests go ----

struct seen {
    int num_events, num_ends;
    enum nvllm_finish_reason reason;
    uint32_t num_cached_tokens;
    char error[256];
};

static void see(const struct nvllm_event *event, void *user_data) {
    struct seen *seen = user_data;
    seen->num_events++;
    if (!event->finish_reason) return;
    seen->num_ends++;
    seen->reason = event->finish_reason;
    seen->num_cached_tokens = event->num_cached_tokens;
    if (event->error) strncpy(seen->error, event->error, sizeof seen->error - 1);
}

static uint64_t add(struct nvllm_engine *engine, struct nvllm_request request, struct seen *seen) {
    struct nvllm_error error = {0};
    uint64_t id = 0;
    request.on_event = see;
    request.user_data = seen;
    if (nvllm_engine_add_request(engine, &request, &id, &error)) fail_msg("%s", error.message);
    return id;
}

static enum nvllm_status run(struct nvllm_engine *engine, struct nvllm_error *error) {
    enum nvllm_status status = NVLLM_OK;
    while (!status && nvllm_engine_has_unfinished(engine)) {
        status = nvllm_engine_step(engine, error);
    }
    return status;
}

// Two prompts go to two engines. When they come again, each finds its prefix where it was.
static void test_requests_follow_their_prefix(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(2);
    int32_t ids[2][100];
    struct seen seen[2][2] = {0};
    for (int32_t i = 0; i < 100; i++) {
        ids[0][i] = 300 + i;
        ids[1][i] = 500 + i;
    }
    for (int round = 0; round < 2; round++) {
        // In the other order the second time: of idle engines the first would get both.
        for (int i = 0; i < 2; i++) {
            int which = round ? 1 - i : i;
            add(engine, ids_request(ids[which], 100, &params), &seen[round][which]);
        }
        assert_int_equal(run(engine, NULL), NVLLM_OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(seen[0][i].num_cached_tokens, 0);
        assert_int_equal(seen[1][i].num_cached_tokens, 96);
    }
    nvllm_engine_destroy(engine);
}

static void test_statistics_are_sums(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(5);
    params.ignore_eos = 1;
    params.structured_outputs = "{\"regex\": \"[0-9]{9}\"}";
    params.num_structured_outputs = strlen(params.structured_outputs);
    struct seen seen[4] = {0};
    for (size_t i = 0; i < 4; i++) add(engine, text_request("a b c", &params), &seen[i]);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.num_requests_added, 4);
    assert_int_equal(stats.num_waiting + stats.num_running, 4);
    assert_int_equal(run(engine, NULL), NVLLM_OK);
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.num_requests_finished, 4);
    assert_int_equal(stats.num_generated_tokens, 20);
    assert_int_equal(api_num_step_tokens(engine),
                     stats.num_prefill_tokens + stats.num_decode_tokens);
    assert_int_equal(stats.num_kv_blocks, 2 * 64);
    assert_int_equal(stats.num_running + stats.num_waiting, 0);
    assert_int_equal(stats.num_kv_blocks_used, 0);
    assert_int_equal(stats.block_size, 16);
    assert_int_equal(stats.max_model_len, 256);
    // The engines share what was compiled.
    assert_int_equal(stats.num_forms, 4);
    assert_int_equal(stats.num_forms_kept, 3);
    assert_int_equal(stats.num_forms_refused, 0);
    uint64_t num_compiled = 0, num_masks = 0;
    for (size_t i = 0; i < NVLLM_DURATION_BUCKETS; i++) {
        num_compiled += stats.form_compile.counts[i];
        num_masks += stats.form_mask.counts[i];
    }
    assert_int_equal(num_compiled, 1);
    assert_int_equal(num_masks, 20);
    assert_true(stats.form_compile.seconds > 0 && stats.form_mask.seconds > 0);
    nvllm_engine_destroy(engine);
}

// Each request must fit into the cache of the engine that runs it.
static void test_the_context_is_that_of_one_engine(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    options.num_kvcache_blocks = 4;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.num_kv_blocks, 2 * 4);
    assert_int_equal(stats.max_model_len, 64);
    nvllm_engine_destroy(engine);
}

// An engine with events waits until the program takes them. That is no time of its output.
static void test_waiting_for_the_program_is_no_output(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(3);
    struct seen seen = {0};
    add(engine, text_request("a b c", &params), &seen);
    usleep(100000);
    double inside = clock_seconds();
    assert_int_equal(run(engine, NULL), NVLLM_OK);
    inside = clock_seconds() - inside; // events come in there alone
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_true(stats.output_seconds > 0);
    assert_true(stats.output_seconds <= inside);
    nvllm_engine_destroy(engine);
}

// ---- events and aborts ----

struct watched {
    atomic_int num_inside; // callbacks at this moment
    bool is_called; // the program is inside a call that delivers events
    int num_events;
};

static void check_alone(const struct nvllm_event *event, void *user_data) {
    struct watched *watched = user_data;
    assert_int_equal(atomic_fetch_add(&watched->num_inside, 1), 0);
    assert_true(watched->is_called);
    assert_true(event->request_id > 0);
    watched->num_events++;
    atomic_fetch_sub(&watched->num_inside, 1);
}

static void test_events_come_one_at_a_time_inside_calls(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(3, 1);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(20);
    params.ignore_eos = 1;
    struct watched watched = {0};
    for (int i = 0; i < 6; i++) {
        struct nvllm_request request = text_request("Once upon", &params);
        request.on_event = check_alone;
        request.user_data = &watched;
        assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, NULL), NVLLM_OK);
    }
    while (nvllm_engine_has_unfinished(engine)) {
        watched.is_called = true;
        assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
        watched.is_called = false;
    }
    assert_int_equal(watched.num_events, 6 * 20);
    nvllm_engine_destroy(engine);
}

static void test_requests_of_any_engine_can_be_aborted(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(200);
    params.ignore_eos = 1;
    struct seen seen[4] = {0};
    uint64_t ids[4];
    for (size_t i = 0; i < 4; i++) ids[i] = add(engine, text_request("a b c", &params), &seen[i]);
    assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(nvllm_engine_abort(engine, ids[i]), 1);
        assert_int_equal(nvllm_engine_abort(engine, ids[i]), 0);
        assert_true(nvllm_engine_is_unfinished(engine, ids[i]));
    }
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(seen[i].num_ends, 1);
        assert_int_equal(seen[i].reason, NVLLM_FINISH_ABORT);
        assert_false(nvllm_engine_is_unfinished(engine, ids[i]));
    }
    assert_int_equal(seen[3].num_ends, 0);
    assert_int_equal(nvllm_engine_has_unfinished(engine), 1);
    nvllm_engine_destroy(engine); // ends the last one
    assert_int_equal(seen[3].reason, NVLLM_FINISH_ABORT);
}

static void *wake_later(void *engine) {
    nvllm_engine_wake(engine);
    return NULL;
}

static void test_waits_end(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK); // nothing to do
    assert_int_equal(nvllm_engine_wait(engine, 0.001, NULL), NVLLM_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wake_later, engine), 0);
    assert_int_equal(nvllm_engine_wait(engine, -1, NULL), NVLLM_OK);
    pthread_join(thread, NULL);
    struct nvllm_sampling_params params = greedy_params(3);
    struct seen seen = {0};
    add(engine, text_request("a", &params), &seen);
    assert_int_equal(nvllm_engine_wait(engine, -1, NULL), NVLLM_OK);
    nvllm_engine_destroy(engine);
}

static void test_draining_engines_take_no_requests(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    nvllm_engine_drain(engine);
    expect_refused(engine, &(struct nvllm_request){0}, "struct_size");
    struct nvllm_sampling_params params = greedy_params(3);
    struct nvllm_request request = text_request("a", &params);
    expect_refused(engine, &request, "draining");
    params.max_tokens = 0; // nobody reads a request that has no place
    expect_refused(engine, &request, "draining");
    nvllm_engine_destroy(engine);
}

// One engine's share is full: the request goes to the other. Both are: it is refused.
static void test_engines_share_the_bounds(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    options.max_num_waiting = 8;
    options.max_num_seqs = 1;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(100);
    params.ignore_eos = 1;
    // The prefix draws all to one engine, as far as that has room.
    int32_t ids[150];
    for (int32_t i = 0; i < 150; i++) ids[i] = 300 + i;
    struct nvllm_request request = ids_request(ids, 150, &params);
    int num_added = 0;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_check_open(engine, &error), NVLLM_OK);
    while (!nvllm_engine_add_request(engine, &request, NULL, &error)) num_added++;
    assert_int_equal(error.status, NVLLM_ERR_CAPACITY);
    assert_true(num_added >= 8 && num_added <= 10); // some may have begun to run
    nvllm_engine_destroy(engine);
}

// ---- what goes wrong ----

static void expect_no_engine(const struct nvllm_engine_options *options, enum nvllm_status want,
                             const char *sentence) {
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, options, &error), want);
    assert_null(engine);
    if (!strstr(error.message, sentence)) {
        fail_msg("\"%s\", want \"%s\"", error.message, sentence);
    }
    assert_no_children();
}

static int count_down(void *user_data) {
    int *left = user_data;
    return --*left < 0;
}

static void test_engines_that_cannot_be_made(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    options.model = "models/nowhere";
    expect_no_engine(&options, NVLLM_ERR_IO, "models/nowhere");
    options = options_of(2, 3);
    expect_no_engine(&options, NVLLM_ERR_UNSUPPORTED, "cannot be shared evenly");
    options = options_of(2, 2);
    options.worker_program = "/bin/false";
    expect_no_engine(&options, NVLLM_ERR_DEVICE, "rank 1 has ended with exit status 1");
    options = options_of(2, 1);
    options.data_parallel_size = 65;
    expect_no_engine(&options, NVLLM_ERR_INVALID, "data_parallel_size is 65");
}

static void test_an_interrupt_ends_the_loads(void **state) {
    (void)state;
    for (int num_asked = 0; num_asked < 2; num_asked++) {
        int left = num_asked;
        const struct nvllm_interrupt interrupt = {.is_wanted = count_down, .user_data = &left};
        struct nvllm_engine_options options = options_of(2, 1);
        options.interrupt = &interrupt;
        struct nvllm_engine *engine = NULL;
        // The second question may come after the loads are over.
        enum nvllm_status status = nvllm_engine_create(&engine, &options, NULL);
        if (!num_asked) assert_int_equal(status, NVLLM_ERR_INTERRUPTED);
        nvllm_engine_destroy(engine);
    }
}

static void test_steps_of_several_engines_are_not_observed(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 1);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_observe(engine, nvllm_trace_file_step, NULL, &error),
                     NVLLM_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "data_parallel_size is 2"));
    assert_int_equal(nvllm_engine_observe(engine, NULL, NULL, &error), NVLLM_OK);
    nvllm_engine_destroy(engine);
}

// One engine's rank is killed: the requests of both engines end with that.
static void test_one_lost_engine_ends_all(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 2);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(200);
    params.ignore_eos = 1;
    struct seen seen[4] = {0};
    for (size_t i = 0; i < 4; i++) add(engine, text_request("a b c", &params), &seen[i]);
    struct nvllm_error error = {0};
    while (!seen[0].num_events) assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    pid_t pids[4];
    assert_int_equal(children(pids, 4), 2);
    kill(pids[0], SIGKILL);
    assert_int_equal(run(engine, &error), NVLLM_ERR_DEVICE);
    if (!strstr(error.message, "of 2: rank 1 was ended by signal 9 (Killed)")) {
        fail_msg("\"%s\"", error.message);
    }
    assert_int_equal(strncmp(error.message, "engine ", 7), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(seen[i].num_ends, 1);
        assert_int_equal(seen[i].reason, NVLLM_FINISH_ERROR);
        assert_non_null(strstr(seen[i].error, "rank 1 was ended by signal 9"));
    }
    struct nvllm_request request = text_request("a", &params);
    expect_refused(engine, &request, "the engine has failed");
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_ERR_DEVICE);
    assert_int_equal(nvllm_engine_wait(engine, -1, &error), NVLLM_ERR_DEVICE);
    nvllm_engine_destroy(engine);
    assert_no_children();
}

// The only request is of the engine that is lost. Its last event is not all: a step says it too.
static void test_a_step_reports_the_loss_that_ended_the_last_request(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2, 2);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(200);
    params.ignore_eos = 1;
    struct seen seen = {0};
    add(engine, text_request("a b c", &params), &seen);
    assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    pid_t pids[4];
    assert_int_equal(children(pids, 4), 2);
    for (size_t i = 0; i < 2; i++) kill(pids[i], SIGKILL);
    struct nvllm_error error = {0};
    assert_int_equal(run(engine, &error), NVLLM_ERR_DEVICE);
    assert_int_equal(seen.num_ends, 1);
    assert_string_equal(seen.error, error.message);
    assert_string_equal(error.message, "engine 0 of 2: rank 1 was ended by signal 9 (Killed)");
    nvllm_engine_destroy(engine);
    assert_no_children();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_and_order_as_one_engine),
        cmocka_unit_test(test_two_engines_of_two_processes),
        cmocka_unit_test(test_requests_follow_their_prefix),
        cmocka_unit_test(test_statistics_are_sums),
        cmocka_unit_test(test_the_context_is_that_of_one_engine),
        cmocka_unit_test(test_waiting_for_the_program_is_no_output),
        cmocka_unit_test(test_events_come_one_at_a_time_inside_calls),
        cmocka_unit_test(test_requests_of_any_engine_can_be_aborted),
        cmocka_unit_test(test_waits_end),
        cmocka_unit_test(test_draining_engines_take_no_requests),
        cmocka_unit_test(test_engines_share_the_bounds),
        cmocka_unit_test(test_engines_that_cannot_be_made),
        cmocka_unit_test(test_an_interrupt_ends_the_loads),
        cmocka_unit_test(test_steps_of_several_engines_are_not_observed),
        cmocka_unit_test(test_one_lost_engine_ends_all),
        cmocka_unit_test(test_a_step_reports_the_loss_that_ended_the_last_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
