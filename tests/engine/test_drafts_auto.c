/* `auto` in the engine. It guesses only for models of 0.59 billion parameters or more, so this is
 * the shape of Qwen3-0.6B with random weights. That takes 1.3 GB and some seconds. */
#include <string.h>

#include "base/compiler.h"
#include "base/os/cpu.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

enum { NUM_REQUESTS = 3, NUM_TOKENS = 40 };

struct outcome {
    struct nvllm_result *results; // of NUM_REQUESTS requests
    struct nvllm_stats stats;
};

// Greedy outputs of random weights repeat themselves. The last one, drawn of all tokens, does not.
static struct outcome run(const char *drafts, const char *async_scheduling) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "bench/configs/qwen3-0.6b";
    options.load_format = "dummy";
    options.device = "cpu";
    options.skip_tokenizer_init = 1;
    options.max_model_len = 128;
    options.num_kvcache_blocks = 64;
    options.drafts = drafts;
    options.async_scheduling = async_scheduling;
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[NUM_REQUESTS][24];
    struct nvllm_sampling_params params[NUM_REQUESTS];
    struct nvllm_request requests[NUM_REQUESTS];
    for (int i = 0; i < NUM_REQUESTS; i++) {
        for (int k = 0; k < 24; k++) ids[i][k] = 100 * i + k % 6;
        params[i] = greedy_params(NUM_TOKENS);
        params[i].ignore_eos = 1;
        requests[i] = ids_request(ids[i], ARRAY_LEN(ids[i]), &params[i]);
    }
    params[1].logprobs = 2;
    params[2].temperature = 2;
    params[2].seed = 1;
    struct outcome outcome = {.stats = NVLLM_STATS_INIT};
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, requests, NUM_REQUESTS, &outcome.results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    nvllm_engine_stats(engine, &outcome.stats);
    nvllm_engine_destroy(engine);
    return outcome;
}

static void expect_same(const struct outcome *got, const struct outcome *want) {
    for (int i = 0; i < NUM_REQUESTS; i++) {
        const struct nvllm_result *a = &got->results[i], *b = &want->results[i];
        assert_int_equal(a->num_tokens, b->num_tokens);
        assert_memory_equal(a->token_ids, b->token_ids, b->num_tokens * sizeof(int32_t));
    }
    const struct nvllm_result *a = &got->results[1], *b = &want->results[1];
    assert_memory_equal(a->logprobs, b->logprobs, b->num_tokens * (1 + 2) * sizeof *b->logprobs);
}

// No token changes, fewer steps are taken, and as many in each run. With overlapping steps too.
static void test_auto_changes_no_token_and_makes_the_same_steps(void **state) {
    (void)state;
    if (!(cpu_features() & CPU_AVX2)) skip(); // there `auto` guesses nothing
    struct outcome off = run("off", "auto");
    assert_int_equal(off.stats.num_drafts, 0);
    for (int is_async = 0; is_async < 2; is_async++) {
        const char *way = is_async ? "on" : "off";
        struct outcome first = run("auto", way), again = run("auto", way);
        expect_same(&first, &off);
        expect_same(&again, &off);
        assert_true(first.stats.num_accepted_tokens > NUM_TOKENS / 4);
        assert_int_equal(again.stats.num_steps, first.stats.num_steps);
        assert_int_equal(again.stats.num_draft_tokens, first.stats.num_draft_tokens);
        nvllm_results_free(first.results, NUM_REQUESTS);
        nvllm_results_free(again.results, NUM_REQUESTS);
    }
    nvllm_results_free(off.results, NUM_REQUESTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_changes_no_token_and_makes_the_same_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
