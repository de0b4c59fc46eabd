// Forced calls in a running engine: the same tokens whether steps overlap or not, alone or among
// other requests, and each output for itself.
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "nanovllm.h"
#include "support/cmocka_all.h"

enum { NUM_OUTPUTS = 3, NUM_PLAIN = 3 };

static const char *const prefixes[] = {"<tool_call>\n{\"name\": \"add\", \"arguments\":",
                                       "<tool_call>\n{\"name\": \"get_time\", \"arguments\":"};

static struct nvllm_engine *open_engine(const char *async_scheduling) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    struct nvllm_engine *engine = NULL;
    options.model = "models/tiny-qwen3";
    options.device = "cpu";
    options.threads = 1;
    options.num_kvcache_blocks = 64;
    options.max_model_len = 512;
    options.async_scheduling = async_scheduling;
    assert_int_equal(nvllm_engine_create(&engine, &options, NULL), NVLLM_OK);
    return engine;
}

// The forced request first, and plain ones that run beside it.
static struct nvllm_result *run(const char *async_scheduling, size_t num_plain) {
    struct nvllm_engine *engine = open_engine(async_scheduling);
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.temperature = 1;
    params.seed = 7;
    params.n = NUM_OUTPUTS;
    params.max_tokens = 48;
    params.skip_special_tokens = 0;
    struct nvllm_request requests[1 + NUM_PLAIN];
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        requests[i] = (struct nvllm_request)NVLLM_REQUEST_INIT;
        requests[i].prompt = "What is 37 + 58?</think>\n\n";
        requests[i].prompt_len = strlen(requests[i].prompt);
        requests[i].sampling = &params;
    }
    requests[0].call_prefixes = prefixes;
    requests[0].num_call_prefixes = ARRAY_LEN(prefixes);
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(engine, requests, 1 + num_plain, &results, NULL, NULL),
                     NVLLM_OK);
    nvllm_engine_destroy(engine);
    return results;
}

static bool begins_with_prefix(const char *text) {
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0) return true;
    }
    return false;
}

static void test_all_ways_are_the_same(void **state) {
    (void)state;
    struct nvllm_result *alone = run("off", 0);
    const struct {
        const char *async_scheduling;
        size_t num_plain;
    } ways[] = {{"on", 0}, {"off", NUM_PLAIN}, {"on", NUM_PLAIN}};
    for (const struct nvllm_result *one = alone; one; one = one->next) {
        assert_true(begins_with_prefix(one->text));
    }
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        struct nvllm_result *results = run(ways[w].async_scheduling, ways[w].num_plain);
        const struct nvllm_result *got = results;
        for (const struct nvllm_result *want = alone; want; want = want->next, got = got->next) {
            assert_int_equal(got->num_tokens, want->num_tokens);
            assert_memory_equal(got->token_ids, want->token_ids,
                                want->num_tokens * sizeof *want->token_ids);
            assert_int_equal(got->finish_reason, want->finish_reason);
        }
        nvllm_results_free(results, 1 + ways[w].num_plain);
    }
    nvllm_results_free(alone, 1);
}

static void test_refused(void **state) {
    (void)state;
    struct nvllm_engine *engine = open_engine("off");
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    struct nvllm_error error = {0};
    const char *const empty[] = {""};
    uint64_t id;
    request.prompt = "a";
    request.prompt_len = 1;
    request.call_prefixes = empty;
    request.num_call_prefixes = 1;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_ERR_INVALID);
    const char *const none[] = {NULL};
    request.call_prefixes = none;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_ERR_INVALID);
    request.call_prefixes = NULL;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, &error), NVLLM_ERR_INVALID);
    assert_string_equal(error.message, "call_prefixes is NULL with 1 entries");
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ways_are_the_same),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("forced_requests", tests, NULL, NULL);
}
