/* A model with recurrent layers (support/recurrent_model.h): each sequence has a slot of states.
 * On the CPU, and on the fake device, a request's results must be the same to the bit however it
 * runs. With NANOVLLM_TEST_RANKS or NANOVLLM_TEST_ENGINES this holds among these ranks, too. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/os/cpu.h"
#include "engine/plan/engine_plan.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/recurrent_model.h"
#include "support/ways.h"

static struct temp_folder folder;

static struct nvllm_engine_options cpu_options(void) {
    struct nvllm_engine_options options = small_options();
    options.device = "cpu"; // not the fake device
    return options;
}

// Slots are used again, so no request may see the states of the one before.
static void test_same_results_on_every_way(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 1},
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 3},
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 8, .max_num_tokens = 10},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .max_num_tokens = 24},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 8, .max_num_tokens = 40},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8, .enforce_eager = 1},
    };
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

// A preempted sequence loses its slot, and is computed again from its first token.
static void test_same_results_after_preemptions(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 8, .num_blocks = 14},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 14},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 8, .num_blocks = 18},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 14},
    };
    // Each of two engines has all these blocks, and half of the requests.
    if (getenv("NANOVLLM_TEST_ENGINES")) skip();
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

static void test_threads_change_no_bit(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    options.threads = 2;
    if (options.tensor_parallel_size > 1) skip(); // of all ranks
    struct nvllm_result *got = mixed_workload_run(expected->workload, &options, &stats);
    mixed_workload_expect_same(got, expected->results);
    nvllm_results_free(got, WORKLOAD_REQUESTS);
}

// The outputs share what is cached of their prompt: all but its last tokens.
static void test_outputs_are_those_of_single_requests(void **state) {
    enum { N = 3 };
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_sampling_params params = expected->workload->params[3];
    struct nvllm_request request = expected->workload->requests[3];
    params.n = N;
    params.temperature = 0;
    params.logprobs = 2;
    request.sampling = &params;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *several = generate_one(engine, &request);
    params.n = 1;
    struct nvllm_result *one = generate_one(engine, &request);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    uint32_t num_outputs = 0;
    for (const struct nvllm_result *r = several; r; r = r->next, num_outputs++) {
        assert_int_equal(r->num_tokens, one->num_tokens);
        assert_memory_equal(r->token_ids, one->token_ids, one->num_tokens * sizeof *r->token_ids);
        assert_memory_equal(r->logprobs, one->logprobs,
                            one->num_tokens * 3 * sizeof *one->logprobs);
    }
    assert_int_equal(num_outputs, N);
    uint32_t rest = WORKLOAD_PROMPT_MAX - (WORKLOAD_PROMPT_MAX - 1) / 16 * 16;
    if (options.data_parallel_size == 1) {
        assert_int_equal(stats.num_prefill_tokens, WORKLOAD_PROMPT_MAX + N * rest);
    }
    nvllm_results_free(several, 1);
    nvllm_results_free(one, 1);
    nvllm_engine_destroy(engine);
}

// The same prompt twice finds its last whole block, with the same results, also in another slot.
static void test_a_hit_goes_on_from_a_snapshot(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *first = generate_one(engine, &expected->workload->requests[3]);
    struct nvllm_result *second = generate_one(engine, &expected->workload->requests[3]);
    assert_int_equal(first->num_cached_tokens, 0);
    assert_int_equal(second->num_cached_tokens, (WORKLOAD_PROMPT_MAX - 1) / 16 * 16);
    assert_int_equal(second->num_tokens, first->num_tokens);
    assert_memory_equal(second->token_ids, first->token_ids,
                        first->num_tokens * sizeof *first->token_ids);
    nvllm_results_free(first, 1);
    nvllm_results_free(second, 1);
    nvllm_engine_destroy(engine);
}

// Prompts that begin alike share the states at a multiple of the distance.
static void test_a_hit_of_a_part_of_a_prompt(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = cpu_options();
    options.state_snapshot_tokens = 30; // 32 with blocks of 16
    int32_t other[WORKLOAD_PROMPT_MAX];
    memcpy(other, expected->workload->prompts[3], sizeof other);
    other[70]++;
    struct nvllm_sampling_params params = greedy_params(8);
    struct nvllm_request request = ids_request(other, WORKLOAD_PROMPT_MAX, &params);
    struct nvllm_engine *alone = open_engine(&options), *engine = open_engine(&options);
    struct nvllm_result *want = generate_one(alone, &request);
    struct nvllm_result *before = generate_one(engine, &expected->workload->requests[3]);
    struct nvllm_result *got = generate_one(engine, &request);
    assert_int_equal(got->num_cached_tokens, 64);
    assert_int_equal(got->num_tokens, want->num_tokens);
    assert_memory_equal(got->token_ids, want->token_ids, got->num_tokens * sizeof *got->token_ids);
    nvllm_results_free(want, 1);
    nvllm_results_free(before, 1);
    nvllm_results_free(got, 1);
    nvllm_engine_destroy(alone);
    nvllm_engine_destroy(engine);
}

// A prompt's last token alone may be a step as decodes are, which devices record without snapshots.
static void test_a_snapshot_behind_the_last_token_alone(void **state) {
    enum { FIRST = 32 };
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = cpu_options();
    if (options.tensor_parallel_size > 1 || options.data_parallel_size > 1) skip();
    options.device = "cuda"; // the fake one
    options.state_snapshot_tokens = FIRST;
    options.max_num_batched_tokens = FIRST - 1;
    struct nvllm_sampling_params params = greedy_params(1), more = greedy_params(8);
    const int32_t *prompt = expected->workload->prompts[3];
    struct nvllm_request first = ids_request(prompt, FIRST, &params);
    struct nvllm_request second = ids_request(prompt, WORKLOAD_PROMPT_MAX, &more);
    struct nvllm_engine *alone = open_engine(&options);
    struct nvllm_result *want = generate_one(alone, &second);
    nvllm_engine_destroy(alone);
    fake_device_reset();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *before = generate_one(engine, &first);
    struct nvllm_result *got = generate_one(engine, &second);
    assert_int_equal(got->num_cached_tokens, FIRST);
    assert_int_equal(got->num_tokens, want->num_tokens);
    assert_memory_equal(got->token_ids, want->token_ids, got->num_tokens * sizeof *got->token_ids);
    nvllm_results_free(want, 1);
    nvllm_results_free(before, 1);
    nvllm_results_free(got, 1);
    nvllm_engine_destroy(engine);
}

static void test_no_snapshots_no_hits(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = cpu_options();
    options.num_state_snapshots = 0;
    struct nvllm_engine *engine = open_engine(&options);
    for (int i = 0; i < 2; i++) {
        struct nvllm_result *result = generate_one(engine, &expected->workload->requests[3]);
        assert_int_equal(result->num_cached_tokens, 0);
        nvllm_results_free(result, 1);
    }
    nvllm_engine_destroy(engine);
}

static json_int_t plan_number(const struct nvllm_engine_options *options, const char *name) {
    char *text = NULL;
    struct nvllm_error error = {0};
    if (nvllm_inspect(options, &text, &error)) fail_msg("%s", error.message);
    json_t *root = json_loads(text, 0, NULL);
    const json_t *value = json_object_get(json_object_get(root, "plan"), name);
    json_int_t number = json_is_false(value) ? 0 : json_integer_value(value);
    assert_true(json_is_false(value) || json_is_integer(value));
    json_decref(root);
    nvllm_free(text);
    return number;
}

static void test_the_plan_counts_the_slots(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    options.enable_prefix_caching = 0;
    json_int_t each =
        RECURRENT_STATE_BYTES / options.tensor_parallel_size; // a rank has its heads' states
    assert_int_equal(plan_number(&options, "state_bytes_each"), each);
    assert_int_equal(plan_number(&options, "num_state_slots"), 8);
    assert_int_equal(plan_number(&options, "state_bytes"), 8 * each);
    assert_int_equal(plan_number(&options, "enable_prefix_caching"), 0);
    json_int_t parts =
        plan_number(&options, "weights_bytes") + plan_number(&options, "workspace_bytes") +
        plan_number(&options, "kv_cache_bytes") + plan_number(&options, "scheduler_bytes");
    assert_int_equal(plan_number(&options, "total_bytes"), parts + 8 * each);
    // Two of the six layers have KV: blocks of 16 tokens, K and V of 4 heads of 64 bfloat16.
    assert_int_equal(plan_number(&options, "kv_block_bytes"),
                     2 * 16 * 2 * 4 * 64 * 2 / options.tensor_parallel_size);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_int_equal(stats.workspace_bytes / (uint64_t)options.data_parallel_size,
                     plan_number(&options, "workspace_bytes") + 8 * each);
    nvllm_engine_destroy(engine);
}

static void test_a_plan_without_memory_names_the_states(void **state) {
    (void)state;
    struct nvllm_engine_options options = cpu_options();
    struct engine_plan plan;
    struct err err = {0};
    options.enable_prefix_caching = 0;
    options.max_num_seqs = 256;
    options.tensor_parallel_size = 1;
    assert_int_equal(engine_plan_make(&plan, &options, 0, 0, &err), OK);
    plan.memory_available_bytes = 1 << 20;
    assert_int_equal(engine_plan_check_memory(&plan, &err), ERR_NOMEM);
    assert_non_null(strstr(err.message,
                           "states of 256 sequences and 0 snapshots 0.02), but 0.00 are "
                           "free; a "
                           "smaller max_num_seqs or num_state_snapshots needs less"));
    engine_plan_fini(&plan);
}

// Ranks have the states of their own heads.
static void test_two_ranks_give_the_tokens_of_one(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_result *results[2];
    struct nvllm_engine_options options = cpu_options();
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    if (options.tensor_parallel_size == 1) skip();
    options.kv_cache_dtype = "float32";
    options.dtype = "float32"; // what ranks add in another order differs in the last bits only
    options.cpu_isa = "scalar";
    for (int32_t i = 0; i < 2; i++) {
        options.tensor_parallel_size = 1 + i;
        results[i] = mixed_workload_run(expected->workload, &options, &stats);
    }
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        assert_int_equal(results[1][i].num_tokens, results[0][i].num_tokens);
        assert_memory_equal(results[1][i].token_ids, results[0][i].token_ids,
                            results[0][i].num_tokens * sizeof *results[0][i].token_ids);
    }
    nvllm_results_free(results[0], WORKLOAD_REQUESTS);
    nvllm_results_free(results[1], WORKLOAD_REQUESTS);
}

static int make_model(void **state) {
    recurrent_model_create(&folder);
    small_options_use(folder.path);
    return mixed_workload_expected_make(state);
}

static int remove_model(void **state) {
    temp_folder_remove(&folder);
    return mixed_workload_expected_free(state);
}

// Its weights alone take 50 GiB, so on most machines nothing is left for 256 slots.
static void test_states_are_fitted_to_the_memory(void **state) {
    (void)state;
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "bench/configs/qwen3.5-27b";
    options.load_format = "dummy";
    options.device = "cpu";
    options.skip_tokenizer_init = 1;
    if (cpu_memory_available_bytes() > (size_t)200 << 30) skip();
    assert_in_range(plan_number(&options, "num_state_slots"), 2, 319);
    options.max_num_seqs = 255; // the caller's own numbers stay
    options.num_state_snapshots = 63;
    assert_int_equal(plan_number(&options, "num_state_slots"), 318);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_are_fitted_to_the_memory),
        cmocka_unit_test(test_same_results_on_every_way),
        cmocka_unit_test(test_same_results_after_preemptions),
        cmocka_unit_test(test_threads_change_no_bit),
        cmocka_unit_test(test_outputs_are_those_of_single_requests),
        cmocka_unit_test(test_a_hit_goes_on_from_a_snapshot),
        cmocka_unit_test(test_a_hit_of_a_part_of_a_prompt),
        cmocka_unit_test(test_a_snapshot_behind_the_last_token_alone),
        cmocka_unit_test(test_no_snapshots_no_hits),
        cmocka_unit_test(test_the_plan_counts_the_slots),
        cmocka_unit_test(test_a_plan_without_memory_names_the_states),
        cmocka_unit_test(test_two_ranks_give_the_tokens_of_one),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
