/* target_itl through the API: prompts beside decodes are divided, prompts alone are not, no token
 * changes, and what the option refuses. The lengths of parts are tested without a clock in
 * test_pacer.c: here the only one that no time decides is the first, because the steps before it
 * had few tokens. */
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

enum { SHORT = 5, LONG = 180, NUM_TOKENS = 40, FIRST_PART = 64 };

struct watch {
    int32_t tokens[2][NUM_TOKENS]; // of the short prompt and the long one
    size_t num_tokens[2];
    uint32_t parts[LONG]; // [num_parts] of the long prompt
    uint32_t num_parts, num_alone; // of these, without decodes beside them
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
        watch->num_alone += trace->num_decode_tokens == 0;
    }
}

static void add(struct nvllm_engine *engine, struct watch *watch, size_t num_prompt) {
    int32_t ids[LONG];
    for (size_t i = 0; i < num_prompt; i++) ids[i] = 300 + (int32_t)((7 * i + num_prompt) % 200);
    struct nvllm_sampling_params params = greedy_params(NUM_TOKENS);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, num_prompt, &params);
    struct nvllm_error error = {0};
    request.on_event = take_event;
    request.user_data = watch;
    if (nvllm_engine_add_request(engine, &request, NULL, &error)) fail_msg("%s", error.message);
}

// The long prompt comes when the short one has some tokens, or first and alone.
static struct watch run(const char *target_itl, const char *async, bool is_alone) {
    struct nvllm_engine_options options = small_options();
    options.target_itl = target_itl;
    options.async_scheduling = async;
    struct nvllm_engine *engine = open_engine(&options);
    struct watch watch = {0};
    struct nvllm_error error = {0};
    if (nvllm_engine_observe(engine, take_step, &watch, &error)) fail_msg("%s", error.message);
    add(engine, &watch, is_alone ? LONG : SHORT);
    while (watch.num_tokens[is_alone] < 3) {
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
    add(engine, &watch, is_alone ? SHORT : LONG);
    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
    nvllm_engine_destroy(engine);
    assert_int_equal(watch.num_tokens[0], NUM_TOKENS);
    assert_int_equal(watch.num_tokens[1], NUM_TOKENS);
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
    static const char *const values[] = {"fast", "5ms", "-1", "1.", ".5", "1e3", "", "1.5.2"};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        expect_refusal(values[i], "mixed", "want auto, off or MS");
    }
    expect_refusal("0", "mixed", "milliseconds above 0, at most 60000");
    expect_refusal("60001", "mixed", "milliseconds above 0, at most 60000");
    expect_refusal("40", "prefill-first", "schedule is prefill-first: only mixed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_beside_decodes_are_divided),
        cmocka_unit_test(test_a_prompt_alone_stays_whole),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("target_itl", tests, NULL, NULL);
}
