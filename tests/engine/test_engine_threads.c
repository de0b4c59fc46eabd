/* An engine driven by one thread and used by others, on the bundled model. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/engine_fixture.h"

enum { SUBMITTERS = 8, REQUESTS_EACH = 12, OUTPUTS_MAX = 3 };

// ---- one thread's rules ----

static void take_end(const struct nvllm_event *event, void *user_data) {
    if (event->finish_reason) *(enum nvllm_finish_reason *)user_data = event->finish_reason;
}

static enum nvllm_status add(struct nvllm_engine *engine, const char *prompt, int32_t max_tokens,
                             enum nvllm_finish_reason *end, struct nvllm_error *error) {
    struct nvllm_sampling_params params = greedy_params(max_tokens);
    params.ignore_eos = 1;
    struct nvllm_request request = text_request(prompt, &params);
    request.on_event = take_end;
    request.user_data = end;
    uint64_t id;
    return nvllm_engine_add_request(engine, &request, &id, error);
}

static void run(struct nvllm_engine *engine) {
    struct nvllm_error error = {0};
    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
}

static void test_more_than_may_wait_are_refused_until_a_step(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_waiting = 2;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_error error = {0};
    enum nvllm_finish_reason ends[4] = {0};
    assert_int_equal(add(engine, "a", 2, &ends[0], &error), NVLLM_OK);
    assert_int_equal(add(engine, "b", 2, &ends[1], &error), NVLLM_OK);
    assert_int_equal(add(engine, "c", 2, &ends[2], &error), NVLLM_ERR_CAPACITY);
    assert_non_null(strstr(error.message, "max_num_waiting"));
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    assert_int_equal(add(engine, "c", 2, &ends[2], &error), NVLLM_OK);
    run(engine);
    for (int i = 0; i < 3; i++) assert_int_equal(ends[i], NVLLM_FINISH_LENGTH);
    nvllm_engine_destroy(engine);
}

static void check_in_first_step(const struct nvllm_event *event, void *user_data) {
    struct nvllm_engine *engine = user_data;
    if (event->num_generated_tokens != 1) return;
    assert_int_equal(nvllm_engine_check_open(engine, NULL), NVLLM_OK);
}

// A request waits until its first step begins, not until that ends.
static void test_whether_there_is_room_is_known_without_a_request(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_waiting = 1;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_check_open(engine, &error), NVLLM_OK);
    struct nvllm_sampling_params params = greedy_params(2);
    params.ignore_eos = 1;
    struct nvllm_request request = text_request("a", &params);
    request.on_event = check_in_first_step;
    request.user_data = engine;
    assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, &error), NVLLM_OK);
    assert_int_equal(nvllm_engine_check_open(engine, &error), NVLLM_ERR_CAPACITY);
    assert_non_null(strstr(error.message, "max_num_waiting"));
    run(engine);
    nvllm_engine_drain(engine);
    assert_int_equal(nvllm_engine_check_open(engine, &error), NVLLM_ERR_CAPACITY);
    nvllm_engine_destroy(engine);
}

static void test_an_aborted_request_no_longer_waits(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_waiting = 1;
    struct nvllm_engine *engine = open_engine(&options);
    enum nvllm_finish_reason end = NVLLM_FINISH_NONE;
    assert_int_equal(add(engine, "a", 2, &end, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(engine, 1), 1);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK);
    assert_int_equal(end, NVLLM_FINISH_ABORT);
    assert_int_equal(add(engine, "a", 2, &end, NULL), NVLLM_OK);
    nvllm_engine_destroy(engine);
}

static void test_generate_holds_back_what_may_not_wait(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_seqs = 2;
    options.max_num_waiting = 1;
    options.max_waiting_tokens = 4;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(60);
    struct nvllm_request requests[10];
    for (int i = 0; i < 10; i++) requests[i] = text_request(QUESTION, &params);
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(engine, requests, 10, &results, NULL, NULL), NVLLM_OK);
    for (int i = 0; i < 10; i++) assert_string_equal(results[i].text, "37 + 58 = 95.");
    nvllm_results_free(results, 10);
    nvllm_engine_destroy(engine);
}

static void test_a_draining_engine_finishes_what_it_has(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    enum nvllm_finish_reason end = NVLLM_FINISH_NONE;
    struct nvllm_error error = {0};
    assert_int_equal(add(engine, "a", 5, &end, &error), NVLLM_OK);
    nvllm_engine_drain(engine);
    assert_int_equal(add(engine, "b", 5, &end, &error), NVLLM_ERR_CAPACITY);
    assert_non_null(strstr(error.message, "draining"));
    run(engine);
    assert_int_equal(end, NVLLM_FINISH_LENGTH);
    // Nothing ends that could make room: generate does not wait for it.
    struct nvllm_request request = text_request("b", NULL);
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(engine, &request, 1, &results, NULL, NULL), NVLLM_OK);
    assert_int_equal(results->finish_reason, NVLLM_FINISH_ERROR);
    assert_int_equal(results->error.status, NVLLM_ERR_CAPACITY);
    nvllm_results_free(results, 1);
    nvllm_engine_destroy(engine);
}

// A refused request takes no number, so that the others' random numbers do not change.
static void test_a_refused_request_changes_no_seed(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_sampling_params params = greedy_params(20);
    params.temperature = 1;
    params.ignore_eos = 1;
    const struct nvllm_request good = text_request("Once", &params);
    int32_t ids[2][20];
    for (int i = 0; i < 2; i++) {
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_request bad = text_request("", NULL);
        if (i) expect_refused(engine, &bad, "empty");
        struct nvllm_result *result = generate_one(engine, &good);
        memcpy(ids[i], result->token_ids, sizeof ids[i]);
        nvllm_results_free(result, 1);
        nvllm_engine_destroy(engine);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
}

// The engine's seed and the request's number choose the random numbers of one without a seed.
static void test_equal_requests_without_seeds_differ(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_sampling_params params = greedy_params(20);
    params.temperature = 1;
    params.ignore_eos = 1;
    const struct nvllm_request request = text_request("Once", &params);
    int32_t ids[3][20];
    for (int i = 0; i < 2; i++) {
        options.seed = i;
        struct nvllm_engine *engine = open_engine(&options);
        for (int k = 0; k < 2 - i; k++) {
            struct nvllm_result *result = generate_one(engine, &request);
            memcpy(ids[2 * i + k], result->token_ids, sizeof ids[0]);
            nvllm_results_free(result, 1);
        }
        nvllm_engine_destroy(engine);
    }
    assert_memory_not_equal(ids[0], ids[1], sizeof ids[0]); // another number
    assert_memory_not_equal(ids[0], ids[2], sizeof ids[0]); // another seed
}

static void test_wait_returns_after_the_events_of_aborts(void **state) {
    enum nvllm_finish_reason end = NVLLM_FINISH_NONE;
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(*state, &stats);
    assert_int_equal(add(*state, "a", 2, &end, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(*state, stats.num_requests_added + 1), 1);
    assert_int_equal(nvllm_engine_wait(*state, -1, NULL), NVLLM_OK); // nothing is unfinished now
    assert_int_equal(end, NVLLM_FINISH_ABORT);
}

// ---- two threads ----

struct rival {
    struct nvllm_engine *engine;
    enum nvllm_status step, wait;
};

static void *drive_too(void *arg) {
    struct rival *rival = arg;
    rival->step = nvllm_engine_step(rival->engine, NULL);
    rival->wait = nvllm_engine_wait(rival->engine, -1, NULL);
    return NULL;
}

static void let_another_drive(const struct nvllm_event *event, void *user_data) {
    if (!event->finish_reason) return;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drive_too, user_data), 0);
    pthread_join(thread, NULL);
}

static void test_a_second_thread_cannot_drive_the_engine(void **state) {
    struct nvllm_sampling_params params = greedy_params(1);
    struct nvllm_request request = text_request(QUESTION, &params);
    struct rival rival = {.engine = *state};
    request.on_event = let_another_drive;
    request.user_data = &rival;
    nvllm_results_free(generate_one(*state, &request), 1);
    assert_int_equal(rival.step, NVLLM_ERR_INVALID);
    assert_int_equal(rival.wait, NVLLM_ERR_INVALID);
}

// ---- many threads ----

struct ticket {
    enum nvllm_finish_reason ends[OUTPUTS_MAX];
    int num_tokens[OUTPUTS_MAX];
    int num_outputs;
    int num_ends, num_last; // of outputs; of the request
    bool was_aborted; // abort said so
};

struct submitter {
    struct nvllm_engine *engine;
    uint32_t random;
    struct ticket tickets[REQUESTS_EACH];
    uint64_t ids[REQUESTS_EACH];
    int num_refused;
    pthread_t thread;
};

static uint32_t draw(struct submitter *s, uint32_t below) {
    s->random = s->random * 1664525 + 1013904223;
    return (s->random >> 16) % below;
}

static int num_requests_ended; // the engine's thread's

static void take_ticket(const struct nvllm_event *event, void *user_data) {
    struct ticket *ticket = user_data;
    uint32_t i = event->index;
    assert_true(i < OUTPUTS_MAX);
    assert_int_equal(ticket->ends[i], NVLLM_FINISH_NONE); // nothing after the end
    ticket->num_tokens[i] += (int)event->num_tokens;
    assert_int_equal(event->num_generated_tokens, ticket->num_tokens[i]);
    ticket->ends[i] = event->finish_reason;
    ticket->num_ends += event->finish_reason != NVLLM_FINISH_NONE;
    ticket->num_last += !event->num_outputs_left;
    num_requests_ended += !event->num_outputs_left;
}

static void check_stats(struct nvllm_engine *engine) {
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.num_requests_added,
                     stats.num_requests_finished + stats.num_running + stats.num_waiting);
    assert_true(stats.num_kv_blocks_used <= stats.num_kv_blocks_peak);
    assert_true((stats.num_kv_blocks_used > 0) == (stats.num_running > 0));
}

static void *submit_and_abort(void *arg) {
    struct submitter *s = arg;
    for (int i = 0; i < REQUESTS_EACH;) {
        struct nvllm_sampling_params params = greedy_params((int32_t)(1 + draw(s, 12)));
        params.ignore_eos = 1;
        params.n = (int32_t)(1 + draw(s, OUTPUTS_MAX));
        s->tickets[i].num_outputs = params.n;
        struct nvllm_request request = text_request(QUESTION, &params);
        request.prompt_len = 1 + draw(s, (uint32_t)request.prompt_len);
        request.on_event = take_ticket;
        request.user_data = &s->tickets[i];
        struct nvllm_error error = {0};
        enum nvllm_status status =
            nvllm_engine_add_request(s->engine, &request, &s->ids[i], &error);
        assert_true(status == NVLLM_OK || status == NVLLM_ERR_CAPACITY);
        if (!status) {
            i++;
        } else if (++s->num_refused % 8 == 0) {
            nvllm_engine_wake(s->engine);
        }
        check_stats(s->engine);
        uint32_t k = draw(s, REQUESTS_EACH);
        if (k >= (uint32_t)i || draw(s, 3)) continue;
        if (nvllm_engine_abort(s->engine, s->ids[k])) s->tickets[k].was_aborted = true;
        nvllm_engine_is_unfinished(s->engine, s->ids[k]);
    }
    return NULL;
}

// Outputs that had ended before the abort keep their end.
static void check_ticket(const struct ticket *ticket) {
    int num_aborted = 0;
    for (int i = 0; i < ticket->num_outputs; i++) {
        bool is_aborted = ticket->ends[i] == NVLLM_FINISH_ABORT;
        num_aborted += is_aborted;
        if (!is_aborted) assert_int_equal(ticket->ends[i], NVLLM_FINISH_LENGTH);
    }
    assert_int_equal(ticket->num_ends, ticket->num_outputs);
    assert_int_equal(ticket->num_last, 1);
    assert_int_equal(num_aborted > 0, ticket->was_aborted);
}

static void test_eight_submitters_with_random_aborts(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_waiting = 40;
    options.num_kvcache_blocks = 16; // preemptions too
    static const char *const modes[] = {"off", "on"};
    for (int mode = 0; mode < 2; mode++) {
        options.async_scheduling = modes[mode];
        struct nvllm_engine *engine = open_engine(&options);
        struct submitter *submitters = calloc(SUBMITTERS, sizeof *submitters);
        assert_non_null(submitters);
        for (uint32_t i = 0; i < SUBMITTERS; i++) {
            submitters[i].engine = engine;
            submitters[i].random = i + 1;
            pthread_create(&submitters[i].thread, NULL, submit_and_abort, &submitters[i]);
        }
        num_requests_ended = 0;
        while (num_requests_ended < SUBMITTERS * REQUESTS_EACH) {
            // If the last ones end in this wait, by an abort, it returns.
            assert_int_equal(nvllm_engine_wait(engine, -1, NULL), NVLLM_OK);
            assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
        }
        for (int i = 0; i < SUBMITTERS; i++) {
            struct submitter *s = &submitters[i];
            pthread_join(s->thread, NULL);
            for (int k = 0; k < REQUESTS_EACH; k++) {
                check_ticket(&s->tickets[k]);
            }
        }
        assert_int_equal(nvllm_engine_has_unfinished(engine), 0);
        check_stats(engine);
        nvllm_engine_destroy(engine);
        free(submitters);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_may_wait_are_refused_until_a_step),
        cmocka_unit_test(test_whether_there_is_room_is_known_without_a_request),
        cmocka_unit_test(test_an_aborted_request_no_longer_waits),
        cmocka_unit_test(test_generate_holds_back_what_may_not_wait),
        cmocka_unit_test(test_a_draining_engine_finishes_what_it_has),
        cmocka_unit_test(test_a_refused_request_changes_no_seed),
        cmocka_unit_test(test_equal_requests_without_seeds_differ),
        cmocka_unit_test(test_wait_returns_after_the_events_of_aborts),
        cmocka_unit_test(test_a_second_thread_cannot_drive_the_engine),
        cmocka_unit_test(test_eight_submitters_with_random_aborts),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
