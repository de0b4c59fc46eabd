// Tokens that a form leaves no choice of are appended without a step of their own: fewer steps, and
// the same tokens as where each is sampled.
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/form_requests.h"
#include "nanovllm.h"
#include "support/cmocka_all.h"

enum { NUM_OUTPUTS = 2, NUM_PLAIN = 2 };

static const char form[] =
    "{\"regex\": \"(alpha|beta): the customer's shipping address is [0-9]{3}, and the second name "
    "of this customer is (red|blue)\"}";

struct way {
    const char *async_scheduling; // steps overlap with "on": then such tokens are drafts
    size_t num_plain;
    int32_t num_blocks;
    int32_t max_tokens;
    const char *stop;
    int32_t logprobs; // 0: of the chosen tokens; then with "off" each token has a step
    float repetition_penalty;
    const char *drafts; // NULL: the default
};

static struct nvllm_engine *open_engine(const struct way *way) {
    return form_engine(way->async_scheduling, way->drafts, way->num_blocks, 128);
}

// The request with a form first, and plain ones that run beside it.
static struct nvllm_result *run(const struct way *way, struct nvllm_stats *stats) {
    struct nvllm_engine *engine = open_engine(way);
    struct nvllm_sampling_params plain = NVLLM_SAMPLING_PARAMS_INIT, formed;
    plain.temperature = 1;
    plain.seed = 7;
    plain.max_tokens = 60;
    plain.ignore_eos = 1;
    formed = plain;
    formed.ignore_eos = 0;
    formed.n = NUM_OUTPUTS;
    formed.max_tokens = way->max_tokens;
    formed.logprobs = way->logprobs;
    formed.repetition_penalty = way->repetition_penalty;
    formed.structured_outputs = form;
    formed.num_structured_outputs = strlen(form);
    if (way->stop) {
        formed.stop = &way->stop;
        formed.num_stop = 1;
    }
    struct nvllm_result *results = form_run(engine, &formed, &plain, way->num_plain, stats);
    nvllm_engine_destroy(engine);
    return results;
}

static void expect_same(const struct way *a, const struct way *b) {
    struct nvllm_stats stats;
    struct nvllm_result *first = run(a, &stats), *second = run(b, &stats);
    const struct nvllm_result *got = second;
    for (const struct nvllm_result *want = first; want; want = want->next, got = got->next) {
        assert_string_equal(got->text, want->text);
        assert_int_equal(got->num_tokens, want->num_tokens);
        assert_memory_equal(got->token_ids, want->token_ids,
                            want->num_tokens * sizeof *want->token_ids);
        assert_int_equal(got->finish_reason, want->finish_reason);
    }
    nvllm_results_free(first, 1 + a->num_plain);
    nvllm_results_free(second, 1 + b->num_plain);
}

static void test_same_tokens(void **state) {
    (void)state;
    static const struct way ways[] = {
        {"off", 0, 64, 80, NULL, -1, 1, NULL},        {"off", NUM_PLAIN, 5, 60, NULL, -1, 1, NULL},
        {"off", NUM_PLAIN, 5, 60, NULL, -1, 1, NULL}, {"off", 0, 64, 80, NULL, 0, 1, NULL},
        {"off", 0, 64, 11, NULL, -1, 1, NULL},        {"off", 0, 64, 12, NULL, -1, 1, NULL},
        {"off", 0, 64, 80, "shipping", -1, 1, NULL},  {"off", 0, 64, 80, NULL, -1, 1.3f, NULL},
        {"on", 0, 64, 80, NULL, -1, 1, NULL},         {"on", NUM_PLAIN, 5, 60, NULL, 0, 1, NULL},
        {"on", 0, 64, 12, "shipping", -1, 1, NULL},   {"on", 0, 64, 80, NULL, -1, 1.3f, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct way each = ways[i];
        each.async_scheduling = "off";
        each.logprobs = 0;
        each.num_plain = 0;
        each.num_blocks = 64;
        expect_same(&each, &ways[i]);
    }
}

static void test_a_preempted_one(void **state) {
    (void)state;
    struct nvllm_stats stats;
    struct nvllm_result *results =
        run(&(struct way){"off", NUM_PLAIN, 5, 60, NULL, -1, 1, NULL}, &stats);
    assert_true(stats.num_preemptions > 0);
    nvllm_results_free(results, 1 + NUM_PLAIN);
}

static void test_fewer_steps(void **state) {
    (void)state;
    struct nvllm_stats stats;
    struct nvllm_engine *engine = open_engine(&(struct way){"off", 0, 64, 80, NULL, -1, 1, NULL});
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    struct nvllm_result *result = NULL;
    params.max_tokens = 80;
    params.structured_outputs = form;
    params.num_structured_outputs = strlen(form);
    request.prompt = "a";
    request.prompt_len = 1;
    request.sampling = &params;
    assert_int_equal(nvllm_engine_generate(engine, &request, 1, &result, NULL, NULL), NVLLM_OK);
    stats = (struct nvllm_stats){.struct_size = sizeof stats};
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
    assert_true(result->num_tokens > 3 * stats.num_steps);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

// Drafts do it too: for all outputs at once, and where steps overlap. Without the option the engine
// tries it, and goes on as far as it pays.
static void test_fewer_steps_of_several(void **state) {
    (void)state;
    static const struct way each = {"off", 0, 64, 80, NULL, 0, 1, NULL};
    static const struct way tried = {"on", 0, 64, 80, NULL, -1, 1, NULL};
    static const struct way drafted = {"on", 0, 64, 80, NULL, 0, 1, "15"};
    struct nvllm_stats without, with;
    struct nvllm_result *want = run(&each, &without), *got = run(&drafted, &with);
    expect_same(&each, &drafted);
    assert_true(2 * with.num_steps < without.num_steps);
    assert_int_equal(with.num_draft_tokens, with.num_accepted_tokens);
    nvllm_results_free(want, 1);
    nvllm_results_free(got, 1);
    got = run(&tried, &with);
    assert_true(with.num_draft_tokens > 0);
    assert_int_equal(with.num_draft_tokens, with.num_accepted_tokens);
    nvllm_results_free(got, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens),
        cmocka_unit_test(test_a_preempted_one),
        cmocka_unit_test(test_fewer_steps),
        cmocka_unit_test(test_fewer_steps_of_several),
    };
    return cmocka_run_group_tests_name("run_ahead", tests, NULL, NULL);
}
