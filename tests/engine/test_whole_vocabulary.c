// Log-probabilities of a prompt's tokens over the whole vocabulary: the bits of prompt_logprobs 20
// and what follows them, on every way of running; and what is refused.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/ways.h"

enum { NUM_PROMPT = 40, VOCAB = 4096, ROW = 1 + VOCAB, LISTED = NVLLM_LOGPROBS_MAX };

static struct nvllm_sampling_params params_of(int32_t prompt_logprobs) {
    struct nvllm_sampling_params params = greedy_params(3);
    params.ignore_eos = 1;
    params.prompt_logprobs = prompt_logprobs;
    return params;
}

static const int32_t *prompt(void) {
    static int32_t ids[NUM_PROMPT];
    for (int32_t i = 0; i < NUM_PROMPT; i++) ids[i] = (i * 37 + 300) % 4000;
    return ids;
}

static struct nvllm_result *run(struct nvllm_engine *engine, int32_t prompt_logprobs) {
    struct nvllm_sampling_params params = params_of(prompt_logprobs);
    struct nvllm_request request = ids_request(prompt(), NUM_PROMPT, &params);
    return generate_one(engine, &request);
}

// *state: the result of one request alone.
static int make_expected(void **state) {
    struct nvllm_engine_options options = way_options(&way_alone);
    struct nvllm_engine *engine = open_engine(&options);
    *state = run(engine, NVLLM_LOGPROBS_ALL);
    nvllm_engine_destroy(engine);
    return 0;
}

static int free_expected(void **state) {
    nvllm_results_free(*state, 1);
    return 0;
}

static void expect_same(const struct nvllm_result *got, const struct nvllm_result *want) {
    assert_int_equal(got->num_prompt_top, VOCAB);
    assert_non_null(got->prompt_logprobs);
    assert_memory_equal(got->prompt_logprobs, want->prompt_logprobs,
                        (NUM_PROMPT - 1) * ROW * sizeof *got->prompt_logprobs);
}

static void test_every_token_is_there_once_best_first(void **state) {
    const struct nvllm_result *result = *state;
    assert_int_equal(result->num_prompt_top, VOCAB);
    for (int i = 0; i < NUM_PROMPT - 1; i++) {
        const struct nvllm_logprob *row = result->prompt_logprobs + (size_t)i * ROW;
        bool is_there[VOCAB] = {false};
        double sum = 0;
        for (int k = 1; k < ROW; k++) {
            assert_in_range(row[k].token_id, 0, VOCAB - 1);
            assert_false(is_there[row[k].token_id]);
            is_there[row[k].token_id] = true;
            if (k > 1) assert_true(row[k].logprob <= row[k - 1].logprob);
            if (row[k].token_id == row[0].token_id) assert_true(row[k].logprob == row[0].logprob);
            sum += exp((double)row[k].logprob);
        }
        assert_int_equal(row[0].token_id, prompt()[i + 1]);
        assert_true(fabs(sum - 1) < 1e-5);
    }
}

static void test_the_first_are_those_of_twenty(void **state) {
    const struct nvllm_result *whole = *state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *listed = run(engine, LISTED);
    assert_int_equal(listed->num_prompt_top, LISTED);
    for (size_t i = 0; i < NUM_PROMPT - 1; i++) {
        assert_memory_equal(whole->prompt_logprobs + i * ROW,
                            listed->prompt_logprobs + i * (1 + LISTED),
                            (1 + LISTED) * sizeof *listed->prompt_logprobs);
    }
    nvllm_results_free(listed, 1);
    nvllm_engine_destroy(engine);
}

// Prompts with 20, with none and with all, several at a time, cut into chunks and preempted.
static void test_every_way_is_the_same(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 3, .max_num_tokens = 7},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 6},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 6},
        {.device = "cpu",
         .async_scheduling = "on",
         .max_num_seqs = 6,
         .max_num_tokens = 16,
         .num_blocks = 12,
         .no_prefix_cache = 1},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 6, .max_num_tokens = 30},
        {.device = "cuda", .async_scheduling = "off", .max_num_seqs = 6, .enforce_eager = 1},
    };
    static const int32_t wanted[] = {NVLLM_LOGPROBS_ALL, LISTED, -1,
                                     NVLLM_LOGPROBS_ALL, 0,      NVLLM_LOGPROBS_ALL};
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        fake_device_reset();
        struct nvllm_engine_options options = way_options(&ways[w]);
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params[ARRAY_LEN(wanted)];
        struct nvllm_request requests[ARRAY_LEN(wanted)];
        for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
            params[i] = params_of(wanted[i]);
            params[i].max_tokens = 60;
            requests[i] = ids_request(prompt(), NUM_PROMPT, &params[i]);
        }
        struct nvllm_result *results = NULL;
        assert_int_equal(
            nvllm_engine_generate(engine, requests, ARRAY_LEN(wanted), &results, NULL, NULL),
            NVLLM_OK);
        for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
            if (wanted[i] == NVLLM_LOGPROBS_ALL) expect_same(&results[i], *state);
        }
        nvllm_results_free(results, ARRAY_LEN(wanted));
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        if (ways[w].num_blocks) assert_true(stats.num_preemptions > 0);
        nvllm_engine_destroy(engine);
        if (strcmp(ways[w].device, "cuda") == 0) assert_int_equal(fake_device_counts().live, 0);
    }
}

// 2,047 rows of 4,097 entries of 8 bytes fit, 2,048 do not.
static void test_a_prompt_that_would_take_too_much_is_refused(void **state) {
    (void)state;
    enum { LONG = 2049 };
    struct nvllm_engine_options options = small_options();
    options.max_model_len = LONG + 8;
    options.num_kvcache_blocks = 160;
    struct nvllm_engine *engine = open_engine(&options);
    int32_t *ids = calloc(LONG, sizeof *ids);
    assert_non_null(ids);
    struct nvllm_sampling_params params = params_of(NVLLM_LOGPROBS_ALL);
    struct nvllm_request request = ids_request(ids, LONG, &params);
    expect_refused(engine, &request,
                   "prompt_logprobs of the whole vocabulary, 4096 tokens, take 64 MiB for a "
                   "prompt of 2049 tokens: want at most 64 MiB, 2048 tokens");
    request = ids_request(ids, LONG - 1, &params);
    uint64_t id;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(engine, id), 1);
    params.prompt_logprobs = LISTED; // no bound of its own
    request = ids_request(ids, LONG, &params);
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(engine, id), 1);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK);
    nvllm_engine_destroy(engine);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token_is_there_once_best_first),
        cmocka_unit_test(test_the_first_are_those_of_twenty),
        cmocka_unit_test(test_every_way_is_the_same),
        cmocka_unit_test(test_a_prompt_that_would_take_too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, make_expected, free_expected);
}
