/* Memory of the whole engine: the step loop never allocates; every allocation of load, add, step
 * and generate may fail without a crash or a leak; a long life with aborts leaves nothing
 * behind. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/alloc_hook.h"
#include "support/engine_fixture.h"

static struct nvllm_sampling_params busy_params(uint32_t i) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.temperature = i % 3 ? 0.8f : 0.0f;
    params.repetition_penalty = i % 2 ? 1.1f : 1.0f;
    params.presence_penalty = i % 4 ? 0.0f : 0.5f;
    params.frequency_penalty = i % 3 ? 0.0f : 0.2f;
    params.logprobs = i % 5 ? -1 : 4;
    params.ignore_eos = 1;
    params.max_tokens = (int32_t)(5 + i % 40);
    params.min_tokens = (int32_t)(i % 5);
    params.priority = (int32_t)(i % 3);
    params.n = i % 7 == 3 ? 3 : 1;
    params.prompt_logprobs = i % 6 == 5 ? 4 : i % 6 == 4 ? NVLLM_LOGPROBS_ALL : -1;
    params.echo = i % 8 == 2;
    static const char *const words[] = {"is", "95", "bad words"};
    params.bad_words = words;
    params.num_bad_words = i % 4;
    static const int32_t allowed[] = {300, 301, 302, 303, 13};
    params.allowed_token_ids = allowed;
    params.num_allowed_token_ids = i % 6 ? 0 : 5;
    return params;
}

static void count_events(const struct nvllm_event *event, void *user_data) {
    (void)event;
    ++*(uint64_t *)user_data;
}

static uint64_t add(struct nvllm_engine *engine, uint32_t i, uint64_t *events) {
    int32_t ids[120];
    for (uint32_t k = 0; k < 120; k++) ids[k] = (int32_t)((k < 40 ? k : k * (i + 3)) % 4089);
    static const char *const stops[] = {"never", "the end of it"};
    struct nvllm_sampling_params params = busy_params(i);
    params.stop = stops;
    params.num_stop = 2;
    struct nvllm_request request = ids_request(ids, 10 + i * 7 % 110, &params);
    request.on_event = count_events;
    request.user_data = events;
    uint64_t id = 0;
    struct nvllm_error error = {0};
    if (nvllm_engine_add_request(engine, &request, &id, &error)) fail_msg("%s", error.message);
    return id;
}

static void count_steps(const struct nvllm_step_trace *trace, void *user_data) {
    if (trace->step) ++*(uint64_t *)user_data;
}

// Penalties among them: their counts begin, are rebuilt after preemption and kept while steps
// overlap.
static void check_step_loop(const char *async_scheduling, bool is_observed) {
    struct nvllm_engine_options options = small_options();
    options.async_scheduling = async_scheduling;
    options.num_kvcache_blocks = 16; // preemptions too
    options.threads = 2;
    struct nvllm_engine *engine = open_engine(&options);
    uint64_t events = 0, steps = 0;
    for (uint32_t i = 0; i < 40; i++) add(engine, i, &events);
    if (is_observed) {
        assert_int_equal(nvllm_engine_observe(engine, count_steps, &steps, NULL), NVLLM_OK);
    }
    alloc_hook_reset();
    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, NULL)) fail();
    }
    size_t count = alloc_hook_count();
    struct nvllm_stats stats;
    stats.struct_size = sizeof stats;
    nvllm_engine_stats(engine, &stats);
    nvllm_engine_destroy(engine);
    assert_true(events > 800);
    assert_true(stats.num_preemptions > 0);
    assert_int_equal(steps, is_observed ? stats.num_steps : 0);
    assert_int_equal(count, 0);
}

static size_t allocated_bytes(void) {
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

// The largest max_tokens with a penalty reserves what fits in the context, not in the vocabulary;
// stop strings take six times their length.
static void test_memory_of_a_request_is_bounded(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options(); // max_model_len 256
    struct nvllm_engine *engine = open_engine(&options);
    static char text[16][1025];
    const char *stops[16];
    for (size_t i = 0; i < 16; i++) stops[i] = memset(text[i], 'a' + (int)i, 1024);
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.max_tokens = INT32_MAX;
    params.repetition_penalty = 1.1f;
    params.stop = stops;
    const int32_t ids[] = {837, 843};
    struct nvllm_request request = ids_request(ids, 2, &params);
    uint64_t id;
    params.num_stop = 0;
    for (size_t num_stop = 0; num_stop <= 16; num_stop += 16) {
        params.num_stop = num_stop;
        assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
        nvllm_engine_abort(engine, id); // the engine's own tables have grown
        size_t before = allocated_bytes();
        assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
        size_t taken = allocated_bytes() - before;
        size_t bound = 4096 + 256 * (4 + 12 / 16 + 16 + 43) + num_stop * 6 * 1024;
        if (taken > bound)
            fail_msg("%zu stop strings: %zu bytes, want %zu", num_stop, taken, bound);
        nvllm_engine_abort(engine, id);
    }
    nvllm_engine_destroy(engine);
}

static void test_step_loop_does_not_allocate(void **state) {
    (void)state;
    for (int is_observed = 0; is_observed < 2; is_observed++) {
        check_step_loop("off", is_observed);
        check_step_loop("on", is_observed);
    }
}

// Anonymous memory of the process, counted page by page, without what malloc keeps of freed memory.
// The number in statm is an estimate, and has pages of files, which the kernel drops and brings
// back.
static long resident_kib(void) {
    long kib = -1;
    char line[256];
    malloc_trim(0);
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(file);
    while (kib < 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, "Anonymous:", 10) == 0) kib = strtol(line + 10, NULL, 10);
    }
    fclose(file);
    assert_true(kib > 0);
    return kib;
}

// Once a day the long sweeps are finer and the long life is longer.
static bool runs_all(void) {
    return getenv("NANOVLLM_TEST_ALL");
}

// 100 requests, a third of them aborted somewhere on the way.
static void churn(struct nvllm_engine *engine, uint64_t *events) {
    uint64_t ids[100];
    for (uint32_t i = 0; i < 100; i++) {
        ids[i] = add(engine, i, events);
        if (i % 3 == 0) nvllm_engine_abort(engine, ids[i / 2]);
        if (nvllm_engine_step(engine, NULL)) fail();
    }
    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, NULL)) fail();
    }
}

// The hook sees each lost block in one round. The resident memory is for what the hook does not
// see.
static void test_requests_with_aborts_leave_nothing_behind(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    // The kernel may make a huge page of small ones at any time: 2 MiB more that nobody asked for.
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    struct nvllm_engine *engine = open_engine(&options);
    uint64_t events = 0;
    churn(engine, &events); // buffers reach their size
    long live = alloc_hook_live(), resident = resident_kib();
    int rounds = runs_all() ? 10 : 3;
    for (int round = 0; round < rounds; round++) churn(engine, &events);
    struct nvllm_stats stats;
    stats.struct_size = sizeof stats;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.num_requests_finished, (rounds + 1) * (100 + 2 * 14));
    assert_int_equal(stats.num_kv_blocks_used, 0);
    assert_int_equal(stats.num_running + stats.num_waiting, 0);
    assert_int_equal(alloc_hook_live(), live);
    long grown = resident_kib() - resident;
    if (grown > 256) fail_msg("resident memory grew by %ld KiB", grown);
    nvllm_engine_destroy(engine);
}

static enum status to_err(const struct nvllm_error *error, enum nvllm_status status,
                          struct err *err) {
    if (!status) return OK;
    return err_set(err, (enum status)status, "%s", error->message);
}

// Create an engine, generate a little with everything switched on, destroy it.
static enum status load_and_generate(void *context, struct err *err) {
    (void)context;
    struct nvllm_engine_options options = small_options();
    options.threads = 2;
    struct nvllm_error error = {0};
    struct nvllm_engine *engine = NULL;
    enum nvllm_status status = nvllm_engine_create(&engine, &options, &error);
    if (status) return to_err(&error, status, err);
    static const char *const stops[] = {"xyz"};
    struct nvllm_sampling_params params = busy_params(42); // of each list some
    params.repetition_penalty = 1.2f;
    params.max_tokens = 3;
    params.min_tokens = 1;
    params.n = 2;
    params.prompt_logprobs = 1;
    params.echo = 1;
    params.stop = stops;
    params.num_stop = 1;
    static const char chat[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";
    struct nvllm_sampling_params shorter = greedy_params(2);
    struct nvllm_request requests[3] = {text_request(QUESTION, &params),
                                        text_request("hi", &shorter), NVLLM_REQUEST_INIT};
    requests[2].chat = chat;
    requests[2].chat_len = sizeof chat - 1;
    requests[2].sampling = &shorter;
    struct nvllm_result *results = NULL;
    status = nvllm_engine_generate(engine, requests, 3, &results, NULL, &error);
    nvllm_results_free(results, 3);
    nvllm_engine_destroy(engine);
    return to_err(&error, status, err);
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    // Loading the tokenizer and config makes tens of thousands of small allocations; each module
    // has its own full sweep. Here the distance grows, and the later, different ones are all
    // reached.
    const struct alloc_sweep sweep = {
        .work = load_and_generate, .stride = runs_all() ? 200 : 50, .may_survive = true};
    size_t count = alloc_sweep_run(&sweep);
    print_message("%zu allocations\n", count);
    assert_true(count > 100);
}

static enum status begin_and_end_observing(void *context, struct err *err) {
    struct nvllm_error error = {0};
    uint64_t steps = 0;
    enum nvllm_status status = nvllm_engine_observe(context, count_steps, &steps, &error);
    if (!status) status = nvllm_engine_observe(context, NULL, NULL, &error);
    return to_err(&error, status, err);
}

// Where another observer cannot be had, the one before goes on.
static void test_observing_when_allocations_fail(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    const struct alloc_sweep sweep = {.work = begin_and_end_observing, .context = engine};
    assert_int_equal(alloc_sweep_run(&sweep), 6);

    uint64_t events = 0, steps = 0, other = 0;
    assert_int_equal(nvllm_engine_observe(engine, count_steps, &steps, NULL), NVLLM_OK);
    for (size_t n = 1; n <= 4; n++) {
        alloc_hook_fail_at(n, false);
        assert_int_equal(nvllm_engine_observe(engine, count_steps, &other, NULL), NVLLM_ERR_NOMEM);
        alloc_hook_disarm();
    }
    add(engine, 0, &events);
    while (nvllm_engine_has_unfinished(engine)) {
        assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    }
    assert_true(steps > 0 && other == 0);
    nvllm_engine_destroy(engine);
}

// What a model is comes out whole or not at all.
static enum status inspect(void *context, struct err *err) {
    char **first = context;
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "tests/reference/data/qwen3-moe-mixed";
    struct nvllm_error error = {0};
    char *text = NULL;
    enum nvllm_status status = nvllm_inspect(&options, &text, &error);
    if (!status && *first) {
        // All but the plan between them, for free memory comes and goes.
        static const char plan[] = "\"plan\"", after[] = "\"num_active_parameters\"";
        size_t before = (size_t)(strstr(*first, plan) - *first);
        assert_true(strlen(text) > before);
        assert_memory_equal(text, *first, before);
        assert_non_null(strstr(text, after));
        assert_string_equal(strstr(text, after), strstr(*first, after));
    }
    if (!status && !*first) {
        *first = text;
        return OK;
    }
    nvllm_free(text);
    return to_err(&error, status, err);
}

static void test_inspect_when_allocations_fail(void **state) {
    (void)state;
    char *first = NULL;
    struct err err = {0};
    assert_int_equal(inspect(&first, &err), OK);
    const struct alloc_sweep sweep = {.work = inspect, .context = &first, .may_survive = true};
    assert_true(alloc_sweep_run(&sweep) > 50);
    nvllm_free(first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_loop_does_not_allocate),
        cmocka_unit_test(test_memory_of_a_request_is_bounded),
        cmocka_unit_test(test_requests_with_aborts_leave_nothing_behind),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_observing_when_allocations_fail),
        cmocka_unit_test(test_inspect_when_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
