// Forms of answers in a running engine: the same tokens whether steps overlap or not, alone, among
// other requests and after a preemption, and each output for itself.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/form_requests.h"
#include "nanovllm.h"
#include "support/cmocka_all.h"

enum { NUM_OUTPUTS = 3, NUM_PLAIN = 3, MAX_TOKENS = 48, IM_END = 4091 };

static const char form[] = "{\"regex\": \"[a-f]{4} [0-9]{2,6}(yes|no)*x[0-9]{20}\"}";

struct way {
    const char *async_scheduling;
    size_t num_plain;
    int32_t num_blocks;
};

static struct nvllm_engine *open_engine(const struct way *way) {
    return form_engine(way->async_scheduling, NULL, way->num_blocks, 64);
}

static void set_form(struct nvllm_sampling_params *params, const char *text) {
    params->structured_outputs = text;
    params->num_structured_outputs = strlen(text);
}

// The request with a form first, and plain ones that run beside it.
static struct nvllm_result *run(const struct way *way, uint64_t *num_preemptions) {
    struct nvllm_engine *engine = open_engine(way);
    struct nvllm_sampling_params plain = NVLLM_SAMPLING_PARAMS_INIT, formed;
    struct nvllm_stats stats;
    plain.temperature = 1;
    plain.seed = 7;
    plain.max_tokens = MAX_TOKENS;
    plain.ignore_eos = 1;
    formed = plain;
    formed.ignore_eos = 0;
    formed.n = NUM_OUTPUTS;
    formed.priority = 1; // it is preempted first
    set_form(&formed, form);
    struct nvllm_result *results = form_run(engine, &formed, &plain, way->num_plain, &stats);
    *num_preemptions = stats.num_preemptions;
    nvllm_engine_destroy(engine);
    return results;
}

// [a-f]{4} [0-9]{2,6}(yes|no)*x[0-9]{20}
static bool fits(const char *text) {
    size_t at = strspn(text, "abcdef");
    if (at != 4 || text[at++] != ' ') return false;
    size_t digits = strspn(text + at, "0123456789");
    if (digits < 2 || digits > 6) return false;
    for (at += digits; text[at] != 'x'; at += text[at] == 'y' ? 3 : 2) {
        if (strncmp(text + at, "yes", 3) != 0 && strncmp(text + at, "no", 2) != 0) return false;
    }
    return strspn(text + at + 1, "0123456789") == 20 && text[at + 21] == '\0';
}

static void test_all_ways_are_the_same(void **state) {
    (void)state;
    uint64_t num_preemptions;
    const struct way first = {"off", 0, 64};
    struct nvllm_result *alone = run(&first, &num_preemptions);
    for (const struct nvllm_result *one = alone; one; one = one->next) {
        if (one->finish_reason == NVLLM_FINISH_STOP) assert_true(fits(one->text));
    }
    const struct way ways[] = {
        {"on", 0, 64}, {"off", NUM_PLAIN, 64}, {"off", NUM_PLAIN, 5}, {"on", NUM_PLAIN, 5}};
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        struct nvllm_result *results = run(&ways[w], &num_preemptions);
        if (ways[w].num_blocks == 5) assert_true(num_preemptions > 0);
        const struct nvllm_result *got = results;
        for (const struct nvllm_result *want = alone; want; want = want->next, got = got->next) {
            assert_string_equal(got->text, want->text);
            assert_int_equal(got->num_tokens, want->num_tokens);
            assert_int_equal(got->finish_reason, want->finish_reason);
        }
        nvllm_results_free(results, 1 + ways[w].num_plain);
    }
    nvllm_results_free(alone, 1);
}

static void assert_refused(struct nvllm_engine *engine, const char *text, const char *word) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    struct nvllm_error error = {0};
    uint64_t id;
    request.prompt = "a";
    request.prompt_len = 1;
    request.sampling = &params;
    set_form(&params, text);
    assert_int_not_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_OK);
    if (!strstr(error.message, word)) print_error("%s\n", error.message);
    assert_non_null(strstr(error.message, word));
}

static void test_refused(void **state) {
    (void)state;
    struct nvllm_engine *engine = open_engine(&(struct way){"off", 0, 16});
    assert_refused(engine, "{\"regex\": \"(a\"}", "regex");
    assert_refused(engine, "{}", "no constraint");
    assert_refused(engine, "{\"regex\": \"a\", \"choice\": [\"a\"]}", "two constraints");
    assert_refused(engine, "{\"json\": {\"$dynamicRef\": \"#a\"}}", "$dynamicRef");
    assert_refused(engine, "[]", "want an object");
    nvllm_engine_destroy(engine);
}

// More forms than are kept, some of them twice: each answer has its own.
static void test_many_forms(void **state) {
    (void)state;
    struct nvllm_engine *engine = open_engine(&(struct way){"off", 0, 64});
    for (int i = 0; i < 150; i++) {
        char text[64], want[16];
        struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
        struct nvllm_request request = NVLLM_REQUEST_INIT;
        struct nvllm_result *result = NULL;
        snprintf(want, sizeof want, "%d", i / 2);
        snprintf(text, sizeof text, "{\"choice\": [\"%s\"]}", want);
        set_form(&params, text);
        request.prompt = "a";
        request.prompt_len = 1;
        request.sampling = &params;
        assert_int_equal(nvllm_engine_generate(engine, &request, 1, &result, NULL, NULL), NVLLM_OK);
        assert_string_equal(result->text, want);
        nvllm_results_free(result, 1);
    }
    nvllm_engine_destroy(engine);
}

// Runs a request that wishes above all to end with <|im_end|>.
static struct nvllm_result *run_ending(const char *prompt, const char *text, int ignore_eos) {
    static const struct nvllm_logit_bias bias = {.token_id = IM_END, .bias = 50};
    struct nvllm_engine *engine = open_engine(&(struct way){"on", 0, 64});
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    struct nvllm_result *result = NULL;
    params.ignore_eos = ignore_eos;
    params.max_tokens = 12;
    params.logit_bias = &bias;
    params.num_logit_bias = 1;
    set_form(&params, text);
    request.prompt = prompt;
    request.prompt_len = strlen(prompt);
    request.sampling = &params;
    assert_int_equal(nvllm_engine_generate(engine, &request, 1, &result, NULL, NULL), NVLLM_OK);
    nvllm_engine_destroy(engine);
    return result;
}

// Behind a text that is complete only tokens that end it may come, as many as are wanted.
static void test_ignored_ends(void **state) {
    (void)state;
    struct nvllm_result *result = run_ending("a", "{\"regex\": \"[a-c]{3}\"}", 1);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_LENGTH);
    assert_int_equal(result->num_tokens, 12);
    assert_int_equal(strspn(result->text, "abc"), 3);
    assert_int_equal(strlen(result->text), 3);
    nvllm_results_free(result, 1);
}

// Otherwise an answer without its form would be complete.
static void test_reasoning_does_not_end_the_text(void **state) {
    (void)state;
    struct nvllm_result *result = run_ending("a<think>\n", "{\"regex\": \"[a-c]{3}\"}", 0);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_LENGTH);
    assert_int_equal(result->num_tokens, 12);
    nvllm_results_free(result, 1);
}

// The listed tokens are those that the form allows, and together they are certain.
static void check_masked_row(const struct nvllm_logprob *row) {
    double sum = 0;
    bool has_own = false;
    for (int i = 1; i <= NVLLM_LOGPROBS_MAX && row[i].token_id >= 0; i++) {
        sum += exp((double)row[i].logprob);
        has_own |= row[i].token_id == row[0].token_id && row[i].logprob == row[0].logprob;
    }
    assert_true(has_own);
    assert_true(fabs(sum - 1) < 1e-4);
}

static void test_logprobs_are_of_the_allowed_tokens(void **state) {
    (void)state;
    const char *const ways[] = {"off", "on"};
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        struct nvllm_engine *engine = open_engine(&(struct way){ways[w], 0, 64});
        struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
        params.logprobs = NVLLM_LOGPROBS_MAX;
        params.seed = 3;
        set_form(&params, "{\"choice\": [\"yes\", \"no\", \"oak\"]}");
        struct nvllm_result *result = form_run(engine, &params, NULL, 0, NULL);
        assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
        for (size_t i = 0; i < result->num_tokens; i++) {
            check_masked_row(result->logprobs + i * (1 + NVLLM_LOGPROBS_MAX));
        }
        nvllm_results_free(result, 1);
        nvllm_engine_destroy(engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ways_are_the_same),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many_forms),
        cmocka_unit_test(test_ignored_ends),
        cmocka_unit_test(test_reasoning_does_not_end_the_text),
        cmocka_unit_test(test_logprobs_are_of_the_allowed_tokens),
    };
    return cmocka_run_group_tests_name("structured_requests", tests, NULL, NULL);
}
