/* Drafts change no token: every result is the same to the bit with and without them, for greedy and
 * drawn outputs, with masks, log-probabilities, several outputs, preemptions and stops inside of a
 * draft, whatever steps are cut. They must be there, and be right and wrong, for that to say
 * anything. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/mixed_workload.h"

// Matches of one token are many, and often wrong.
#define CONFIG(num_tokens)                                                                         \
    "{\"method\": \"ngram\", \"num_speculative_tokens\": " #num_tokens                             \
    ", \"prompt_lookup_min\": 1, \"prompt_lookup_max\": 3}"

static struct nvllm_engine_options with_drafts(const char *config) {
    struct nvllm_engine_options options = small_options();
    options.speculative_config = config;
    return options;
}

static void expect_drafts(const struct nvllm_stats *stats) {
    assert_true(stats->num_drafts > 0);
    assert_true(stats->num_accepted_tokens > 0);
    assert_true(stats->num_draft_tokens > stats->num_accepted_tokens);
}

static void expect_same_workload(const struct mixed_workload_expected *expected,
                                 const struct nvllm_engine_options *options, bool preempts) {
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    struct nvllm_result *got = mixed_workload_run(expected->workload, options, &stats);
    mixed_workload_expect_same(got, expected->results);
    assert_int_equal(stats.num_generated_tokens, expected->stats.num_generated_tokens);
    assert_int_equal(stats.num_kv_blocks_used, 0);
    if (preempts) assert_true(stats.num_preemptions > 0);
    expect_drafts(&stats);
    nvllm_results_free(got, WORKLOAD_REQUESTS);
}

static void test_same_results(void **state) {
    struct nvllm_engine_options options = with_drafts(CONFIG(1));
    options.async_scheduling = "on";
    expect_same_workload(*state, &options, false);
    options = with_drafts(CONFIG(15));
    expect_same_workload(*state, &options, false);
}

static void test_same_results_with_few_blocks(void **state) {
    struct nvllm_engine_options options = with_drafts(CONFIG(6));
    options.num_kvcache_blocks = 12;
    expect_same_workload(*state, &options, true);
    options.enable_prefix_caching = 0;
    options.async_scheduling = "on";
    expect_same_workload(*state, &options, true);
}

static void test_same_results_with_other_schedules(void **state) {
    struct nvllm_engine_options options = with_drafts(CONFIG(6));
    options.schedule = "prefill-first";
    options.num_kvcache_blocks = 18;
    expect_same_workload(*state, &options, true);
    options = with_drafts(CONFIG(6));
    options.max_num_seqs = 3;
    options.max_num_batched_tokens = 8; // for drafts there is not always room
    expect_same_workload(*state, &options, false);
}

// ---- requests of every kind, at random ----

enum { NUM_REQUESTS = 10 };

struct random_requests {
    struct nvllm_sampling_params params[NUM_REQUESTS];
    struct nvllm_request requests[NUM_REQUESTS];
};

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

// The texts repeat themselves, so that drafts are right now and then.
static struct random_requests random_requests(uint64_t seed) {
    static const char *const prompts[] = {
        "one two three four one two three four one two three",
        "Paul met a turtle. Paul met a fox. Paul met a",
        "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3",
        QUESTION,
    };
    static const char form[] = "{\"regex\": \"(ab|cd|ef){6,20}, (red|blue){3,9} and so on\"}";
    static const char *const stops[] = {"e t", "Paul "}, *const bad[] = {"a fox", "three four"};
    static const struct nvllm_logit_bias biases[] = {{300, 5}, {310, -100}};
    struct random_requests all;
    for (int i = 0; i < NUM_REQUESTS; i++) {
        struct nvllm_sampling_params *p = &all.params[i];
        *p = greedy_params(2 + (int32_t)(next_random(&seed) % 90));
        p->temperature = next_random(&seed) % 2 ? 0 : 0.8f;
        p->seed = i;
        p->ignore_eos = next_random(&seed) % 2;
        p->n = next_random(&seed) % 4 ? 1 : 3;
        if (next_random(&seed) % 3 == 0) p->logprobs = (int32_t)(next_random(&seed) % 4);
        if (next_random(&seed) % 3 == 0) p->stop = stops, p->num_stop = ARRAY_LEN(stops);
        if (next_random(&seed) % 3 == 0) p->bad_words = bad, p->num_bad_words = ARRAY_LEN(bad);
        if (next_random(&seed) % 3 == 0) p->min_tokens = p->max_tokens / 2;
        if (next_random(&seed) % 4 == 0) p->logit_bias = biases, p->num_logit_bias = 2;
        if (next_random(&seed) % 5 == 0) p->repetition_penalty = 1.2f;
        if (next_random(&seed) % 4 == 0)
            p->frequency_penalty = next_random(&seed) % 2 ? 0.2f : -0.3f;
        if (next_random(&seed) % 6 == 0) p->presence_penalty = 0.4f;
        if (i % 3 == 0) {
            p->structured_outputs = form, p->num_structured_outputs = strlen(form);
            p->min_tokens = 0, p->ignore_eos = 0;
        }
        all.requests[i] = text_request(prompts[next_random(&seed) % ARRAY_LEN(prompts)], p);
    }
    return all;
}

static struct nvllm_result *run_random(const struct random_requests *all,
                                       const struct nvllm_engine_options *options,
                                       struct nvllm_stats *stats) {
    struct nvllm_engine *engine = open_engine(options);
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, all->requests, NUM_REQUESTS, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    nvllm_engine_stats(engine, stats);
    nvllm_engine_destroy(engine);
    return results;
}

static void expect_same_output(const struct nvllm_result *got, const struct nvllm_result *want) {
    assert_int_equal(got->num_tokens, want->num_tokens);
    assert_memory_equal(got->token_ids, want->token_ids, want->num_tokens * sizeof(int32_t));
    assert_string_equal(got->text, want->text);
    assert_int_equal(got->finish_reason, want->finish_reason);
    assert_int_equal(got->num_top, want->num_top);
    size_t count = want->num_top < 0 ? 0 : want->num_tokens * (size_t)(1 + want->num_top);
    if (count) assert_memory_equal(got->logprobs, want->logprobs, count * sizeof *want->logprobs);
}

static void test_same_results_at_random(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const struct random_requests all = random_requests(seed);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        struct nvllm_engine_options options = small_options();
        struct nvllm_result *want = run_random(&all, &options, &stats);
        assert_int_equal(stats.num_drafts, 0);
        options.speculative_config = CONFIG(5);
        options.async_scheduling = seed % 2 ? "off" : "on";
        if (seed > 2) options.num_kvcache_blocks = 24;
        struct nvllm_result *got = run_random(&all, &options, &stats);
        expect_drafts(&stats);
        for (int i = 0; i < NUM_REQUESTS; i++) {
            const struct nvllm_result *a = &got[i], *b = &want[i];
            for (; b; a = a->next, b = b->next) expect_same_output(a, b);
            assert_null(a);
        }
        nvllm_results_free(want, NUM_REQUESTS);
        nvllm_results_free(got, NUM_REQUESTS);
    }
}

// ---- drafts that are all right: the output has one token, again and again ----

static int32_t token_of(const struct nvllm_engine *engine, const char *text) {
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), text, strlen(text), 0,
                                            NULL, &ids, &count, NULL),
                     NVLLM_OK);
    int32_t id = ids[count - 1];
    nvllm_free(ids);
    return id;
}

struct repeated {
    uint32_t num_events, widest;
};

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct repeated *repeated = user_data;
    repeated->num_events++;
    if (event->num_tokens > repeated->widest) repeated->widest = (uint32_t)event->num_tokens;
}

static struct nvllm_result *repeat(const char *config, const char *stop, int32_t max_tokens,
                                   struct repeated *repeated, struct nvllm_stats *stats) {
    struct nvllm_engine_options options = with_drafts(config);
    struct nvllm_engine *engine = open_engine(&options);
    const int32_t id = token_of(engine, "a");
    struct nvllm_sampling_params params = greedy_params(max_tokens);
    params.ignore_eos = 1;
    params.allowed_token_ids = &id;
    params.num_allowed_token_ids = 1;
    params.stop = &stop;
    params.num_stop = stop != NULL;
    struct nvllm_request request = text_request("b", &params);
    request.on_event = on_event;
    request.user_data = repeated;
    struct nvllm_result *result = generate_one(engine, &request);
    nvllm_engine_stats(engine, stats);
    nvllm_engine_destroy(engine);
    return result;
}

static void test_fewer_steps_and_wider_events(void **state) {
    (void)state;
    struct repeated repeated = {0};
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    struct nvllm_result *result = repeat(CONFIG(6), NULL, 40, &repeated, &stats);
    assert_int_equal(result->num_tokens, 40);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_LENGTH);
    // The prompt's step and one more bring the first two, each other one 7, the last one 3.
    assert_int_equal(stats.num_steps, 2 + 6);
    assert_int_equal(stats.num_drafts, 6);
    assert_int_equal(stats.num_draft_tokens, 5 * 6 + 2);
    assert_int_equal(stats.num_accepted_tokens, stats.num_draft_tokens);
    assert_int_equal(stats.num_decode_tokens, 39);
    assert_int_equal(stats.num_generated_tokens, 40);
    assert_int_equal(repeated.widest, 7);
    nvllm_results_free(result, 1);
}

static void test_a_stop_inside_of_a_draft(void **state) {
    (void)state;
    struct repeated repeated = {0};
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    struct nvllm_result *result = repeat(CONFIG(6), "aaaaaaaaaaa", 40, &repeated, &stats);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
    assert_int_equal(result->num_tokens, 11);
    assert_string_equal(result->text, "");
    assert_int_equal(stats.num_generated_tokens, 11);
    // Steps bring 1, 1, 7 and 2 tokens; the last one's 4 right drafts behind the stop do not count.
    assert_int_equal(stats.num_accepted_tokens, 6 + 2);
    assert_int_equal(stats.num_decode_tokens, 10);
    nvllm_results_free(result, 1);
}

// The model would end the text at once. A draft reaches beyond min_tokens, and its rows there may.
static void test_min_tokens_inside_of_a_draft(void **state) {
    (void)state;
    struct nvllm_engine_options options = with_drafts(CONFIG(6));
    struct nvllm_engine *engine = open_engine(&options);
    const int32_t ids[] = {token_of(engine, "a"), token_of(engine, "<|im_end|>")};
    const struct nvllm_logit_bias end = {ids[1], 100};
    struct nvllm_sampling_params params = greedy_params(40);
    params.allowed_token_ids = ids;
    params.num_allowed_token_ids = ARRAY_LEN(ids);
    params.logit_bias = &end;
    params.num_logit_bias = 1;
    params.min_tokens = 20;
    struct nvllm_request request = text_request("b", &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(result->num_tokens, 20 + 1);
    assert_int_equal(result->stop_token_id, ids[1]);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_true(stats.num_steps < 10);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

// A sign that is a token of its own, also three times in a row.
static int32_t single_token(const struct nvllm_engine *engine, char *thrice) {
    for (char c = '!'; c <= '~'; c++) {
        int32_t *ids = NULL;
        size_t count = 0;
        memset(thrice, c, 3);
        assert_int_equal(nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), thrice, 3, 0, NULL,
                                                &ids, &count, NULL),
                         NVLLM_OK);
        int32_t id = ids[0];
        bool is_single = count == 3 && ids[1] == id && ids[2] == id;
        nvllm_free(ids);
        if (is_single) return id;
    }
    fail_msg("no sign three times in a row is three tokens");
    return -1;
}

// The model would write A for ever, but AAA is a bad word: so it writes AABAAB. Drafts reach over
// several of them, and each of their rows must know which tokens are in front of it.
static void test_bad_words_inside_of_a_draft(void **state) {
    (void)state;
    struct nvllm_engine_options options = with_drafts(CONFIG(15));
    struct nvllm_engine *engine = open_engine(&options);
    char bad[4] = {0};
    const int32_t ids[] = {single_token(engine, bad), token_of(engine, "b")};
    const char *const bad_words[] = {bad};
    const struct nvllm_logit_bias likely = {ids[0], 100};
    struct nvllm_sampling_params params = greedy_params(90);
    params.ignore_eos = 1;
    params.allowed_token_ids = ids, params.num_allowed_token_ids = ARRAY_LEN(ids);
    params.logit_bias = &likely, params.num_logit_bias = 1;
    params.bad_words = bad_words, params.num_bad_words = 1;
    struct nvllm_request request = text_request("c", &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(result->num_tokens, 90);
    for (size_t i = 0; i < 90; i++) assert_int_equal(result->token_ids[i], ids[i % 3 == 2]);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    assert_true(stats.num_steps < 20);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

// Two tokens take turns, because each becomes less likely when it was generated. Each row of a
// draft must count the draft's tokens before it, and none that was wrong may count later.
static void test_penalties_inside_of_a_draft(void **state) {
    (void)state;
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    for (int way = 0; way < 4; way++) {
        struct nvllm_result *results[2];
        for (int has_drafts = 0; has_drafts < 2; has_drafts++) {
            struct nvllm_engine_options options = with_drafts(has_drafts ? CONFIG(7) : NULL);
            options.async_scheduling = way % 2 ? "on" : "off";
            struct nvllm_engine *engine = open_engine(&options);
            const int32_t ids[] = {token_of(engine, "a"), token_of(engine, "b"),
                                   token_of(engine, "c")};
            const struct nvllm_logit_bias likely = {ids[0], 2};
            struct nvllm_sampling_params params = greedy_params(90);
            params.ignore_eos = 1;
            params.allowed_token_ids = ids, params.num_allowed_token_ids = ARRAY_LEN(ids);
            params.logit_bias = &likely, params.num_logit_bias = 1;
            params.frequency_penalty = 0.5f, params.presence_penalty = 0.3f;
            params.repetition_penalty = 1.1f;
            if (way >= 2) params.temperature = 0.5f, params.seed = 5;
            struct nvllm_request request = text_request("c", &params);
            results[has_drafts] = generate_one(engine, &request);
            nvllm_engine_stats(engine, &stats);
            nvllm_engine_destroy(engine);
        }
        expect_same_output(results[1], results[0]);
        expect_drafts(&stats);
        nvllm_results_free(results[0], 1);
        nvllm_results_free(results[1], 1);
    }
}

// A text that another output began alike is drafted as that went on, for the same salt alone.
static void test_texts_of_others(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.drafts = "15";
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(60);
    params.ignore_eos = 1;
    params.temperature = 1, params.seed = 3; // at random, but the same each time
    struct nvllm_request request = text_request("Once upon a time", &params);
    static const char *const salts[] = {"a", "a", "b"};
    struct nvllm_result *results[3];
    uint64_t num_steps[4] = {0};
    for (int i = 0; i < 3; i++) {
        request.cache_salt = salts[i];
        results[i] = generate_one(engine, &request);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        num_steps[i + 1] = stats.num_steps;
        assert_memory_equal(results[i]->token_ids, results[0]->token_ids, 60 * sizeof(int32_t));
    }
    assert_true(num_steps[2] - num_steps[1] <= 8);
    assert_int_equal(num_steps[3] - num_steps[2], num_steps[1]);
    for (int i = 0; i < 3; i++) nvllm_results_free(results[i], 1);
    nvllm_engine_destroy(engine);
}

// The cache has what was generated, and not what was only drafted.
static void test_the_prefix_cache(void **state) {
    (void)state;
    struct nvllm_result *answers[2];
    for (int has_drafts = 0; has_drafts < 2; has_drafts++) {
        struct nvllm_engine_options options = with_drafts(has_drafts ? CONFIG(9) : NULL);
        options.enable_prefix_caching = has_drafts;
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = greedy_params(100);
        params.ignore_eos = 1;
        struct nvllm_request request = text_request("Paul met a turtle. Paul met a", &params);
        struct nvllm_result *first = generate_one(engine, &request);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        if (has_drafts) expect_drafts(&stats);
        // Prompt and answer together are the next prompt.
        int32_t ids[256];
        size_t num_prompt = first->num_prompt_tokens, count = num_prompt + first->num_tokens;
        assert_true(count < ARRAY_LEN(ids));
        memcpy(ids, first->prompt_token_ids, num_prompt * sizeof *ids);
        memcpy(ids + num_prompt, first->token_ids, first->num_tokens * sizeof *ids);
        params.max_tokens = 20;
        params.logprobs = 2;
        request = ids_request(ids, count, &params);
        answers[has_drafts] = generate_one(engine, &request);
        // All full blocks of tokens that were run.
        size_t num_cached = (count - 1) / 16 * 16;
        assert_int_equal(answers[has_drafts]->num_cached_tokens, has_drafts ? num_cached : 0);
        nvllm_results_free(first, 1);
        nvllm_engine_destroy(engine);
    }
    expect_same_output(answers[1], answers[0]);
    nvllm_results_free(answers[0], 1);
    nvllm_results_free(answers[1], 1);
}

int main(void) {
    const struct CMUnitTest with_ranks[] = {cmocka_unit_test(test_same_results)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_results),
        cmocka_unit_test(test_same_results_with_few_blocks),
        cmocka_unit_test(test_same_results_with_other_schedules),
        cmocka_unit_test(test_same_results_at_random),
        cmocka_unit_test(test_fewer_steps_and_wider_events),
        cmocka_unit_test(test_a_stop_inside_of_a_draft),
        cmocka_unit_test(test_min_tokens_inside_of_a_draft),
        cmocka_unit_test(test_bad_words_inside_of_a_draft),
        cmocka_unit_test(test_penalties_inside_of_a_draft),
        cmocka_unit_test(test_texts_of_others),
        cmocka_unit_test(test_the_prefix_cache),
    };
    if (getenv("NANOVLLM_TEST_RANKS")) { // rows are shared out among the ranks
        return cmocka_run_group_tests(with_ranks, mixed_workload_expected_make,
                                      mixed_workload_expected_free);
    }
    return cmocka_run_group_tests(tests, mixed_workload_expected_make,
                                  mixed_workload_expected_free);
}
