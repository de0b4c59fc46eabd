#include "support/mixed_workload.h"

#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

// Long and short, greedy and drawn, with and without penalties, ended by EOS, stop strings, one
// token or many. Every third one has the same prefix as the first.
struct mixed_workload *mixed_workload_create(void) {
    static const char *const stops[] = {"the", "."};
    struct mixed_workload *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        size_t len = i % 4 == 3 ? WORKLOAD_PROMPT_MAX : (size_t)(5 + 7 * i % 40);
        for (size_t t = 0; t < len; t++) {
            w->prompts[i][t] = (int32_t)((i % 3 ? i * 131 : 0) + (int)t * 17 + 300) % 4000;
        }
        struct nvllm_sampling_params *p = &w->params[i];
        *p = greedy_params(i == 5 ? 1 : 12 + 13 * i % 60);
        if (i % 2) p->temperature = 0.9f, p->seed = i;
        if (i % 5 == 4) p->repetition_penalty = 1.3f, p->frequency_penalty = 0.4f;
        if (i % 7 == 2) p->stop = stops, p->num_stop = 2;
        if (i % 6 == 1) p->logprobs = 3;
        p->ignore_eos = i % 3 != 1;
        w->requests[i] = ids_request(w->prompts[i], len, p);
    }
    return w;
}

struct nvllm_result *mixed_workload_run(const struct mixed_workload *w,
                                        const struct nvllm_engine_options *options,
                                        struct nvllm_stats *stats) {
    struct nvllm_engine *engine = open_engine(options);
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, w->requests, WORKLOAD_REQUESTS, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    nvllm_engine_stats(engine, stats);
    nvllm_engine_destroy(engine);
    return results;
}

void mixed_workload_expect_same(const struct nvllm_result *got, const struct nvllm_result *want) {
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        assert_int_equal(got[i].finish_reason, want[i].finish_reason);
        assert_int_equal(got[i].stop_token_id, want[i].stop_token_id);
        assert_int_equal(got[i].num_tokens, want[i].num_tokens);
        assert_memory_equal(got[i].token_ids, want[i].token_ids,
                            want[i].num_tokens * sizeof *want[i].token_ids);
        assert_string_equal(got[i].text, want[i].text);
        assert_int_equal(got[i].num_top, want[i].num_top);
        size_t count = want[i].num_top < 0 ? 0 : want[i].num_tokens * (size_t)(1 + want[i].num_top);
        if (count) assert_memory_equal(got[i].logprobs, want[i].logprobs, count * 8);
    }
}

int mixed_workload_expected_make(void **state) {
    struct mixed_workload_expected *expected = calloc(1, sizeof *expected);
    assert_non_null(expected);
    *state = expected;
    struct nvllm_engine_options options = small_options();
    options.device = "cpu";
    options.async_scheduling = "off";
    expected->workload = mixed_workload_create();
    expected->stats = (struct nvllm_stats)NVLLM_STATS_INIT;
    expected->results = mixed_workload_run(expected->workload, &options, &expected->stats);
    return 0;
}

int mixed_workload_expected_free(void **state) {
    struct mixed_workload_expected *expected = *state;
    nvllm_results_free(expected->results, WORKLOAD_REQUESTS);
    free(expected->workload);
    free(expected);
    return 0;
}
