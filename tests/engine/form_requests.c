#include "engine/form_requests.h"

#include <string.h>

#include "support/cmocka_all.h"

struct nvllm_engine *form_engine(const char *async_scheduling, const char *drafts,
                                 int32_t num_blocks, int32_t max_model_len) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    struct nvllm_engine *engine = NULL;
    options.model = "models/tiny-qwen3";
    options.device = "cpu";
    options.threads = strcmp(async_scheduling, "on") == 0 ? 3 : 1; // which share the masks
    options.num_kvcache_blocks = num_blocks;
    options.max_model_len = max_model_len;
    options.async_scheduling = async_scheduling;
    if (drafts) options.drafts = drafts;
    assert_int_equal(nvllm_engine_create(&engine, &options, NULL), NVLLM_OK);
    return engine;
}

struct nvllm_result *form_run(struct nvllm_engine *engine,
                              const struct nvllm_sampling_params *formed,
                              const struct nvllm_sampling_params *plain, size_t num_plain,
                              struct nvllm_stats *stats) {
    struct nvllm_request requests[FORM_REQUESTS_MAX];
    struct nvllm_result *results = NULL;
    assert_true(num_plain < FORM_REQUESTS_MAX);
    for (size_t i = 0; i < 1 + num_plain; i++) {
        requests[i] = (struct nvllm_request)NVLLM_REQUEST_INIT;
        requests[i].prompt = "What is 37 + 58?";
        requests[i].prompt_len = strlen(requests[i].prompt);
        requests[i].sampling = i ? plain : formed;
    }
    assert_int_equal(nvllm_engine_generate(engine, requests, 1 + num_plain, &results, NULL, NULL),
                     NVLLM_OK);
    if (stats) {
        *stats = (struct nvllm_stats){.struct_size = sizeof *stats};
        nvllm_engine_stats(engine, stats);
    }
    return results;
}
