/* A backend of the required ops alone (tests/support/plain_backend.c) runs every dense family and
 * whole requests. So the groups that backend.h calls optional really are. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reference/expected.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/mini_engine.h"

static void test_dense_families(void **state) {
    (void)state;
    static const char *const families[] = {"qwen3",   "qwen3-tied-bias", "qwen3-yarn",
                                           "qwen2",   "llama3-rope",     "llama-mha",
                                           "mistral", "llama-bias"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        char folder[128];
        snprintf(folder, sizeof folder, "tests/reference/data/%s", families[f]);
        struct nvllm_engine_options options = mini_options(folder);
        options.device = "cuda"; // the plain backend replaces it
        struct mini_engine engine;
        mini_open(&engine, &options);
        assert_string_equal(engine.plan.backend->name, "plain");
        struct expected_difference off[EXPECTED_LENGTHS];
        expected_run_family(&engine, folder, off);
        mini_close(&engine);
        for (int i = 0; i < EXPECTED_LENGTHS; i++) {
            if (off[i].worst <= 5e-5f * off[i].largest) continue;
            fail_msg("%s, %u tokens: off by %g, largest %g", families[f], off[i].num_tokens,
                     (double)off[i].worst, (double)off[i].largest);
        }
    }
}

enum { NUM_REQUESTS = 4, NUM_TOKENS = 24 };

static struct nvllm_result *generate(const char *device, const char *async_scheduling) {
    static const int32_t prompt[] = {300, 317, 334, 351, 368, 385, 402};
    struct nvllm_engine_options options = small_options();
    options.device = device;
    options.cpu_isa = "scalar";
    options.dtype = "float32";
    options.kv_cache_dtype = "float32";
    options.async_scheduling = async_scheduling;
    options.num_kvcache_blocks = 6; // few, so that sequences are preempted
    struct nvllm_sampling_params params[NUM_REQUESTS];
    struct nvllm_request requests[NUM_REQUESTS];
    for (int i = 0; i < NUM_REQUESTS; i++) {
        params[i] = greedy_params(NUM_TOKENS);
        params[i].ignore_eos = 1;
        if (i == 1) params[i].repetition_penalty = 1.3f, params[i].frequency_penalty = 0.5f;
        if (i == 2) params[i].temperature = 0.8f, params[i].seed = 5, params[i].top_k = 20;
        if (i == 3) params[i].logprobs = params[i].prompt_logprobs = 2;
        requests[i] = ids_request(prompt, (size_t)(4 + i), &params[i]);
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

// The engine downloads the logits and the CPU's sampler draws from them.
static void test_requests_give_the_cpus_results(void **state) {
    (void)state;
    struct nvllm_result *want = generate("cpu", "off");
    static const char *const modes[] = {"off", "on"};
    for (int m = 0; m < 2; m++) {
        struct nvllm_result *got = generate("cuda", modes[m]);
        for (int i = 0; i < NUM_REQUESTS; i++) {
            assert_int_equal(got[i].num_tokens, NUM_TOKENS);
            assert_memory_equal(got[i].token_ids, want[i].token_ids,
                                NUM_TOKENS * sizeof *want[i].token_ids);
        }
        for (size_t k = 0; k < 3 * NUM_TOKENS; k++) {
            float difference = got[3].logprobs[k].logprob - want[3].logprobs[k].logprob;
            assert_true(fabsf(difference) < 1e-4f);
        }
        assert_int_equal(got[3].num_prompt_top, 2);
        for (size_t k = 0; k < 3 * 6; k++) { // of 7 tokens
            const struct nvllm_logprob *a = &got[3].prompt_logprobs[k];
            const struct nvllm_logprob *b = &want[3].prompt_logprobs[k];
            assert_int_equal(a->token_id, b->token_id);
            assert_true(fabsf(a->logprob - b->logprob) < 1e-4f);
        }
        nvllm_results_free(got, NUM_REQUESTS);
    }
    nvllm_results_free(want, NUM_REQUESTS);
}

static void test_experts_are_refused(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.model = "tests/reference/data/qwen3-moe";
    options.device = "cuda";
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "experts are not supported on the device plain"));
}

// A device with one kind of KV cache refuses the others.
static void test_other_kv_caches_are_refused(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.kv_cache_dtype = "int8";
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    assert_string_equal(error.message,
                        "kv_cache_dtype is int8, but the device plain supports only float32");
}

// A device refuses formats of weights that it has not.
static void test_quantization_is_refused(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.quantization = "int4";
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_UNSUPPORTED);
    assert_string_equal(error.message,
                        "device plain does not quantize weights to int4; device cpu does");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_families),
        cmocka_unit_test(test_requests_give_the_cpus_results),
        cmocka_unit_test(test_experts_are_refused),
        cmocka_unit_test(test_other_kv_caches_are_refused),
        cmocka_unit_test(test_quantization_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
