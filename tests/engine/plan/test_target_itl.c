/* target_itl through the API: prompts beside decodes are divided, prompts alone are not, no token
 * changes, and what the option refuses. The lengths of parts are tested without a clock in
 * test_pacer.c. Here the clock is not real: a step takes what a formula says of its tokens. */
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/os/clock.h"
#include "engine/executor/executor.h"
#include "engine/plan/target_itl.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

enum { SHORT = 5, LONG = 180, NUM_TOKENS = 16, FIRST_PART = 64 };

static const double empty_step = 1e-3, per_token = 20e-6;
static _Atomic double now_seconds = 1000;

double __wrap_clock_seconds(void);
double __wrap_clock_seconds(void) {
    return now_seconds;
}

// A CPU: it computes where a step is launched.
enum status __real_executor_launch(struct executor *executor, const struct batch *batch,
                                   uint32_t slot, struct model_runner_times *times,
                                   struct err *err);
enum status __wrap_executor_launch(struct executor *executor, const struct batch *batch,
                                   uint32_t slot, struct model_runner_times *times,
                                   struct err *err);
enum status __wrap_executor_launch(struct executor *executor, const struct batch *batch,
                                   uint32_t slot, struct model_runner_times *times,
                                   struct err *err) {
    now_seconds = now_seconds + empty_step + per_token * batch->header->num_tokens;
    return __real_executor_launch(executor, batch, slot, times, err);
}

struct watch {
    int32_t tokens[2][NUM_TOKENS]; // of the short prompt and the long one
    size_t num_tokens[2];
    uint32_t parts[LONG]; // [num_parts] of the long prompt
    uint32_t num_parts, num_alone; // of these, without decodes beside them
    uint32_t longest; // part with decodes beside it
};

static void take_event(const struct nvllm_event *event, void *user_data) {
    struct watch *watch = user_data;
    size_t which = event->num_prompt_tokens == LONG;
    for (size_t i = 0; i < event->num_tokens; i++) {
        watch->tokens[which][watch->num_tokens[which]++] = event->token_ids[i];
    }
}

static void take_step(const struct nvllm_step_trace *trace, void *user_data) {
    struct watch *watch = user_data;
    for (size_t i = 0; i < trace->num_items; i++) {
        const struct nvllm_step_item *item = &trace->items[i];
        if (!item->is_prefill || item->num_prompt_tokens != LONG) continue;
        watch->parts[watch->num_parts++] = item->num_tokens;
        bool is_beside = trace->num_decode_tokens > 0;
        watch->num_alone += !is_beside;
        if (is_beside && item->num_tokens > watch->longest) watch->longest = item->num_tokens;
    }
}

static void add(struct nvllm_engine *engine, struct watch *watch, size_t num_prompt,
                size_t num_tokens) {
    int32_t ids[LONG];
    for (size_t i = 0; i < num_prompt; i++) ids[i] = 300 + (int32_t)((7 * i + num_prompt) % 200);
    struct nvllm_sampling_params params = greedy_params((int32_t)num_tokens);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, num_prompt, &params);
    struct nvllm_error error = {0};
    request.on_event = take_event;
    request.user_data = watch;
    if (nvllm_engine_add_request(engine, &request, NULL, &error)) fail_msg("%s", error.message);
}

static struct nvllm_engine *open_paced(const char *target_itl, const char *async,
                                       struct watch *watch) {
    struct nvllm_engine_options options = small_options();
    options.target_itl = target_itl;
    options.async_scheduling = async;
    options.enable_prefix_caching = 0;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_error error = {0};
    if (nvllm_engine_observe(engine, take_step, watch, &error)) fail_msg("%s", error.message);
    return engine;
}

// The long prompt comes when the short one has some tokens, or first and alone.
static void run_pair(struct nvllm_engine *engine, struct watch *watch, bool is_alone,
                     size_t num_tokens) {
    struct nvllm_error error = {0};
    memset(watch->num_tokens, 0, sizeof watch->num_tokens);
    watch->num_parts = 0;
    add(engine, watch, is_alone ? LONG : SHORT, num_tokens);
    while (watch->num_tokens[is_alone] < 3) {
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
    add(engine, watch, is_alone ? SHORT : LONG, num_tokens);
    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
    assert_int_equal(watch->num_tokens[0], num_tokens);
    assert_int_equal(watch->num_tokens[1], num_tokens);
}

static struct watch run(const char *target_itl, const char *async, bool is_alone) {
    struct watch watch = {0};
    struct nvllm_engine *engine = open_paced(target_itl, async, &watch);
    run_pair(engine, &watch, is_alone, NUM_TOKENS);
    nvllm_engine_destroy(engine);
    return watch;
}

static void test_prompts_beside_decodes_are_divided(void **state) {
    (void)state;
    static const char *const ways[] = {"0.001", "auto"}, *const asyncs[] = {"off", "on"};
    struct watch whole = run("off", "off", false);
    assert_int_equal(whole.num_parts, 1);
    for (size_t i = 0; i < 4; i++) {
        struct watch divided = run(ways[i / 2], asyncs[i % 2], false);
        uint32_t sum = 0;
        assert_int_equal(divided.parts[0], FIRST_PART);
        for (uint32_t k = 0; k < divided.num_parts; k++) sum += divided.parts[k];
        assert_int_equal(sum, LONG);
        assert_memory_equal(divided.tokens, whole.tokens, sizeof whole.tokens);
    }
}

static void test_a_prompt_alone_stays_whole(void **state) {
    (void)state;
    struct watch watch = run("0.001", "off", true);
    assert_int_equal(watch.num_parts, 1);
    assert_int_equal(watch.num_alone, 1);
}

// 3 ms are 100 tokens besides what an empty step takes.
static void test_parts_fit_into_the_target(void **state) {
    (void)state;
    static const char *const asyncs[] = {"off", "on"};
    for (size_t i = 0; i < ARRAY_LEN(asyncs); i++) {
        struct watch watch = {0};
        struct nvllm_engine *engine = open_paced("3", asyncs[i], &watch);
        for (int pair = 0; pair < 4; pair++) {
            run_pair(engine, &watch, false, 8);
            if (pair == 0) watch.longest = 0; // it taught what tokens cost
        }
        nvllm_engine_destroy(engine);
        assert_in_range(watch.longest, FIRST_PART + 1, 99);
    }
}

static void count_line(const char *sentence, void *user_data) {
    *(int *)user_data += strstr(sentence, "tokens come later than that") != NULL;
}

// Beside a decode the least part of 64 tokens takes 2.3 ms.
static void test_a_target_that_is_missed_is_told_once(void **state) {
    (void)state;
    static const char *const targets[] = {"2", "4"};
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        int num_lines = 0;
        log_set_writer(&(struct log_writer){count_line, &num_lines});
        struct watch watch = {0};
        struct nvllm_engine *engine = open_paced(targets[i], "off", &watch);
        for (int pair = 0; pair < 6; pair++) run_pair(engine, &watch, false, 8);
        nvllm_engine_destroy(engine);
        log_set_writer(NULL);
        assert_int_equal(num_lines, i == 0);
    }
}

static void expect_refusal(const char *target_itl, const char *schedule, const char *sentence) {
    struct nvllm_engine_options options = small_options();
    options.target_itl = target_itl;
    options.schedule = schedule;
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_not_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_OK);
    if (!strstr(error.message, sentence)) fail_msg("%s: %s", target_itl, error.message);
}

static void test_what_is_refused(void **state) {
    (void)state;
    static const char *const values[] = {"fast", "5ms", "-1",    "1.", ".5",      "1e3",
                                         "",     "nan", "1.5.2", "0",  "60000.1", "0.000"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        expect_refusal(values[i], "mixed", "want auto, off or milliseconds above 0, at most 60000");
    }
    expect_refusal("40", "prefill-first", "schedule is prefill-first: only mixed");
}

static void test_what_auto_aims_at(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct pace_options pace;
    options.target_itl = "auto";
    assert_int_equal(target_itl_read(&pace, &options, NULL), OK);
    assert_int_equal(pace.pace, PACE_AUTO);
    assert_true(pace.target_seconds > 0.039 && pace.target_seconds < 0.041);
    options.schedule = "prefill-first";
    assert_int_equal(target_itl_read(&pace, &options, NULL), OK);
    assert_int_equal(pace.pace, PACE_OFF);
}

// It is a server's default, so a schedule that has no parts must not refuse it.
static void test_auto_is_off_where_there_are_no_parts(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.target_itl = "auto";
    options.schedule = "prefill-first";
    options.enable_prefix_caching = 0;
    struct watch watch = {0};
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_error error = {0};
    if (nvllm_engine_observe(engine, take_step, &watch, &error)) fail_msg("%s", error.message);
    run_pair(engine, &watch, false, NUM_TOKENS);
    nvllm_engine_destroy(engine);
    assert_int_equal(watch.num_parts, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_beside_decodes_are_divided),
        cmocka_unit_test(test_a_prompt_alone_stays_whole),
        cmocka_unit_test(test_parts_fit_into_the_target),
        cmocka_unit_test(test_a_target_that_is_missed_is_told_once),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_what_auto_aims_at),
        cmocka_unit_test(test_auto_is_off_where_there_are_no_parts),
    };
    return cmocka_run_group_tests_name("target_itl", tests, NULL, NULL);
}
