#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/engine_fixture.h"
#include "support/ranks.h"

static const char *other_model; // NULL: the bundled one

void small_options_use(const char *model) {
    other_model = model;
}

struct nvllm_engine_options small_options(void) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = other_model ? other_model : "models/tiny-qwen3";
    if (other_model) options.load_format = "dummy";
    options.max_model_len = 256;
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = 256;
    options.num_kvcache_blocks = 64;
    options.threads = 1;
    use_test_ranks(&options);
    const char *load_format = getenv("NANOVLLM_TEST_LOAD_FORMAT");
    if (load_format) options.load_format = load_format;
    return options;
}

struct nvllm_engine *open_engine(const struct nvllm_engine_options *options) {
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_create(&engine, options, &error)) fail_msg("%s", error.message);
    return engine;
}

struct nvllm_sampling_params greedy_params(int32_t max_tokens) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.temperature = 0;
    params.max_tokens = max_tokens;
    return params;
}

void mixed_params(struct nvllm_sampling_params *out, int32_t max_tokens) {
    static const struct nvllm_logit_bias bias = {.token_id = 300, .bias = 2.0f};
    for (size_t i = 0; i < MIXED_PARAMS; i++) out[i] = greedy_params(max_tokens);
    out[1].repetition_penalty = 1.3f;
    out[1].frequency_penalty = 0.2f;
    out[2].logprobs = 3;
    out[2].logit_bias = &bias;
    out[2].num_logit_bias = 1;
    out[3].temperature = 0.8f;
    out[3].top_p = 0.9f;
    out[3].seed = 5;
}

struct nvllm_request text_request(const char *prompt, const struct nvllm_sampling_params *params) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt = prompt;
    request.prompt_len = strlen(prompt);
    request.sampling = params;
    return request;
}

struct nvllm_request ids_request(const int32_t *ids, size_t count,
                                 const struct nvllm_sampling_params *params) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt_token_ids = ids;
    request.num_prompt_token_ids = count;
    request.sampling = params;
    return request;
}

void expect_refused(struct nvllm_engine *engine, const struct nvllm_request *request,
                    const char *message_part) {
    struct nvllm_error error = {0};
    uint64_t id = 77;
    assert_int_not_equal(nvllm_engine_add_request(engine, request, &id, &error), NVLLM_OK);
    if (!strstr(error.message, message_part)) {
        fail_msg("\"%s\" does not mention \"%s\"", error.message, message_part);
    }
    assert_false(nvllm_engine_has_unfinished(engine));
}

struct nvllm_result *generate_one(struct nvllm_engine *engine,
                                  const struct nvllm_request *request) {
    struct nvllm_result *result = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, request, 1, &result, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    if (result->finish_reason == NVLLM_FINISH_ERROR) fail_msg("%s", result->error.message);
    return result;
}

int open_shared_engine(void **state) {
    struct nvllm_engine_options options = small_options();
    struct nvllm_error error = {0};
    struct nvllm_engine *engine = NULL;
    if (nvllm_engine_create(&engine, &options, &error)) {
        print_error("%s\n", error.message);
        return -1;
    }
    *state = engine;
    return 0;
}

int close_shared_engine(void **state) {
    nvllm_engine_destroy(*state);
    return 0;
}
